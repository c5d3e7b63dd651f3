"""What is asked of the translation of every line."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from transduce.config import Settings, first_problem
from transduce.errors import ConfigError, CorpusError
from transduce.search import Sampling
from transduce.text import Glossary, Kind
from transduce.translation.constraints.text_constraints import TextConstraints

SETTINGS_OF_A_WISH = (
    "beam",
    "length_penalty",
    "min_length",
    "max_length",
    "no_repeat_ngram",
    "repetition_penalty",
    "diversity",
)
"""Settings of the search that whoever wants a translation may ask for; the others are the model's affair."""

_NOT_FOR_SAMPLES = ("beam", "no_repeat_ngram", "repetition_penalty", "diversity")
"""Settings of the search that samples are not drawn with."""


@dataclass(frozen=True)
class LineOptions:
    """What is asked of the translation of every line.

    Args:
        num_best: alternatives for each line.
        constraints: what each translation must and must not contain; None: anything.
        protected: kinds of spans that are kept as they are, or None.
        glossary: terms that must be translated so, or None.
        num_samples: instead of searching, draw so many translations of each line; 0: search.
        sampling: what they are drawn from; None: the model's own distribution.
        seed: of what is drawn; None: 1.
        minimum_bayes_risk: whether samples are ranked by what they have in common (Eikema & Aziz 2020).
        guard: whether translations with a problem (see `guard.PROBLEMS`) are tried once more.
        search: settings in place of the translator's own, by their names in `SearchConfig`.

    Raises:
        ConfigError: some of them exclude each other.
    """

    num_best: int = 1
    constraints: TextConstraints | None = None
    protected: Collection[Kind] | None = None
    glossary: Glossary | None = None
    num_samples: int = 0
    sampling: Sampling | None = None
    seed: int | None = None
    minimum_bayes_risk: bool = False
    guard: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ways = {
            "samples": self.num_samples > 0,
            "protected spans or a glossary": self.keeps,
            "required words, forbidden words or a prefix": self.constraints is not None,
        }
        chosen = [name for name, is_chosen in ways.items() if is_chosen]
        if len(chosen) > 1:
            raise ConfigError(f"{chosen[0]} cannot be combined with {chosen[1]}: ask for one of them")
        if self.num_best < 1:
            raise ConfigError(f"num_best = {self.num_best}: must be at least 1")
        if self.keeps and self.num_best > 1:
            raise ConfigError(
                f"num_best = {self.num_best}: with protected spans or a glossary there is one translation"
            )
        if self.num_samples < 0:
            raise ConfigError(f"samples = {self.num_samples}: must be at least 1, or 0 to search")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed = {self.seed}: must not be negative")
        if self.num_samples:
            self._check_samples()
        else:
            self._check_search()

    def _check_samples(self) -> None:
        if self.guard:
            raise ConfigError("the guard searches again, and samples are not searched for: ask for one of them")
        if not 1 <= self.num_best <= self.num_samples:
            raise ConfigError(
                f"num_best = {self.num_best}: must be from 1 to the number of samples, {self.num_samples}"
            )
        for name in _NOT_FOR_SAMPLES:
            if name in self.search:
                raise ConfigError(f"{name} = {self.search[name]}: is for searching, not for samples; leave it out")

    def _check_search(self) -> None:
        if self.minimum_bayes_risk:
            raise ConfigError("minimum-Bayes-risk chooses among samples: say how many to draw")
        if self.sampling is not None:
            raise ConfigError("temperature, top_k and top_p are for samples: say how many to draw, or leave them out")
        if self.seed is not None:
            raise ConfigError(f"seed = {self.seed}: is for samples; say how many to draw, or leave it out")

    @property
    def keeps(self) -> bool:
        """Whether something of the source is to be kept."""
        return self.protected is not None or self.glossary is not None


def _is_one_line(text: str) -> str:
    if "".join(text.splitlines()) != text:
        raise ValueError("must be without line ends: give each line by itself")
    return text


class AskedLine(Settings):
    """A text to be translated, and what its translation must and must not contain."""

    text: Annotated[str, AfterValidator(_is_one_line)]
    """One line; may be blank."""

    require: list[str] = Field(default_factory=list)
    """Phrases that the translation contains exactly once, or as often as they are given."""

    forbid: list[str] = Field(default_factory=list)
    """Phrases that it does not contain."""

    prefix: str = ""
    """How it begins."""

    @classmethod
    def read(cls, line: str, number: int, name: str) -> "AskedLine":
        """The text and the wishes in a line, a JSON object.

        Args:
            line: of a file.
            number: of the line, from 1.
            name: what errors call the file.

        Raises:
            CorpusError: it is no JSON object with a "text", has an unknown key or a value of a wrong type, or a phrase
                that shows nothing or has a line end; names the line.
        """
        try:
            found = cls.model_validate_json(line)
            _ = found.constraints
        except ValidationError as error:
            problem = first_problem(error).removeprefix("it: ")
            raise CorpusError(
                f"{name}, line {number}: {problem}; give a JSON object with the key text, and if wanted "
                f"require, forbid (lists of phrases) and prefix"
            ) from None
        except ConfigError as error:
            raise CorpusError(f"{name}, line {number}: {error}") from None
        return found

    @property
    def constraints(self) -> TextConstraints | None:
        """What is asked of the translation; None if nothing is.

        Raises:
            ConfigError: a phrase shows nothing, or has a line end.
        """
        return TextConstraints.if_any(self.prefix, self.require, self.forbid)
