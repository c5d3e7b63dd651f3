"""What is computed of many requests at a time: each kind of work says how."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transduce.inspection import InspectedModel, InspectionRequest, inspect_text
from transduce.serving.answers import ScoredText, Token, TranslatedSentence, Word
from transduce.serving.models import LoadedModel
from transduce.serving.refusals import Unsatisfiable
from transduce.serving.wishes import TranslationWish
from transduce.translation import Line, PairScore, align_pairs, score_pairs


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
        # Nobody has measured how sure what was put together is.
        confidence = self.model.confidence if best.pieces else None
        words = [] if confidence is None else confidence.words(best.pieces, best.token_scores)
        return TranslatedSentence(
            source=line.source,
            translations=tuple(
                ScoredText(one.text, one.score if line.how is None else None) for one in line.translation.alternatives
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
        places = [place for place, line in enumerate(lines) if line.translation.num_parts == 1 and not line.has_failed]
        pairs = [(lines[place].source, lines[place].translation.text) for place in places]
        found = align_pairs(self.model.decoder("alignments"), pairs, self.model.alignment_head)
        return dict(zip(places, map(str, found), strict=True))


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
    """Sentences that one model is watched at, one at a time."""

    model: LoadedModel
    width: int = 1
    takes_as_long_as_its_tokens: bool = False

    def compute(self, requests: Sequence[InspectionRequest]) -> list[dict[str, Any]]:
        """The document of each."""
        known = self.model.languages
        about = InspectedModel(known.model, known.digest, self.model.confidence)
        return [inspect_text(self.model.translator, request, about) for request in requests]
