"""What may be asked of `/v1/translate` and `/v1/score`."""

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from transduce.config import Settings
from transduce.serving.wishes import TranslationWish
from transduce.text import Kind

Phrase = Annotated[str, Field(min_length=1, pattern=r"\S")]
_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""Of which the first wrong item is an error, and not each of a million."""


class TranslateRequest(Settings):
    """Texts, their languages, and how they are to be translated; all but the texts may be left out."""

    text: str | _List[str] = Field(examples=["A man is riding a bike. It is late."])
    """A text, or a list of them: sentences, documents, anything."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null or "auto": each text's is detected, unless only one can be translated."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; null: the only one that there is for the source."""

    format: Literal["text", "html", "xml"] = "text"
    """Of markup, the text is translated, and tags are kept where the words are that they mark."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """For the whole request: what is not done by then is given up; null: as long as this service allows."""

    num_best: int = Field(default=1, ge=1)
    """Translations of each text, the best included."""

    beam: int | None = Field(default=None, ge=1)
    """Hypotheses kept for each sentence; null, here and in the next six: the model's own."""

    length_penalty: float | None = Field(default=None, ge=0, le=10)
    """Alpha in ((5 + n) / 6)^alpha, by which a hypothesis of n tokens is divided (Wu et al. 2016, eq. 14)."""

    min_length: int | None = Field(default=None, ge=1, le=50)
    """Fewest tokens of a sentence's translation, the end included."""

    max_length: int | None = Field(default=None, ge=2, le=10_000)
    """Most tokens of a sentence's translation, the end included."""

    no_repeat_ngram: int | None = Field(default=None, ge=0, le=100)
    """No sequence of so many tokens comes twice in a sentence; 0 allows it."""

    repetition_penalty: float | None = Field(default=None, ge=1, le=100)
    """What the log-probability of a token that is there already is multiplied by; 1 is none."""

    diversity: float | None = Field(default=None, ge=0, le=100)
    """Nats that a continuation loses for each better one of the same hypothesis, so that alternatives differ more."""

    prefix: str = ""
    """How the translation of each text begins."""

    require: _List[Phrase] = Field(default=[])
    """Phrases that the translation of each text contains exactly once."""

    forbid: _List[Phrase] = Field(default=[])
    """Phrases that it does not contain."""

    protect: _List[Kind] = Field(default=[])
    """Kinds of spans that are kept as they are."""

    glossary: dict[Phrase, Phrase] = Field(default={}, examples=[{"bike": "Rad"}])
    """Terms, and how they must be translated."""

    guard: bool = False
    """Whether translations that repeat themselves, copy the source, are empty or lose numbers are tried again."""

    num_samples: int = Field(default=0, ge=0)
    """Instead of searching, draw so many translations of each sentence at random; 0: search."""

    temperature: float = Field(default=1.0, gt=0, le=100)
    """Of the distribution that is drawn from; 1 is the model's, less keeps nearer to the most probable."""

    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Draw from so many of the most probable tokens; 0: all."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw from the most probable tokens whose probabilities add up to this."""

    seed: int = Field(default=1, ge=0, lt=2**63)
    """Of what is drawn."""

    minimum_bayes_risk: bool = False
    """Whether samples are ranked by what they have in common (Eikema & Aziz 2020)."""

    split_sentences: bool = True
    """Whether a text is translated sentence by sentence; never with `prefix` or `require`."""

    align: bool = False
    """Whether it is said which words translate each other."""

    def wish(self) -> TranslationWish:
        """How texts are to be translated, as the service takes it."""
        about_texts = {"text", "source", "target", "format", "deadline_seconds", "glossary"}
        values = self.model_dump(exclude=about_texts)
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return TranslationWish(**values | lists, glossary=tuple(self.glossary.items()))


class Pair(Settings):
    """A text, and what may be its translation."""

    text: str = Field(examples=["A man is riding a bike."])
    """The source."""

    translation: str = Field(examples=["Ein Mann fährt Fahrrad."])
    """The target."""


class ScoreRequest(Settings):
    """Pairs to be scored."""

    pairs: _List[Pair]
    """Each is scored by itself."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null: the only one that there is."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; likewise."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """For the whole request; null: as long as this service allows."""
