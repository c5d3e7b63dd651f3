"""What a request gets."""

import math
from dataclasses import dataclass

from transduce.text import Document, rebuild_document
from transduce.translation.constraints.protection import ProtectionMethod


@dataclass(frozen=True)
class LanguagePair:
    """What a loaded model translates.

    Args:
        source: language code of the text that goes in.
        target: language code of the text that comes out.
        model: the model's name, which is its folder's.
        engine: what computes it, as in "native".
        precision: of the arithmetic, as it was asked for.
        digest: SHA-256 of the weights; None for what was exported to another engine.
        num_parameters: of the network; None where another engine has it.
        max_pieces: pieces that are read at a time; longer sentences are translated in parts.
        beam: hypotheses of a sentence, unless asked otherwise.
    """

    source: str
    target: str
    model: str
    engine: str
    precision: str
    digest: str | None
    num_parameters: int | None
    max_pieces: int
    beam: int


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
    how: ProtectionMethod | None = None
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
    return ScoredText(rebuild_document(document, [one.text for one in chosen]), score)
