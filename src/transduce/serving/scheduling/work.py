"""Work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from transduce.inspection import InspectedModel, InspectionRequest, inspect_text
from transduce.serving.errors import DeadlineExceeded, Unsatisfiable
from transduce.serving.models import LoadedModel
from transduce.serving.wishes import TranslationWish
from transduce.text import Document, rebuilt, segments, split_document, subdivided
from transduce.translation import Line, PairScore, align_lines, score_pairs
from transduce.translation.protection import How


@dataclass(frozen=True)
class Token:
    """A piece of a translation, as in "▁Hund", and its log-probability in nats."""

    piece: str
    log_probability: float


@dataclass(frozen=True)
class Word:
    """A word of a translation, and the probability, from 0 to 1, that it is right."""

    word: str
    confidence: float


@dataclass(frozen=True)
class ScoredText:
    """A translation.

    Args:
        text: it.
        score: log-probability in nats by length penalty, of a text the sum of its sentences'; None if unknown.
        utility: of a sentence, mean chrF against the other samples; None unless it was chosen among them by that.
    """

    text: str
    score: float | None
    utility: float | None = None


@dataclass(frozen=True)
class TranslatedSentence:
    """A sentence with its translations.

    Args:
        source: the sentence.
        translations: best first, at least one.
        tokens: of the best one, `</s>` included; none where it was put together otherwise, which `how` says.
        num_parts: above 1 where the sentence was too long for the model.
        how: how protected spans and terms were kept, if there were any to keep: see `ProtectedTranslation`.
        confidence: the chrF to expect, from 0 to 100; None unless the model is calibrated.
        words: of the best one, with their confidence; none unless the model is calibrated.
        alignment: words of both sides that translate each other, as in "0-0 2-1"; None unless asked for.
    """

    source: str
    translations: tuple[ScoredText, ...]
    tokens: tuple[Token, ...] = ()
    num_parts: int = 1
    how: How | None = None
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    alignment: str | None = None

    @property
    def translation(self) -> str:
        """The best."""
        return self.translations[0].text


@dataclass(frozen=True)
class TranslatedText:
    """A text with its translation, and whatever stood between its sentences as it was.

    Args:
        text: the translation.
        score: see `ScoredText`.
        alternatives: others, best first; the k-th is made of the k-th of each sentence.
        sentences: what was translated; none of a text that shows no letter or digit, which is its own translation.
    """

    text: str
    score: float | None
    alternatives: tuple[ScoredText, ...]
    sentences: tuple[TranslatedSentence, ...]

    @classmethod
    def of(cls, document: Document, sentences: tuple[TranslatedSentence, ...]) -> "TranslatedText":
        """Put together from the translations of the document's sentences."""
        depth = min((len(sentence.translations) for sentence in sentences), default=1)
        best, *others = (_ranked(document, sentences, rank) for rank in range(depth))
        return cls(best.text, best.score, tuple(others), sentences)


def _ranked(document: Document, sentences: tuple[TranslatedSentence, ...], rank: int) -> ScoredText:
    chosen = [sentence.translations[rank] for sentence in sentences]
    scores = [one.score for one in chosen if one.score is not None]
    score = math.fsum(scores) if len(scores) == len(chosen) else None
    return ScoredText(rebuilt(document, [one.text for one in chosen]), score)


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
    model: LoadedModel, texts: Sequence[str], wish: TranslationWish, is_over: Event | None = None
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
        document = split_document(text, model.languages.source) if wish.splits else _whole(text)
        documents.append(subdivided(document, turns.of) if divides else document)
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
        return segments(sentence, self._model.languages.source, self._fits)

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


@dataclass(frozen=True)
class Translating:
    """Sentences that one model translates with the same wish."""

    model: LoadedModel
    wish: TranslationWish
    takes_as_long_as_its_tokens: bool = True

    @property
    def width(self) -> int:
        """The beam, or the number of samples."""
        own = self.model.translator.search
        return int(self.wish.num_samples or self.wish.settings(own)["beam"])

    def compute(self, sentences: Sequence[str]) -> list[TranslatedSentence | Exception]:
        """The translation of each, or why there is none."""
        lines = self.model.line_translator(self.wish).translate(sentences)
        alignments = self._alignments(lines) if self.wish.align else {}
        return [
            Unsatisfiable(
                f"no translation of {line.source!r:.80} has what is asked for, or it is too long to be held to it"
            )
            if line.has_failed
            else self._answer(line, alignments.get(place))
            for place, line in enumerate(lines)
        ]

    def _answer(self, line: Line, alignment: str | None) -> TranslatedSentence:
        best = line.translation.alternatives[0]
        # Nobody has measured how sure what was put together of parts is.
        is_measured = best.pieces and line.translation.num_parts == 1
        confidence = self.model.confidence if is_measured else None
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

    def _alignments(self, lines: Sequence[Line]) -> dict[int, str]:
        """By number of the line; of those that the model reads as wholes."""
        found = align_lines(self.model.decoder("alignments"), lines, self.model.alignment_head)
        return {place: str(alignment) for place, alignment in enumerate(found) if alignment is not None}


@dataclass(frozen=True)
class Scoring:
    """Pairs of texts that one model scores."""

    model: LoadedModel
    width: int = 1
    takes_as_long_as_its_tokens: bool = False  # no search

    def compute(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """The score of each."""
        return score_pairs(self.model.decoder("scores"), pairs)


@dataclass(frozen=True)
class Inspecting:
    """A sentence that one model is watched at.

    Args:
        model: it.
        is_over: set once nobody waits for the document any more, so that no more is computed of it.
    """

    model: LoadedModel
    is_over: Event = field(default_factory=Event, compare=False)
    width: int = 1
    takes_as_long_as_its_tokens: bool = False

    def compute(self, requests: Sequence[InspectionRequest]) -> list[dict[str, Any]]:
        """The document of each."""
        known = self.model.languages
        about = InspectedModel(known.model, known.digest, self.model.confidence)
        return [inspect_text(self.model.translator, one, about, checkpoint=self._checkpoint) for one in requests]

    def _checkpoint(self) -> None:
        if self.is_over.is_set():
            raise DeadlineExceeded("nobody waits for this inspection any more")
