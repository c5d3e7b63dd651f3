"""How fast training is going, and when it will end."""

VALIDATION_SHARE = 0.05
"""Part of the time that `validate_every = "auto"` spends on validation."""

FIRST_VALIDATION_SECONDS = 90.0
"""Of a run, at which `validate_every = "auto"` validates first: then there is a model to use."""


class Pace:
    """Speed since the last line of metrics, and a little before.

    Args:
        elapsed: seconds of the run so far, earlier sittings included.
    """

    def __init__(self, elapsed: float = 0.0) -> None:
        self._now, self._before = _Stretch(), _Stretch()
        self.validation_seconds = 0.0
        self._last_validation = elapsed

    def count(self, num_tokens: int, seconds: float) -> None:
        """One more update."""
        self._now.num_tokens += num_tokens
        self._now.num_updates += 1
        self._now.seconds += seconds

    def validated(self, seconds: float, elapsed: float) -> None:
        """One more validation, which took so many seconds and ended `elapsed` seconds after the run began."""
        self.validation_seconds = seconds
        self._last_validation = elapsed

    def begin_line(self) -> None:
        """What was counted so far stands in a line of metrics."""
        self._now, self._before = _Stretch(), self._now

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens a second since the last line of metrics."""
        return self._now.num_tokens / self._now.seconds

    @property
    def seconds_per_update(self) -> float:
        """Of late, 0 before the first update of this sitting; what happens between updates is not counted."""
        stretches = self._before, self._now
        return sum(one.seconds for one in stretches) / max(1, sum(one.num_updates for one in stretches))

    def validation_is_due(self, elapsed: float) -> bool:
        """Whether `validate_every = "auto"` validates now, `elapsed` seconds after the run began."""
        pause = max(FIRST_VALIDATION_SECONDS, self.validation_seconds / VALIDATION_SHARE)
        return elapsed - self._last_validation >= pause

    def seconds_to_go(self, num_updates: int, validate_every: int | str) -> float:
        """Until so many updates are done, with validations; of the first one, nobody knows how long it takes."""
        seconds = num_updates * self.seconds_per_update
        if validate_every == "auto":
            return seconds * (1 + VALIDATION_SHARE) + self.validation_seconds
        return seconds + num_updates // int(validate_every) * self.validation_seconds


class _Stretch:
    """Updates one after the other."""

    def __init__(self) -> None:
        self.num_tokens, self.num_updates, self.seconds = 0, 0, 0.0
