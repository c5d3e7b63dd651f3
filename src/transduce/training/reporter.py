"""What training tells whoever watches; how it looks is their business."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from transduce.training.step import UpdateFigures
from transduce.training.validation import Validation


@dataclass(frozen=True)
class Progress:
    """Where the run stands after an update.

    Args:
        update: updates done.
        updates: updates of the whole run.
        epochs: passes over the corpus so far, with the fraction of the current one.
        figures: of the last update.
        tokens_per_second: real target tokens a second of training, since the last line of metrics.
        eta_seconds: until the last update, validations among them, if it goes on as it has lately.
    """

    update: int
    updates: int
    epochs: float
    figures: UpdateFigures
    tokens_per_second: float
    eta_seconds: float


@runtime_checkable
class Reporter(Protocol):
    """A watcher."""

    def say(self, text: str) -> None:
        """Something worth a line."""

    def progress(self, progress: Progress) -> None:
        """One more update is done."""

    def validated(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """A validation is done."""


class SilentReporter:
    """Nobody watches."""

    def say(self, text: str) -> None:
        """Nothing."""

    def progress(self, progress: Progress) -> None:
        """Nothing."""

    def validated(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """Nothing."""
