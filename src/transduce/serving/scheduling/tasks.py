"""Translation, scoring and inspection as batch tasks, their preparation, and the translations of texts they give."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event
from typing import Annotated, Any

from pydantic import Field

from transduce.errors import DeadlineExceededError, TooLongError, UnsatisfiableError
from transduce.inspection import InspectedModel, InspectionRequest, inspect_text
from transduce.serving.models import LoadedModel
from transduce.text import (
    Document,
    has_letters,
    rebuild_document,
    split_document,
    split_segments,
    subdivide_document,
)
from transduce.translation import (
    DescribedFields,
    EncodedPair,
    EncodedText,
    PairScore,
    ScoredText,
    TranslatedSentence,
    TranslationOptions,
    describe_lines,
    encode_pairs,
    score_encoded_pairs,
)

MAX_PARTS = 8
"""Maximum number of parts of a sentence that is longer than the model reads at once. The parts of an even longer one
are computed as separate sentences, so that other requests have their turn in between, and cancelling the request skips
the remaining parts."""

MAX_SCORED_TOKENS = 1_024
"""Maximum number of tokens of the longer side of a pair to be scored, `</s>` included. Time and memory grow with the
square of the length: 10 GB and several minutes at 100,000 tokens."""


@dataclass(frozen=True)
class TranslatedText(DescribedFields):
    """The translation of one text."""

    text: Annotated[str, Field(examples=["Ein Mann fährt Fahrrad. Es ist spät."])]
    """The first translation of each sentence, with the text between sentences unchanged."""

    score: float | None
    """Score of the translation, as in `alternatives`."""

    alternatives: tuple[ScoredText, ...]
    """Other translations, best first; samples in the order in which they were drawn, unless minimum Bayes risk ranks
    them."""

    sentences: tuple[TranslatedSentence, ...]
    """Sentences; none for markup, or for a text without letters, which is returned unchanged."""

    source: Annotated[str, Field(examples=["en"])]
    """Language code of the text."""

    source_probability: Annotated[float, Field(examples=[1.0])]
    """Probability of the language, from 0 to 1, if it was detected; else 1."""

    @classmethod
    def join(cls, document: Document, sentences: tuple[TranslatedSentence, ...], source: str) -> "TranslatedText":
        """Join translations of a document's sentences: the k-th alternative consists of the k-th of each sentence."""
        depth = min((len(sentence.translations) for sentence in sentences), default=1)
        first, *others = (_join_rank(document, sentences, rank) for rank in range(depth))
        return cls(first.text, first.score, tuple(others), sentences, source, 1.0)


def _join_rank(document: Document, sentences: tuple[TranslatedSentence, ...], rank: int) -> ScoredText:
    translations = [sentence.translations[rank] for sentence in sentences]
    scores = [one.score for one in translations if one.score is not None]
    score = math.fsum(scores) if len(scores) == len(translations) else None
    return ScoredText(rebuild_document(document, [one.text for one in translations]), score, None)


@dataclass(frozen=True)
class TranslationTask:
    """Translation of sentences by one model with the same options."""

    model: LoadedModel
    options: TranslationOptions
    should_measure_speed: bool = True

    @property
    def width(self) -> int:
        """The beam, or the number of samples."""
        options = self.options.widen_beam(self.model.translator.search)
        return options.num_samples or options.beam or 1

    def compute(self, sentences: Sequence[str | EncodedText]) -> list[TranslatedSentence | Exception]:
        """Translate sentences."""
        lines = self.model.make_line_translator(self.options).translate(sentences)
        described = describe_lines(
            lines,
            self.model.translator,
            confidence=self.model.confidence,
            head=self.model.head,
            has_alignment=self.options.align,
        )
        return [
            UnsatisfiableError(
                f"no translation of {line.source!r:.80} meets the constraints, or the text is too long for constraints"
            )
            if line.has_failed
            else sentence
            for line, sentence in zip(lines, described, strict=True)
        ]


@dataclass(frozen=True)
class ScoringTask:
    """Scoring of pairs of texts by one model."""

    model: LoadedModel
    width: int = 1
    should_measure_speed: bool = False  # scoring does not search

    def compute(self, pairs: Sequence[EncodedPair]) -> list[PairScore]:
        """Score pairs."""
        return score_encoded_pairs(self.model.translator.make_forced_decoder("scores"), pairs)


@dataclass(frozen=True)
class InspectionTask:
    """Inspection of what one model computes for a sentence, until `is_over` is set: the request was cancelled or its
    deadline passed.
    """

    model: LoadedModel
    is_over: Event = field(default_factory=Event, compare=False)
    width: int = 1
    should_measure_speed: bool = False

    def compute(self, requests: Sequence[InspectionRequest]) -> list[dict[str, Any]]:
        """Make inspection documents."""
        info = self.model.info
        about = InspectedModel(info.model, info.digest, self.model.confidence)
        check_waiting = partial(raise_if_over, self.is_over, "this inspection")
        return [inspect_text(self.model.translator, one, about, check_cancelled=check_waiting) for one in requests]


def raise_if_over(is_over: Event, what: str) -> None:
    """Raise `DeadlineExceededError` if nobody waits for `what` any more."""
    if is_over.is_set():
        raise DeadlineExceededError(f"request cancelled before {what} finished")


@dataclass(frozen=True)
class PreparedTexts:
    """Texts divided into sentences: a document for each text, and all sentences, each with its number of tokens."""

    documents: tuple[Document, ...]
    sentences: tuple[tuple[EncodedText, int], ...]

    def join_translations(self, sentences: Sequence[TranslatedSentence], source: str) -> list[TranslatedText]:
        """Join the translations of all sentences, in order, to translations of the texts."""
        rest = iter(sentences)
        return [
            TranslatedText.join(document, tuple(islice(rest, len(document.sentences))), source)
            for document in self.documents
        ]


def prepare_texts(
    model: LoadedModel,
    texts: Sequence[str],
    options: TranslationOptions,
    is_over: Event | None = None,
    tags: Sequence[str] = (),
) -> PreparedTexts:
    """Split texts into sentences, according to the options, and encode them.

    An address, tag or placeholder of more than `MAX_PARTS` parts is not part of any sentence, and is kept unchanged.
    `tags` are the language tags of texts that begin without one, if they have any: see `Translator.repeat_tags`.

    Raises:
        DeadlineExceededError: `is_over` was set while this worked: nobody waits for the texts any more.
        ConfigError: options contradict each other, are not supported by the model or engine, or the prefix has more
            tokens than the model reads at once: each takes a step of the search.
        UnsatisfiableError: a sentence has more than `MAX_PARTS` parts, and a prefix or required words.
    """
    model.make_line_translator(options)
    if options.align:
        model.translator.make_forced_decoder("alignments")
    translator, tokenizer = model.translator, model.translator.tokenizer
    check_waiting = partial(raise_if_over, is_over or Event(), "these texts")
    max_tokens = MAX_PARTS * model.info.max_pieces
    known: dict[str, list[int]] = {}  # ids of long sentences

    def fits(part: str) -> bool:
        check_waiting()
        return translator.fits(part)

    def divide(sentence: str) -> list[str]:
        """Split a sentence of more than `MAX_PARTS` parts into parts that the model reads as a whole."""
        check_waiting()
        is_short = len(sentence.encode("utf-8", "replace")) <= max_tokens  # a token has at least one byte
        if is_short:
            return [sentence]
        ids = known[sentence] = tokenizer.encode(sentence)
        if len(ids) < max_tokens:
            return [sentence]
        return split_segments(sentence, model.info.source, lambda part: part != sentence and fits(part))

    documents = []
    for text, tag in zip(texts, tags or [""] * len(texts), strict=True):
        check_waiting()
        document = (
            split_document(text, model.info.source) if options.should_split_texts else _make_single_sentence(text)
        )
        if not (options.prefix or options.require):  # otherwise the parts cannot be translated separately
            document = subdivide_document(document, divide)
        documents.append(translator.repeat_tags(document, tag))
    sentences = [sentence for document in documents for sentence in document.sentences]
    new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in known]
    known.update(zip(new, tokenizer.encode_all(new), strict=True))
    num_prefix = len(tokenizer.encode(options.prefix)) + 1 if options.prefix else 0
    if options.prefix or options.require:
        _check_lengths(sentences, known, max_tokens)
    encoded = [translator.encode_ids(sentence, known[sentence], fits) for sentence in sentences]
    return PreparedTexts(tuple(documents), tuple((one, one.num_tokens + num_prefix) for one in encoded))


def _check_lengths(sentences: Sequence[str], ids: Mapping[str, Sequence[int]], max_tokens: int) -> None:
    """Check that no sentence, which cannot be divided, holds up all others, and goes on when its client has left.

    Raises:
        UnsatisfiableError: one has `max_tokens` tokens or more, `</s>` not included.
    """
    for sentence in sentences:
        if len(ids[sentence]) >= max_tokens:
            raise UnsatisfiableError(
                f"the text {sentence!r:.80} has {len(ids[sentence]):,} tokens, of at most {max_tokens - 1:,} for "
                "constraints: split it, or leave out the required words and the prefix"
            )


def prepare_pairs(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[EncodedPair, int], ...]:
    """Encode pairs; returns each with the number of tokens of its longer side, `</s>` included.

    Raises:
        TooLongError: a side has more than `MAX_SCORED_TOKENS` tokens, or than the learned positions of the model.
    """
    decoder, tokenizer = model.translator.make_forced_decoder("scores"), model.translator.tokenizer
    encoded = encode_pairs(tokenizer, pairs)
    prepared = tuple((one, 1 + max(map(len, one))) for one in encoded)
    for number, ((source_ids, target_ids), num_tokens) in enumerate(prepared, start=1):
        if num_tokens > MAX_SCORED_TOKENS:
            raise TooLongError(
                f"pair {number} has {num_tokens:,} tokens on a side: this service scores at most "
                f"{MAX_SCORED_TOKENS:,}; split it into sentences"
            )
        # Found here, as batches are computed without the numbers that pairs have in their request.
        problem = decoder.find_problem(tokenizer.as_source(source_ids), tokenizer.as_target(target_ids))
        if problem is not None:
            raise TooLongError(f"pair {number}: {problem}")
    return prepared


def _make_single_sentence(text: str) -> Document:
    """Make a document with the text as its only sentence, or with none if it has no letters."""
    stripped = text.strip()
    if not has_letters(stripped):
        return Document((), (text,))
    start = text.index(stripped)
    return Document((stripped,), (text[:start], text[start + len(stripped) :]))
