"""What a behaviour is: inputs made of the user's sentences, and a rule that judges their translations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transduce.evaluation.scorecard.options import TranslationOption
from transduce.text import WITHOUT_SPACES
from transduce.translation import Translator

MAX_MADE_CASES = 20
"""Maximum number of inputs of a behaviour that is not tried with every sentence."""

Translations = Mapping[str, str]
"""Every input of a scorecard with its translation."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of the user's text, with its human translation if there is one."""

    source: str
    reference: str | None = None


@dataclass(frozen=True)
class SourceText:
    """The sentences of which the inputs of behaviours are made, and the translator that is measured.

    Args:
        sentences: none is blank, and each is read as a whole.
        translator: the model and its tokenizer.
        seed: of random changes.
        inputs: all inputs made of whole sentences, for the behaviours that look at every translation.
    """

    sentences: tuple[Sentence, ...]
    translator: Translator
    seed: int = 1
    inputs: tuple[str, ...] = ()

    @property
    def has_spaces(self) -> bool:
        """Whether most of the letters are of scripts with spaces between words."""
        letters = [character for sentence in self.sentences for character in sentence.source if character.isalpha()]
        return 2 * len(WITHOUT_SPACES.findall("".join(letters))) <= len(letters)


@dataclass(frozen=True)
class Case:
    """One input of a behaviour.

    Args:
        text: the input.
        related: other inputs, with whose translations that of this input is compared.
        others: further inputs, none of which may have the same translation unless it is the same sentence.
        kept: parts of the input that its translation must contain.
        reference: a human translation of the input, if it is only changed in form.
        language: of the translations, by its code; "" if it is unknown, or does not matter.
    """

    text: str
    related: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reference: str | None = None
    language: str = ""


@dataclass(frozen=True)
class Judgement:
    """How well a translation follows the rule of a behaviour.

    Args:
        score: from 0 to 1, the best.
        problem: what is wrong, in a few words; "" if nothing is.
        expected: the text that the translation was compared with; "" if there is none.
    """

    score: float
    problem: str = ""
    expected: str = ""


@dataclass(frozen=True)
class Behaviour:
    """A behaviour of translation models.

    Args:
        name: some words.
        description: what the inputs are, and when a translation is right.
        make_cases: makes the inputs.
        judge: judges the translation of a case by rules.
        absence: why a text may give no inputs; "" if every text gives some.
        option: the option of `transduce translate` that helps, if there is one.
        normalize: only for behaviours that change the form of sentences, such as their case, and not their meaning.
            Takes a translation and its language, and removes differences of form that are allowed, for comparisons.
        has_sentences: whether the inputs consist of whole sentences.
    """

    name: str
    description: str
    make_cases: Callable[[SourceText], list[Case]]
    judge: Callable[[Case, Translations], Judgement]
    absence: str = ""
    option: TranslationOption | None = None
    normalize: Callable[[str, str], str] | None = None
    has_sentences: bool = True


def find_same_translation(source: str, others: Sequence[str], translations: Translations) -> str | None:
    """The first of the others that has the same translation as the source; None if there is none.

    Those that differ from the source in capitals alone do not count.
    """
    found = (other for other in others if translations[other] == translations[source])
    return next((other for other in found if other.casefold() != source.casefold()), None)
