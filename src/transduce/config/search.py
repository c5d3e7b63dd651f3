"""How a translation is looked for."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError, model_validator

from transduce.config.settings import Section, setting_problem
from transduce.errors import ConfigError


class SearchConfig(Section):
    """The defaults are the paper's (section 6.1)."""

    beam: int = Field(default=4, ge=1)
    """Hypotheses kept for each sentence; 1 is greedy search."""

    length_penalty: float = Field(default=0.6, ge=0.0, le=10.0)
    """Alpha in ((5 + n) / 6)^alpha, by which a hypothesis of n tokens has its log-probability divided
    (Wu et al. 2016, eq. 14)."""

    max_extra_length: int = Field(default=50, ge=1)
    """A translation has at most this many tokens more than its source."""

    min_length: int = Field(default=1, ge=1)
    """A translation has at least this many tokens, `</s>` included; one whose source allows less has what it allows."""

    max_length: int = Field(default=0, ge=0)
    """A translation has at most this many tokens, `</s>` included, 2 or more. 0: no limit but that by its source."""

    no_repeat_ngram: int = Field(default=0, ge=0)
    """Tokens of the shortest sequence that no translation contains twice (Paulus et al. 2018). 0: any may repeat."""

    repetition_penalty: float = Field(default=1.0, ge=1.0, le=100.0)
    """What the log-probability of a token that is there already is multiplied by when hypotheses are compared (after
    Keskar et al. 2019). 1: none."""

    diversity: float = Field(default=0.0, ge=0.0)
    """What a continuation loses for each better one of the same hypothesis when hypotheses are compared, in nats, so
    that alternatives differ more (Li et al. 2016). 0: none."""

    max_pieces: int = Field(default=256, ge=8)
    """A source line of more pieces than this is translated sentence by sentence, or in smaller parts if need be. A
    trained model's own limit is never above the longest source it was trained on."""

    batch_tokens: int = Field(default=4096, ge=1)
    """Most source tokens, padding included, translated at a time."""

    def most_tokens(self, source: int, required: int = 0) -> int:
        """Of the translation of so many source tokens, `</s>` included in both.

        `required` tokens, of a prefix for instance, come on top of what the model has to say.
        """
        most = source + self.max_extra_length + required
        return min(most, self.max_length) if self.max_length else most

    def changed(self, settings: Mapping[str, Any]) -> "SearchConfig":
        """The same with other settings, by their names.

        Raises:
            ConfigError: a setting is unknown, has a value that it cannot have, or contradicts another.
        """
        unknown = settings.keys() - SearchConfig.model_fields.keys()
        if unknown:
            names = ", ".join(SearchConfig.model_fields)
            raise ConfigError(f"{min(unknown)} is no setting of the search; it has {names}")
        try:
            found = SearchConfig.model_validate({**dict(self), **settings})
        except ValidationError as error:
            raise ConfigError(setting_problem(error)) from None
        most = found.most_tokens(found.max_pieces + 1)
        if "min_length" in settings and found.min_length > most:
            raise ConfigError(
                f"min_length = {found.min_length}: must be at most {most}, what the longest source that is read at a "
                f"time allows (max_pieces + 1 + max_extra_length)"
            )
        return found

    @model_validator(mode="after")
    def _check_lengths(self) -> "SearchConfig":
        if self.max_length == 1:
            raise ValueError("max_length = 1 leaves no room beside `</s>`: allow at least 2, or 0 for no limit")
        if 0 < self.max_length < self.min_length:
            raise ValueError(
                f"min_length = {self.min_length} is above max_length = {self.max_length}: change one of them"
            )
        return self
