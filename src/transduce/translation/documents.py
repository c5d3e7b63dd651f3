"""Translation of documents with formatting, by a single process."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from transduce.documents import FormattedDocument, LanguageDeclaration
from transduce.documents.markup import Passage, split_markup
from transduce.text import Tokenizer, rebuild_document, split_document
from transduce.text.languages import get_base_code, is_right_to_left, make_language_tag
from transduce.translation.confidence.guard import GuardReport, add_reports
from transduce.translation.lines import LineTranslator, TranslatedLine
from transduce.translation.options import TranslationOptions
from transduce.translation.translator import Translator

if TYPE_CHECKING:
    from transduce.translation.confidence.alignment import AlignmentHead


class DocumentTranslator:
    """Translates documents; a sentence whose constraints cannot be met is left untranslated.

    Args:
        translator: the model and its tokenizer.
        options: options of all sentences.
        head: the attention head by which tags are placed; default: the mean of the last layer's.
        can_align: whether tags follow the words that they mark, which needs a Transformer and the native engine;
            otherwise, and with constraints or samples, which exclude that, the text between tags is translated piece by
            piece.

    Raises:
        ConfigError: several samples are drawn, and none is chosen; for more see `LineTranslator`.
    """

    def __init__(
        self,
        translator: Translator,
        options: TranslationOptions,
        head: "AlignmentHead | None" = None,
        *,
        can_align: bool = True,
    ) -> None:
        options.check_for_document()
        self._plain = LineTranslator(translator, options, head)
        self._with_tags = None
        if can_align and options.constraints is None and not options.num_samples:
            keeping_tags = options.model_copy(update={"protect": list(dict.fromkeys((*options.protect, "tag")))})
            self._with_tags = LineTranslator(translator, keeping_tags, head)
        self.lines: list[TranslatedLine] = []
        """The sentences of all documents so far, with marks in place of tags, and what became of them."""

    @property
    def guard_report(self) -> GuardReport | None:
        """The report of the guard on all documents so far; None without a guard."""
        return add_reports(self._plain.guard_report, self._with_tags.guard_report if self._with_tags else None)

    def translate(self, document: FormattedDocument) -> bytes:
        """Translate a document, and return the file."""
        if document.rules is None:
            ((text, lines),) = translate_texts(self._plain, [document.text])
            self.lines += lines
            return self._write(document, text)
        parts = split_markup(document.text, document.rules)
        markups = self._translate_passages([part for part in parts if isinstance(part, Passage)])
        return self._write(document, "".join(part if isinstance(part, str) else markups[part] for part in parts))

    def _write(self, document: FormattedDocument, translation: str) -> bytes:
        translator = self._plain.translator
        return write_translation(document, translation, translator.source_language, translator.target_language)

    def _translate_passages(self, passages: Sequence[Passage]) -> dict[Passage, str]:
        markups: dict[Passage, str] = {}
        tag_of = find_passage_tags(self._plain.translator.tokenizer, passages)
        if self._with_tags is not None:
            marked = [passage for passage in passages if passage.get_marks()]
            marked_texts = [passage.to_marked_text() for passage in marked]
            translations = translate_texts(self._with_tags, marked_texts, [tag_of[passage] for passage in marked])
            for passage, (text, lines) in zip(marked, translations, strict=True):
                markup = passage.restore_tags(text)
                if markup is not None:
                    markups[passage] = markup
                    self.lines += lines
        in_parts = [passage for passage in passages if passage not in markups]
        tagged = [(text, tag_of[passage]) for passage in in_parts for text in passage.get_texts()]
        translated = translate_texts(self._plain, [text for text, _ in tagged], [tag for _, tag in tagged])
        self.lines += [line for _, lines in translated for line in lines]
        pieces = (text for text, _ in translated)
        return markups | {passage: passage.replace_texts(pieces) for passage in in_parts}


def find_passage_tags(tokenizer: Tokenizer, passages: Sequence[Passage]) -> dict[Passage, str]:
    """The language tag of each passage: that with which its text begins, or else that of the first; usually none."""
    if not tokenizer.tags:
        return dict.fromkeys(passages, "")
    own = {passage: tokenizer.split_tag("".join(passage.get_texts()[:1]))[0] for passage in passages}
    first = own[passages[0]] if passages else ""
    return {passage: tag or first for passage, tag in own.items()}


def write_translation(document: FormattedDocument, translation: str, source: str, target: str) -> bytes:
    """Make the file of a translated document, which declares its new language.

    It declares the language `target` and its direction of writing instead of those of `source`, as far as its
    format does; nothing is declared if either code is empty, or both are the same.
    """
    code = make_language_tag(target)
    if not source or not target or code == make_language_tag(source):
        return document.write(translation)
    turns = is_right_to_left(source) != is_right_to_left(target)
    language = LanguageDeclaration(
        code,
        lambda found: get_base_code(found) == get_base_code(source),
        ("rtl" if is_right_to_left(target) else "ltr") if turns else None,
    )
    return document.write(translation, language)


def translate_texts(
    translator: LineTranslator, texts: Sequence[str], tags: Sequence[str] = ()
) -> list[tuple[str, list[TranslatedLine]]]:
    """Translate the sentences of all texts together; returns each text with its sentences.

    A sentence whose constraints cannot be met is left untranslated. `tags` are the language tags of texts that begin
    without one, if they have any: see `Translator.repeat_tags`.
    """
    plain = translator.translator
    documents = [
        plain.repeat_tags(split_document(text, plain.source_language), tag)
        for text, tag in zip(texts, tags or [""] * len(texts), strict=True)
    ]
    lines = iter(translator.translate([sentence for document in documents for sentence in document.sentences]))
    split_tag = translator.translator.tokenizer.split_tag
    found = []
    for document in documents:
        own = list(islice(lines, len(document.sentences)))
        translations = [split_tag(line.source)[1] if line.has_failed else line.translation.text for line in own]
        found.append((rebuild_document(document, translations), own))
    return found
