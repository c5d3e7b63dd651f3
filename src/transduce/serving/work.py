"""What is computed of many requests at a time: each kind of work says how."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from transduce.inspection import InspectedModel, InspectionRequest, inspect_text
from transduce.serving.answers import ScoredText, Token, TranslatedSentence, Word
from transduce.serving.models import LoadedModel
from transduce.serving.refusals import DeadlineExceeded, Unsatisfiable
from transduce.translation import Line, PairScore, TranslationOptions, align_lines, score_pairs


@dataclass(frozen=True)
class Translating:
    """Sentences that one model translates with the same wish."""

    model: LoadedModel
    wish: TranslationOptions
    takes_as_long_as_its_tokens: bool = True

    @property
    def width(self) -> int:
        """The beam, or the number of samples."""
        wish = self.wish.widen_beam(self.model.translator.search)
        return wish.num_samples or wish.beam or 1

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
