"""The options of `transduce translate` that a scorecard tries where a model behaves badly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transduce.text import USUAL_KINDS
from transduce.translation import LineTranslator, TranslationOptions, Translator, translate_texts

Translate = Callable[[Translator, Sequence[str]], list[str]]


@dataclass(frozen=True)
class TranslationOption:
    """An option of `transduce translate`: its flags, and the translation of texts with it.

    `translate` raises `ConfigError` if the engine of the translator does not support the option.
    """

    flags: str
    translate: Translate


def _translate_with(options: TranslationOptions) -> Translate:
    def translate(translator: Translator, texts: Sequence[str]) -> list[str]:
        return [line.translation.text for line in LineTranslator(translator, options).translate(texts)]

    return translate


def _translate_as_documents(translator: Translator, texts: Sequence[str]) -> list[str]:
    """Translate the sentences of each text by themselves."""
    line_translator = LineTranslator(translator, TranslationOptions())
    return [translation for translation, _ in translate_texts(line_translator, texts)]


PROTECT = TranslationOption("--protect", _translate_with(TranslationOptions(protect=[*USUAL_KINDS])))
PROTECT_NUMBERS = TranslationOption("--protect-numbers", _translate_with(TranslationOptions(protect=["number"])))
PROTECT_ALL = TranslationOption(
    "--protect --protect-numbers", _translate_with(TranslationOptions(protect=[*USUAL_KINDS, "number"]))
)
GUARD = TranslationOption("--guard", _translate_with(TranslationOptions(guard=True)))
DOCUMENT = TranslationOption("--document", _translate_as_documents)
