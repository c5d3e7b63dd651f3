"""What programs are told of a translation, as JSON: its sentences, alternatives, words and tokens."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

ProtectionMethod = Literal["free", "constrained", "in parts", "copied"]
"""How spans and terms were kept: by a search for nothing in particular, or with constraints; in parts of the sentence;
or in the source, which stays as it is."""


class DescribedFields:
    """Base of dataclasses that programs read as JSON: OpenAPI describes each field by the docstring below it."""

    __pydantic_config__: ClassVar = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True)
class Token(DescribedFields):
    """A piece of a translation."""

    piece: Annotated[str, Field(examples=["▁Mann"])]
    """Piece as the tokenizer spells it; `</s>` at the end."""

    log_probability: float
    """Log-probability after the pieces before it, in nats."""


@dataclass(frozen=True)
class Word(DescribedFields):
    """A word of a translation."""

    word: str
    """The word as it stands in the translation."""

    confidence: float
    """The probability, from 0 to 1, that it is right."""


@dataclass(frozen=True)
class ScoredText(DescribedFields):
    """One of several translations."""

    text: str
    """The translation."""

    score: float | None
    """Sum of its sentences' log-probabilities, each divided by its length penalty; null if it was joined from parts."""

    utility: float | None
    """Mean chrF of a sentence against the other samples, from 0 to 100; null unless chosen by minimum Bayes risk."""


@dataclass(frozen=True)
class TranslatedSentence(DescribedFields):
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

    def as_json(self) -> dict[str, Any]:
        """The object of the line, as `transduce translate --json` prints it."""
        best, *others = (
            {"translation": one.text, "score": one.score, **({} if one.utility is None else {"utility": one.utility})}
            for one in self.translations
        )
        known: dict[str, Any] = {"kept": self.how, "alignment": self.alignment, "confidence": self.confidence}
        if self.confidence is not None:
            known["words"] = [asdict(word) for word in self.words]
        return {
            "source": self.source,
            **best,
            "parts": self.num_parts,
            "tokens": [asdict(token) for token in self.tokens],
            "alternatives": others,
            **{name: value for name, value in known.items() if value is not None},
        }
