"""How fast training is going, and when it will end."""


class Pace:
    """Speed since the last line of metrics, and a little before."""

    def __init__(self) -> None:
        self._now, self._before = _Stretch(), _Stretch()
        self._validation_seconds = 0.0

    def count(self, num_tokens: int, seconds: float) -> None:
        """One more update."""
        self._now.num_tokens += num_tokens
        self._now.num_updates += 1
        self._now.seconds += seconds

    def validated(self, seconds: float) -> None:
        """One more validation."""
        self._validation_seconds = seconds

    def begin_line(self) -> None:
        """What was counted so far stands in a line of metrics."""
        self._now, self._before = _Stretch(), self._now

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens a second since the last line of metrics."""
        return self._now.num_tokens / self._now.seconds

    def seconds_to_go(self, num_updates: int, num_validations: int) -> float:
        """Until so many updates and validations are done; of the first validation, nobody knows how long it takes."""
        stretches = self._before, self._now
        seconds, updates = sum(one.seconds for one in stretches), sum(one.num_updates for one in stretches)
        return num_updates * seconds / updates + num_validations * self._validation_seconds


class _Stretch:
    """Updates one after the other."""

    def __init__(self) -> None:
        self.num_tokens, self.num_updates, self.seconds = 0, 0, 0.0
