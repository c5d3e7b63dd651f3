"""Requests on their way into the queue: texts in sentences, and how long each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

from transduce.serving.answers import TranslatedSentence, TranslatedText
from transduce.serving.models import LoadedModel
from transduce.serving.refusals import DeadlineExceeded
from transduce.text import Document, split_document, split_segments, subdivide_document
from transduce.translation import TranslationOptions

MOST_PARTS = 8
"""Of a sentence that is longer than the model reads at a time: with more, each is computed as a sentence of its own, so
that others have their turn in between, and nothing more is computed of it once nobody waits for it."""


@dataclass(frozen=True)
class PreparedTexts:
    """Texts in sentences.

    Args:
        documents: one for each text.
        sentences: of all, in order, each with its number of source tokens.
    """

    documents: tuple[Document, ...]
    sentences: tuple[tuple[str, int], ...]

    def answers(self, found: Sequence[TranslatedSentence]) -> list[TranslatedText]:
        """The texts with the translations of all sentences, in order."""
        answers, start = [], 0
        for document in self.documents:
            end = start + len(document.sentences)
            answers.append(TranslatedText.of(document, tuple(found[start:end])))
            start = end
        return answers


def prepared_texts(
    model: LoadedModel, texts: Sequence[str], wish: TranslationOptions, is_over: Event | None = None
) -> PreparedTexts:
    """The texts in sentences, as the wish has it.

    An address, tag or placeholder of more than `MOST_PARTS` parts is in none of them, and so is kept as it is.

    Args:
        model: what is going to translate them.
        texts: anything.
        wish: how they are translated.
        is_over: set once nobody waits for them any more, so that no more is done.

    Raises:
        DeadlineExceeded: it was set.
        ConfigError: the wish contradicts itself, asks for more than the model or its engine has, or has a prefix of
            more tokens than the model reads at a time: each takes a step of the search.
    """
    model.line_translator(wish)
    if wish.align:
        model.decoder("alignments")
    num_prefix = _num_tokens(model, [wish.prefix])[0] if wish.prefix else 0
    turns = _Turns(model, is_over or Event())
    divides = not (wish.prefix or wish.require)  # else there is no translation of parts
    documents = []
    for text in texts:
        turns.checkpoint()
        document = split_document(text, model.languages.source) if wish.splits_texts else _whole(text)
        documents.append(subdivide_document(document, turns.of) if divides else document)
    sentences = [sentence for document in documents for sentence in document.sentences]
    lengths = [length + num_prefix for length in _num_tokens(model, sentences)]
    return PreparedTexts(tuple(documents), tuple(zip(sentences, lengths, strict=True)))


def prepared_pairs(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[tuple[str, str], int], ...]:
    """Each pair with the number of tokens of its longer side."""
    sources, targets = (_num_tokens(model, [pair[side] for pair in pairs]) for side in (0, 1))
    return tuple(zip(pairs, map(max, sources, targets), strict=True))


class _Turns:
    """Divides sentences of very many parts, each of which the model reads as a whole, until nobody waits for it."""

    def __init__(self, model: LoadedModel, is_over: Event) -> None:
        self._model, self._is_over = model, is_over

    def of(self, sentence: str) -> list[str]:
        """The parts, or the whole sentence if they are not very many."""
        self.checkpoint()
        most = MOST_PARTS * self._model.languages.max_pieces
        tokenizer = self._model.translator.tokenizer
        is_short = len(sentence.encode("utf-8", "replace")) <= most  # a token stands for at least a byte
        if is_short or tokenizer.split_language(sentence)[0] or _num_tokens(self._model, [sentence])[0] <= most:
            return [sentence]
        return split_segments(sentence, self._model.languages.source, self._fits)

    def checkpoint(self) -> None:
        """That somebody waits.

        Raises:
            DeadlineExceeded: nobody does.
        """
        if self._is_over.is_set():
            raise DeadlineExceeded("nobody waits for these texts any more")

    def _fits(self, part: str) -> bool:
        self.checkpoint()
        return self._model.translator.fits(part)


def _num_tokens(model: LoadedModel, texts: Sequence[str]) -> list[int]:
    """Of each, `</s>` included."""
    return [len(ids) + 1 for ids in model.translator.tokenizer.encode_all(texts)]


def _whole(text: str) -> Document:
    """The text as one sentence, if it shows a letter or digit; space around it is kept."""
    stripped = text.strip()
    if not any(map(str.isalnum, stripped)):
        return Document((), (text,))
    start = text.index(stripped)
    return Document((stripped,), (text[:start], text[start + len(stripped) :]))
