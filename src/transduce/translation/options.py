"""The options of a translation, and its result for programs: sentences, alternatives, words, tokens."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from transduce.config import SearchConfig, Settings, describe_file_error, describe_setting_error
from transduce.errors import ConfigError, CorpusError
from transduce.search import Sampling
from transduce.text import SpanKind
from transduce.text.corpus import is_one_line
from transduce.text.json_objects import RepeatedKeyError, make_object
from transduce.translation.constraints import TextConstraints

SEARCH_OPTIONS = (
    "beam",
    "length_penalty",
    "min_length",
    "max_length",
    "no_repeat_ngram",
    "repetition_penalty",
    "diversity",
)
"""Options that override the model's `SearchConfig`."""

_BEAM_SEARCH_OPTIONS = ("beam", "no_repeat_ngram", "repetition_penalty", "diversity")
"""The options of `SEARCH_OPTIONS` that have no effect on sampling."""

MAX_RANKED_SAMPLES = 1000
"""Maximum number of samples that are ranked by minimum Bayes risk: time and memory grow with its square."""

_T = TypeVar("_T")
_List = Annotated[list[_T], Field(strict=False, fail_fast=True)]
"""Any sequence; validation stops at the first invalid item."""

Phrase = Annotated[str, Field(min_length=1, pattern=r"\S")]


class TranslationOptions(Settings):
    """Options of the translation of texts; texts with equal options are translated together."""

    num_best: int = Field(default=1, ge=1)
    """Translations of each text, the best included. The search for several goes on longer: with the same beam, its best
    scores at least as high as that of the search for one, and may be another."""

    beam: int | None = Field(default=None, ge=1)
    """Hypotheses kept for each sentence; 1 is greedy. As for all search settings, the default is the model's."""

    length_penalty: float | None = Field(default=None, ge=0, le=10)
    """Alpha: the log-probability of n tokens is divided by ((5 + n) / 6)^alpha (Wu et al. 2016, eq. 14)."""

    min_length: int | None = Field(default=None, ge=1)
    """Minimum number of tokens of a sentence's translation, the end included."""

    max_length: int | None = Field(default=None, ge=0)
    """Maximum number of tokens of a sentence's translation, the end included."""

    no_repeat_ngram: int | None = Field(default=None, ge=0, le=100)
    """Forbid repeating any n-gram of this length in a sentence; 0: off."""

    repetition_penalty: float | None = Field(default=None, ge=1, le=100)
    """Factor for the log-probability of a token that already occurs in the hypothesis; 1: off."""

    diversity: float | None = Field(default=None, ge=0, le=100)
    """Penalty in nats that makes alternatives differ more: of the continuations of one hypothesis, the one ranked k
    (from 0) loses k · diversity."""

    prefix: str = ""
    """How the translation of each text begins; a space at its end ends the word before it."""

    require: _List[Phrase] = Field(default=[])
    """Words or phrases that the translation of each text contains exactly once."""

    forbid: _List[Phrase] = Field(default=[])
    """Words or phrases that no translation contains."""

    protect: _List[SpanKind] = Field(default=[])
    """Kinds of spans that are kept unchanged."""

    glossary: dict[Phrase, Phrase] = Field(default={}, examples=[{"bike": "Rad"}])
    """Source terms and their required translations."""

    guard: bool = False
    """Retry translations that look faulty: repetition, copied source, empty, lost numbers, too short or too long."""

    num_samples: int = Field(default=0, ge=0)
    """Number of translations of each sentence to draw at random instead of searching, 0: search; they stay in the order
    in which they were drawn, unless minimum Bayes risk ranks them."""

    temperature: float = Field(default=1.0, gt=0, le=100)
    """Temperature of sampling; 1 is the model's own distribution, lower values favour the most probable tokens."""

    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Number of most probable tokens to draw from; 0: all."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw from the most probable tokens whose probabilities add up to this."""

    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of the random numbers for sampling."""

    minimum_bayes_risk: bool = False
    """Rank samples by their mean chrF against each other (minimum Bayes risk, Eikema & Aziz 2020); at most 1,000, and
    32 to 128 are usual, as the time grows with the square of their number."""

    split_sentences: bool = True
    """Whether a text is translated sentence by sentence; never with `prefix` or `require`."""

    align: bool = False
    """Whether word alignments are returned."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> "TranslationOptions":
        """The options with these values, by their names."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_describe_wrong_phrase(error) or describe_setting_error(error)) from None

    @property
    def search(self) -> dict[str, Any]:
        """The given options that override the model's search settings."""
        return {name: getattr(self, name) for name in SEARCH_OPTIONS if getattr(self, name) is not None}

    @property
    def sampling(self) -> Sampling:
        """The distribution that samples are drawn from."""
        return Sampling(self.temperature, self.top_k, self.top_p)

    @property
    def constraints(self) -> TextConstraints | None:
        """The constraints of every translation; None if there are none."""
        found = TextConstraints(self.prefix, tuple(self.require), forbidden=tuple(self.forbid))
        return found if found != TextConstraints() else None

    @property
    def has_protected_text(self) -> bool:
        """Whether spans of the source are kept unchanged, or its terms translated as in the glossary."""
        return bool(self.protect or self.glossary)

    @property
    def should_split_texts(self) -> bool:
        """Whether texts are translated sentence by sentence: not with constraints that concern the whole text."""
        return self.split_sentences and not (self.prefix or self.require)

    def widen_beam(self, search: SearchConfig) -> "TranslationOptions":
        """The options with a beam that holds `num_best` hypotheses, unless a beam is given or samples are drawn."""
        if self.num_samples or self.beam is not None:
            return self
        return self.model_copy(update={"beam": max(search.beam, self.num_best)})

    def check(self) -> None:
        """Check that the options can be combined.

        Raises:
            ConfigError: two of them exclude each other.
        """
        ways = {
            "samples": self.num_samples > 0,
            "protected spans or a glossary": self.has_protected_text,
            "required words, forbidden words or a prefix": self.constraints is not None,
        }
        given = [name for name, is_chosen in ways.items() if is_chosen]
        if len(given) > 1:
            raise ConfigError(f"{given[0]} cannot be combined with {given[1]}: use one of them")
        if self.has_protected_text and self.num_best > 1:
            raise ConfigError(
                f"num_best = {self.num_best}: with protected spans or a glossary there is one translation"
            )
        if self.num_samples:
            self._check_sampling()
        elif self.minimum_bayes_risk:
            raise ConfigError("minimum Bayes risk ranks samples: set `num_samples`")
        elif self.sampling != Sampling():
            raise ConfigError(
                "`temperature`, `top_k` and `top_p` apply to sampling: set `num_samples`, or leave them out"
            )
        elif self.seed != 1:
            raise ConfigError(f"seed = {self.seed}: applies to sampling: set `num_samples`, or leave it out")

    def check_for_document(self) -> None:
        """Check that the one translation of a document is not the first of several samples, which is not the best.

        Raises:
            ConfigError: it is.
        """
        if self.num_samples > 1 and not self.minimum_bayes_risk:
            raise ConfigError(
                f"num_samples = {self.num_samples}: a document has one translation: choose it from the samples by "
                "`minimum_bayes_risk`, or draw 1"
            )

    def _check_sampling(self) -> None:
        if self.guard:
            raise ConfigError(
                "the guard retries with beam search and cannot be combined with sampling: use one of them"
            )
        if self.minimum_bayes_risk and self.num_samples > MAX_RANKED_SAMPLES:
            raise ConfigError(
                f"num_samples = {self.num_samples}: must be at most {MAX_RANKED_SAMPLES} for minimum Bayes risk, which "
                "compares each two of them"
            )
        if self.num_best > self.num_samples:
            raise ConfigError(
                f"num_best = {self.num_best}: must be from 1 to the number of samples, {self.num_samples}"
            )
        for name in _BEAM_SEARCH_OPTIONS:
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} = {getattr(self, name)}: applies to beam search, not to sampling; leave it out"
                )


def _describe_wrong_phrase(error: ValidationError) -> str | None:
    """The message of `TextConstraints` for a phrase that is blank or not UTF-8; None if `error` is another."""
    first = error.errors(include_url=False)[0]
    if first["loc"][:1] not in {("require",), ("forbid",)}:
        return None
    if first["type"] == "string_unicode":
        return f"{first['loc'][0]} {first['input']!r}: must be UTF-8; correct it, or leave it out"
    if first["type"].startswith("string_") and "ctx" in first:
        return f"{first['loc'][0]} {first['input']!r}: must not be blank; give a word or phrase, or leave it out"
    return None


def _check_is_one_line(text: str) -> str:
    if not is_one_line(text):
        raise ValueError("must not contain line ends: give each line separately")
    return text


class InputLine(TranslationOptions):
    """A text to be translated, with its own `require`, `forbid` and `prefix`."""

    text: Annotated[str, AfterValidator(_check_is_one_line)]
    """One line; may be blank."""

    @classmethod
    def read(cls, line: str, number: int, name: str) -> "InputLine":
        """The text and options in a line, a JSON object; errors give its number in the file, which they call `name`.

        Raises:
            CorpusError: the line is not a JSON object with a "text", has an unknown key, a key twice or a value of a
                wrong type, or a phrase that is blank or contains a line end.
        """
        problem = None
        try:
            found = cls.model_validate_json(line)
            json.loads(line, object_pairs_hook=make_object)
            others = sorted(found.model_fields_set - {"text", "require", "forbid", "prefix"})
            if not others:
                _ = found.constraints
                return found
            problem = f"{others[0]}: Input should be left out: options are those of all lines"
        except ValidationError as error:
            wrong_phrase = _describe_wrong_phrase(error)
            if wrong_phrase is not None:
                raise CorpusError(f"{name}, line {number}: {wrong_phrase}") from None
            problem = describe_file_error(error).removeprefix("it: ")
        except (ConfigError, RepeatedKeyError) as error:
            raise CorpusError(f"{name}, line {number}: {error}") from None
        raise CorpusError(
            f"{name}, line {number}: {problem}; give a JSON object with the key text, and if wanted "
            f"require, forbid (lists of phrases) and prefix"
        )


ProtectionMethod = Literal["free", "constrained", "in parts", "copied"]
"""How spans and terms were kept: by an unconstrained search, or with constraints; by translating parts of the sentence;
or by copying the source."""


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
    """The word as spelled in the translation."""

    confidence: float
    """The probability, from 0 to 1, that it is right."""


@dataclass(frozen=True)
class ScoredText(DescribedFields):
    """One of several translations."""

    text: str
    """The translation."""

    score: float | None
    """Sum of its sentences' log-probabilities, each divided by its length penalty; null where spans or terms were kept
    by translating the text between them by itself, or copying it."""

    utility: float | None
    """Mean chrF of a sentence against the other samples, from 0 to 100; null unless chosen by minimum Bayes risk."""


@dataclass(frozen=True)
class TranslatedSentence(DescribedFields):
    """A sentence of a text."""

    source: str
    """The sentence."""

    translations: tuple[ScoredText, ...]
    """Translations, best first; samples in the order in which they were drawn, unless minimum Bayes risk ranks them."""

    tokens: tuple[Token, ...]
    """Pieces of the first translation; none where spans or terms were kept by translating the text between them by
    itself, or copying it."""

    num_parts: int
    """Parts that the sentence was divided into; above 1 if it is longer than the model reads at once."""

    how: ProtectionMethod | None
    """How spans and terms were kept: "free", "constrained", "in parts" or "copied"; null if there was nothing to
    keep."""

    confidence: float | None
    """Expected chrF, from 0 to 100; null unless the model is calibrated."""

    words: tuple[Word, ...]
    """Words of the first translation; none unless the model is calibrated."""

    alignment: str | None
    """Words of both sides that translate each other, as in "0-0 2-1"; null unless asked for."""

    def as_json(self) -> dict[str, Any]:
        """The object of the line, as `transduce translate --json` prints it."""
        first, *others = (
            {"translation": one.text, "score": one.score, **({} if one.utility is None else {"utility": one.utility})}
            for one in self.translations
        )
        known: dict[str, Any] = {"kept": self.how, "alignment": self.alignment, "confidence": self.confidence}
        if self.confidence is not None:
            known["words"] = [asdict(word) for word in self.words]
        return {
            "source": self.source,
            **first,
            "parts": self.num_parts,
            "tokens": [asdict(token) for token in self.tokens],
            "alternatives": others,
            **{name: value for name, value in known.items() if value is not None},
        }
