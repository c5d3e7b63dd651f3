"""How fast training is going."""


class Pace:
    """Speed since it was made."""

    def __init__(self) -> None:
        self.num_tokens, self.num_updates, self.seconds = 0, 0, 0.0

    def count(self, num_tokens: int, seconds: float) -> None:
        """One more update."""
        self.num_tokens, self.num_updates, self.seconds = (
            self.num_tokens + num_tokens,
            self.num_updates + 1,
            self.seconds + seconds,
        )

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens a second."""
        return self.num_tokens / self.seconds

    @property
    def seconds_per_update(self) -> float:
        """Mean duration of an update."""
        return self.seconds / self.num_updates
