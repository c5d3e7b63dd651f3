"""Translation, scoring and inspection as batch tasks, their preparation, and the translations of texts they give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Annotated, Any

from pydantic import Field

from transduce.inspection import InspectedModel, InspectionRequest, inspect_text
from transduce.serving.errors import DeadlineExceeded, Unsatisfiable
from transduce.serving.models import LoadedModel, ResponseModel
from transduce.text import Document, rebuild_document, split_document, split_segments, subdivide_document
from transduce.translation import Line, PairScore, TranslationOptions, align_lines, score_pairs
from transduce.translation.constraints.protection import ProtectionMethod

MAX_PARTS = 8
"""Parts of a sentence that is longer than the model reads at a time. The parts of an even longer one are computed as
sentences of their own, so that other requests have their turn in between, and the rest is not computed if the request
is cancelled."""


@dataclass(frozen=True)
class Token(ResponseModel):
    """A piece of a translation."""

    piece: Annotated[str, Field(examples=["▁Mann"])]
    """Piece as the tokenizer spells it; `</s>` at the end."""

    log_probability: float
    """Log-probability after the pieces before it, in nats."""


@dataclass(frozen=True)
class Word(ResponseModel):
    """A word of a translation."""

    word: str
    """The word as it stands in the translation."""

    confidence: float
    """The probability, from 0 to 1, that it is right."""


@dataclass(frozen=True)
class ScoredText(ResponseModel):
    """One of several translations."""

    text: str
    """The translation."""

    score: float | None
    """Sum of its sentences' log-probabilities, each divided by its length penalty; null if it was joined from parts."""

    utility: float | None
    """Mean chrF of a sentence against the other samples, from 0 to 100; null unless chosen by minimum Bayes risk."""


@dataclass(frozen=True)
class TranslatedSentence(ResponseModel):
    """A sentence of a text."""

    source: str
    """The sentence."""

    translations: tuple[ScoredText, ...]
    """Translations, best first."""

    tokens: tuple[Token, ...]
    """Pieces of the best translation; none if it was joined from parts."""

    num_parts: int
    """Parts that the sentence was divided into; above 1 if it is longer than the model reads at a time."""

    how: ProtectionMethod | None
    """How spans and terms were kept: "free", "constrained", "in parts" or "copied"; null if nothing was to be kept."""

    confidence: float | None
    """Expected chrF, from 0 to 100; null unless the model is calibrated."""

    words: tuple[Word, ...]
    """Words of the best translation; none unless the model is calibrated."""

    alignment: str | None
    """Words of both sides that translate each other, as in "0-0 2-1"; null unless asked for."""


@dataclass(frozen=True)
class TranslatedText(ResponseModel):
    """The translation of one text."""

    text: Annotated[str, Field(examples=["Ein Mann fährt Fahrrad. Es ist spät."])]
    """The best translation, with all that stood between the sentences."""

    score: float | None
    """Score of the best translation, as in `alternatives`."""

    alternatives: tuple[ScoredText, ...]
    """Other translations, best first."""

    sentences: tuple[TranslatedSentence, ...]
    """Sentences; none for markup, and for a text without letter or digit, which is returned unchanged."""

    source: Annotated[str, Field(examples=["en"])]
    """Language code of the text."""

    source_probability: Annotated[float, Field(examples=[1.0])]
    """Probability of the language, from 0 to 1, if it was detected; else 1."""

    @classmethod
    def join(cls, document: Document, sentences: tuple[TranslatedSentence, ...], source: str) -> "TranslatedText":
        """Join translations of a document's sentences: the k-th alternative is made of the k-th of each sentence."""
        depth = min((len(sentence.translations) for sentence in sentences), default=1)
        best, *others = (_join_rank(document, sentences, rank) for rank in range(depth))
        return cls(best.text, best.score, tuple(others), sentences, source, 1.0)


def _join_rank(document: Document, sentences: tuple[TranslatedSentence, ...], rank: int) -> ScoredText:
    chosen = [sentence.translations[rank] for sentence in sentences]
    scores = [one.score for one in chosen if one.score is not None]
    score = math.fsum(scores) if len(scores) == len(chosen) else None
    return ScoredText(rebuild_document(document, [one.text for one in chosen]), score, None)


@dataclass(frozen=True)
class TranslationTask:
    """Translation of sentences by one model with the same options."""

    model: LoadedModel
    options: TranslationOptions
    has_typical_speed: bool = True

    @property
    def width(self) -> int:
        """The beam, or the number of samples."""
        options = self.options.widen_beam(self.model.translator.search)
        return options.num_samples or options.beam or 1

    def compute(self, sentences: Sequence[str]) -> list[TranslatedSentence | Exception]:
        """Translate sentences."""
        lines = self.model.make_line_translator(self.options).translate(sentences)
        alignments = self._align(lines) if self.options.align else [None] * len(lines)
        return [
            Unsatisfiable(
                f"no translation of {line.source!r:.80} has what is asked for, or it is too long to be held to it"
            )
            if line.has_failed
            else self._describe(line, alignment)
            for line, alignment in zip(lines, alignments, strict=True)
        ]

    def _describe(self, line: Line, alignment: str | None) -> TranslatedSentence:
        best = line.translation.alternatives[0]
        # The confidence of translations that were put together of parts has not been calibrated.
        is_calibrated = best.pieces and line.translation.num_parts == 1
        confidence = self.model.confidence if is_calibrated else None
        words = [] if confidence is None else confidence.words(best.pieces, best.token_scores)
        return TranslatedSentence(
            source=line.source,
            translations=tuple(
                ScoredText(one.text, one.score if line.has_score else None, one.utility)
                for one in line.translation.alternatives
            ),
            tokens=tuple(map(Token, best.pieces, best.token_scores)),
            num_parts=line.translation.num_parts,
            how=line.how,
            confidence=None if confidence is None else confidence.sentence(best.token_scores),
            words=tuple(Word(word, probability) for word, probability in words),
            alignment=alignment,
        )

    def _align(self, lines: Sequence[Line]) -> list[str | None]:
        """Align lines; None for those that the model did not read as a whole."""
        found = align_lines(self.model.make_forced_decoder("alignments"), lines, self.model.alignment_head)
        return [None if alignment is None else str(alignment) for alignment in found]


@dataclass(frozen=True)
class ScoringTask:
    """Scoring of pairs of texts by one model."""

    model: LoadedModel
    width: int = 1
    has_typical_speed: bool = False  # it does not search

    def compute(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """Score pairs."""
        return score_pairs(self.model.make_forced_decoder("scores"), pairs)


@dataclass(frozen=True)
class InspectionTask:
    """Inspection of what one model computes for a sentence.

    Args:
        model: the model.
        is_over: set once nobody waits for the document any more, so that the rest is not computed.
    """

    model: LoadedModel
    is_over: Event = field(default_factory=Event, compare=False)
    width: int = 1
    has_typical_speed: bool = False

    def compute(self, requests: Sequence[InspectionRequest]) -> list[dict[str, Any]]:
        """Make inspection documents."""
        info = self.model.info
        about = InspectedModel(info.model, info.digest, self.model.confidence)
        return [inspect_text(self.model.translator, one, about, checkpoint=self._check_waiting) for one in requests]

    def _check_waiting(self) -> None:
        if self.is_over.is_set():
            raise DeadlineExceeded("nobody waits for this inspection any more")


@dataclass(frozen=True)
class PreparedTexts:
    """Texts divided into sentences.

    Args:
        documents: one for each text.
        sentences: of all documents, in order, each with its number of source tokens.
    """

    documents: tuple[Document, ...]
    sentences: tuple[tuple[str, int], ...]

    def join_translations(self, sentences: Sequence[TranslatedSentence], source: str) -> list[TranslatedText]:
        """Join the translations of all sentences, in order, to translations of the texts."""
        texts, start = [], 0
        for document in self.documents:
            end = start + len(document.sentences)
            texts.append(TranslatedText.join(document, tuple(sentences[start:end]), source))
            start = end
        return texts


def prepare_texts(
    model: LoadedModel, texts: Sequence[str], options: TranslationOptions, is_over: Event | None = None
) -> PreparedTexts:
    """Divide texts into sentences, as the options say.

    An address, tag or placeholder of more than `MAX_PARTS` parts is in none of them, and is kept as it is.

    Args:
        model: translates them.
        texts: anything.
        options: how they are translated.
        is_over: set once nobody waits for them any more, so that the rest is not prepared.

    Raises:
        DeadlineExceeded: it was set.
        ConfigError: options contradict each other, the model or its engine does not have them, or the prefix has more
            tokens than the model reads at a time: each takes a step of the search.
    """
    model.make_line_translator(options)
    if options.align:
        model.make_forced_decoder("alignments")
    num_prefix = _count_tokens(model, [options.prefix])[0] if options.prefix else 0
    splitter = _LongSentenceSplitter(model, is_over or Event())
    is_divisible = not (options.prefix or options.require)  # else parts have no translation of their own
    documents = []
    for text in texts:
        splitter.check_waiting()
        document = split_document(text, model.info.source) if options.splits_texts else _make_single_sentence(text)
        documents.append(subdivide_document(document, splitter.split) if is_divisible else document)
    sentences = [sentence for document in documents for sentence in document.sentences]
    lengths = [length + num_prefix for length in _count_tokens(model, sentences)]
    return PreparedTexts(tuple(documents), tuple(zip(sentences, lengths, strict=True)))


def prepare_pairs(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[tuple[str, str], int], ...]:
    """Return each pair with the number of tokens of its longer side."""
    sources, targets = (_count_tokens(model, [pair[side] for pair in pairs]) for side in (0, 1))
    return tuple(zip(pairs, map(max, sources, targets), strict=True))


class _LongSentenceSplitter:
    """Splits sentences of more than `MAX_PARTS` parts into parts that the model reads as a whole."""

    def __init__(self, model: LoadedModel, is_over: Event) -> None:
        self._model, self._is_over = model, is_over

    def split(self, sentence: str) -> list[str]:
        self.check_waiting()
        max_tokens = MAX_PARTS * self._model.info.max_pieces
        tokenizer = self._model.translator.tokenizer
        is_short = len(sentence.encode("utf-8", "replace")) <= max_tokens  # a token has at least a byte
        if is_short or tokenizer.split_language(sentence)[0] or _count_tokens(self._model, [sentence])[0] <= max_tokens:
            return [sentence]
        return split_segments(sentence, self._model.info.source, self._fits)

    def check_waiting(self) -> None:
        if self._is_over.is_set():
            raise DeadlineExceeded("nobody waits for these texts any more")

    def _fits(self, part: str) -> bool:
        self.check_waiting()
        return self._model.translator.fits(part)


def _count_tokens(model: LoadedModel, texts: Sequence[str]) -> list[int]:
    """Count tokens of each text, `</s>` included."""
    return [len(ids) + 1 for ids in model.translator.tokenizer.encode_all(texts)]


def _make_single_sentence(text: str) -> Document:
    """Make a document with the text as its only sentence, or with none if it has no letter or digit."""
    stripped = text.strip()
    if not any(map(str.isalnum, stripped)):
        return Document((), (text,))
    start = text.index(stripped)
    return Document((stripped,), (text[:start], text[start + len(stripped) :]))
