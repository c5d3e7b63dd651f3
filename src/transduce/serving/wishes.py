"""What a request wants, beside the text."""

from dataclasses import dataclass
from typing import Any

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search import Sampling
from transduce.serving.errors import TooLong
from transduce.serving.limits import Limits
from transduce.text import Glossary, Kind
from transduce.translation import SETTINGS_OF_A_WISH, LineOptions, TextConstraints, safer_settings


@dataclass(frozen=True)
class TranslationWish:
    """How texts are to be translated; equal wishes are granted together.

    Args:
        num_best: alternatives of each text, the best included.
        beam: hypotheses kept for each sentence; None, as the next six: the model's own, but enough for `num_best`.
        length_penalty: alpha in ((5 + n) / 6)^alpha, by which a hypothesis of n tokens is divided.
        min_length: fewest tokens of a sentence's translation, the end included.
        max_length: most tokens of a sentence's translation, the end included; 0 is no limit of its own.
        no_repeat_ngram: no sequence of so many tokens comes twice in a sentence; 0 allows it.
        repetition_penalty: what the log-probability of a token that is there already is multiplied by; 1 is none.
        diversity: nats that a continuation loses for each better one of the same hypothesis.
        prefix: how the translation of each text begins.
        require: phrases that the translation of each text contains exactly once.
        forbid: phrases that it does not contain.
        protect: kinds of spans that are kept as they are, as in "url"; see `transduce.text.Kind`.
        glossary: terms and how they must be translated.
        guard: whether translations that repeat themselves, copy the source, are empty or lose numbers are tried again.
        num_samples: instead of searching, draw so many translations of each sentence at random; 0: search.
        temperature: of the distribution that is drawn from; 1 is the model's, less keeps nearer to the most probable.
        top_k: draw from so many of the most probable tokens; 0 is all.
        top_p: draw from the most probable tokens whose probabilities add up to this.
        seed: of what is drawn.
        minimum_bayes_risk: whether samples are ranked by what they have in common.
        split_sentences: whether a text is translated sentence by sentence. With `prefix` or `require`, which are about
            the whole text, it never is.
        align: whether it is said which words translate each other.
    """

    num_best: int = 1
    beam: int | None = None
    length_penalty: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    no_repeat_ngram: int | None = None
    repetition_penalty: float | None = None
    diversity: float | None = None
    prefix: str = ""
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    protect: tuple[Kind, ...] = ()
    glossary: tuple[tuple[str, str], ...] = ()
    guard: bool = False
    num_samples: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    minimum_bayes_risk: bool = False
    split_sentences: bool = True
    align: bool = False

    @property
    def splits(self) -> bool:
        """Whether texts are translated sentence by sentence."""
        return self.split_sentences and not (self.prefix or self.require)

    def settings(self, search: SearchConfig) -> dict[str, Any]:
        """What is asked of the search, by its names in `SearchConfig`; `search` is the model's own."""
        found = {name: getattr(self, name) for name in SETTINGS_OF_A_WISH if getattr(self, name) is not None}
        if not self.num_samples:
            found.setdefault("beam", max(search.beam, self.num_best))
        return found

    def options(self, search: SearchConfig) -> LineOptions:
        """What is asked of the translation of every sentence; `search` is the model's own.

        Raises:
            ConfigError: parts of it exclude each other, or have values that they cannot have.
            UserError: a term of the glossary is blank.
        """
        sampling = Sampling(self.temperature, self.top_k, self.top_p)
        return LineOptions(
            num_best=self.num_best,
            constraints=TextConstraints.if_any(self.prefix, self.require, self.forbid),
            protected=self.protect or None,
            glossary=Glossary(dict(self.glossary)) if self.glossary else None,
            num_samples=self.num_samples,
            sampling=sampling if self.num_samples or sampling != Sampling() else None,
            seed=self.seed if self.num_samples or self.seed != 1 else None,
            minimum_bayes_risk=self.minimum_bayes_risk,
            guard=self.guard,
            search=self.settings(search),
        )

    def check(self, limits: Limits, search: SearchConfig | None = None) -> None:
        """That it is not more than a request may ask for.

        Args:
            limits: how much that is.
            search: the model's own settings, once it is known which model grants the wish.

        Raises:
            ConfigError: the beam, the samples or the alternatives are too many.
            TooLong: there are too many phrases and terms.
        """
        for name, value, most in (
            ("num_best", self.num_best, limits.most_alternatives + 1),
            ("beam", self.beam or 1, limits.max_beam),
            ("num_samples", self.num_samples, limits.max_beam),
        ):
            if value > most:
                raise ConfigError(f"{name} = {value}: this service allows up to {most}")
        if self.guard and search is not None and not self.num_samples:
            beam = safer_settings(search.changed(self.settings(search)))["beam"]
            if beam > limits.max_beam:
                raise ConfigError(
                    f"guard = true: tries again with a beam of {beam}, and this service allows up to "
                    f"{limits.max_beam}: ask for a smaller beam"
                )
        num_terms = len(self.require) + len(self.forbid) + len(self.glossary)
        if num_terms > limits.max_terms:
            raise TooLong(f"{num_terms} phrases and terms: this service allows up to {limits.max_terms}")

    @property
    def num_characters(self) -> int:
        """Of all that is asked for in words."""
        phrases = [self.prefix, *self.require, *self.forbid, *(word for term in self.glossary for word in term)]
        return sum(map(len, phrases))
