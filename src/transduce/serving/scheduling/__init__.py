"""Scheduling of concurrent requests in batches, and limits on single requests and on all together."""

from dataclasses import dataclass, fields
from math import isfinite

from transduce.config import SearchConfig
from transduce.errors import ConfigError, TooLongError
from transduce.translation import TranslationOptions, make_safer_settings


@dataclass(frozen=True)
class Limits:
    """Limits that are checked before a request is computed; each must be above 0 unless stated otherwise.

    Args:
        max_characters: maximum number of characters of all texts, phrases and terms of a request; the default is about
            80,000 words.
        max_texts: maximum number of texts, or of pairs to be scored, in a request.
        max_terms: maximum number of required and forbidden phrases and glossary terms sent with a request; each slows
            the search down.
        max_body_bytes: maximum size of a request body in bytes.
        max_queue_tokens: maximum number of source tokens in the queue. A request may use half of the free space, so
            that there is always room for a short one.
        batch_tokens: maximum number of source tokens, times hypotheses, in a batch on one core; larger batches take
            longer and are not more efficient.
        batch_seconds: target for the maximum time of a batch in seconds, for which the next requests wait.
        max_delay_milliseconds: maximum time a sentence waits to be batched with others; may be 0.
        deadline_seconds: maximum time from a request's arrival to its response, after which it fails.
        max_alternatives: maximum number of alternatives to the best translation; may be 0. Limited by `max_beam` as
            well.
        max_beam: maximum number of hypotheses or samples per sentence; time and memory grow with it.
        drain_seconds: grace period for accepted requests after SIGTERM, in seconds.
        max_files_bytes: maximum total size in bytes of documents that are being translated or wait to be downloaded;
            one API key, or one address if none is needed, may use half of it.
        file_seconds: time for which a translated document can be downloaded, in seconds.
        max_glossaries: maximum number of glossaries that are kept for an API key, or for all clients if none is needed.
        max_glossary_bytes: maximum size of the terms of a glossary in bytes. Such a glossary may have more than
            `max_terms` terms, as only those that occur in a text are searched for.
        max_suggestion_bytes: maximum total size in bytes of the suggested translations that are kept.
        reload_seconds: interval between checks for changed model files, in seconds.

    Raises:
        ConfigError: a limit is below its minimum, or not finite.
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
    max_files_bytes: int = 100_000_000
    file_seconds: float = 1_800.0
    max_glossaries: int = 100
    max_glossary_bytes: int = 1_000_000
    max_suggestion_bytes: int = 100_000_000
    reload_seconds: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_nothing = field.name in {"max_delay_milliseconds", "max_alternatives"}
            if isinstance(value, float) and not isfinite(value):
                raise ConfigError(f"{field.name} = {value}: must be a finite number; give a large one for no limit")
            if value < 0 or (value == 0 and not may_be_nothing):
                raise ConfigError(f"{field.name} = {value}: must be {'at least' if may_be_nothing else 'above'} 0")

    @property
    def max_alternatives_within_beam(self) -> int:
        """Maximum number of alternatives in a request, also limited by a beam of `max_beam`."""
        return min(self.max_alternatives, int(self.max_beam) - 1)

    def check_options(self, options: TranslationOptions, search: SearchConfig | None = None) -> None:
        """Check that options are within the limits of a request; `search` has the model's settings once they are known.

        Raises:
            ConfigError: there are too many hypotheses, samples or alternatives.
            TooLongError: there are too many phrases and terms.
        """
        for name, value, maximum in (
            ("num_best", options.num_best, self.max_alternatives_within_beam + 1),
            ("beam", options.beam or 1, self.max_beam),
            ("num_samples", options.num_samples, self.max_beam),
        ):
            if value > maximum:
                raise ConfigError(f"{name} = {value}: this service allows at most {maximum}")
        if options.guard and search is not None and not options.num_samples:
            beam = make_safer_settings(search.with_overrides(options.widen_beam(search).search))["beam"]
            if beam > self.max_beam:
                raise ConfigError(
                    f"guard = true: retries with a beam of {beam}, and this service allows at most {self.max_beam}: "
                    "use a smaller beam"
                )
        self.check_num_terms(len(options.require) + len(options.forbid) + len(options.glossary))

    def check_num_terms(self, num_terms: int) -> None:
        """Check the number of phrases and glossary terms sent with a request.

        Raises:
            TooLongError: there are too many.
        """
        if num_terms > self.max_terms:
            raise TooLongError(
                f"{num_terms:,} phrases and terms: this service allows at most {self.max_terms:,} per request; leave "
                "some out"
            )
