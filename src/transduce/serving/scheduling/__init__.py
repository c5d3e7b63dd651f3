"""Scheduling of concurrent requests in batches, and the limits of what one of them, and all together, may cost."""

from dataclasses import dataclass, fields

from transduce.config import SearchConfig
from transduce.errors import ConfigError, TooLong
from transduce.translation import TranslationOptions, make_safer_settings


@dataclass(frozen=True)
class Limits:
    """Bounds that are checked before anything is computed; each is above 0 unless it says otherwise.

    Args:
        max_characters: characters of all texts, phrases and terms of a request: a book of 80,000 words.
        max_texts: texts of a request, or pairs to be scored.
        max_terms: required and forbidden phrases, and terms of a glossary, of a request: searching takes longer with
            each.
        max_body_bytes: of a request's body, which is not read any further: the characters in UTF-8, and their JSON.
        max_queue_tokens: source tokens that wait, of all requests. A request may take half of what is left of them, so
            that there always is room for a short one.
        batch_tokens: source tokens, those of a sentence for each of its hypotheses, that are translated together on a
            core: with more, a batch takes longer, and is no more efficient.
        batch_seconds: approximate time that a batch may take, because the next requests wait for it.
        max_delay_milliseconds: how long a sentence waits, at most, for companions that are likely to come; may be 0.
        deadline_seconds: seconds from a request's arrival, after which the rest of it is not translated any more.
        max_alternatives: beside the best translation; may be 0. There are no more than `max_beam` holds.
        max_beam: hypotheses, or samples, of a sentence: time and memory grow with them.
        drain_seconds: for what was accepted, once the service is told to stop.
        reload_seconds: between two looks at the models' files.

    Raises:
        ConfigError: one of them is below what it may be.
    """

    max_characters: int = 500_000
    max_texts: int = 1_000
    max_terms: int = 100
    max_body_bytes: int = 4_000_000
    max_queue_tokens: int = 400_000
    batch_tokens: int = 4_096
    batch_seconds: float = 1.0
    max_delay_milliseconds: float = 20.0
    deadline_seconds: float = 60.0
    max_alternatives: int = 7
    max_beam: int = 16
    drain_seconds: float = 30.0
    reload_seconds: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_nothing = field.name in {"max_delay_milliseconds", "max_alternatives"}
            if value < 0 or (value == 0 and not may_be_nothing):
                raise ConfigError(f"{field.name} = {value}: must be {'at least' if may_be_nothing else 'above'} 0")

    @property
    def most_alternatives(self) -> int:
        """Alternatives that a request may ask for: those that a beam of `max_beam` holds beside the best."""
        return min(self.max_alternatives, int(self.max_beam) - 1)

    def check_options(self, options: TranslationOptions, search: SearchConfig | None = None) -> None:
        """Check that options ask for no more than a request may; `search` has the model's settings once they are known.

        Raises:
            ConfigError: the beam, the samples or the alternatives are too many.
            TooLong: there are too many phrases and terms.
        """
        for name, value, most in (
            ("num_best", options.num_best, self.most_alternatives + 1),
            ("beam", options.beam or 1, self.max_beam),
            ("num_samples", options.num_samples, self.max_beam),
        ):
            if value > most:
                raise ConfigError(f"{name} = {value}: this service allows up to {most}")
        if options.guard and search is not None and not options.num_samples:
            beam = make_safer_settings(search.with_overrides(options.widen_beam(search).search))["beam"]
            if beam > self.max_beam:
                raise ConfigError(
                    f"guard = true: tries again with a beam of {beam}, and this service allows up to "
                    f"{self.max_beam}: ask for a smaller beam"
                )
        num_terms = len(options.require) + len(options.forbid) + len(options.glossary)
        if num_terms > self.max_terms:
            raise TooLong(f"{num_terms} phrases and terms: this service allows up to {self.max_terms}")
