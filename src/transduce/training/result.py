"""What is left to say when a run has ended."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Args:
        folder: of the run; `folder/best` is the model to use.
        updates: done in all.
        seconds: of training in all, over all sittings; without validation.
        best: the best figure of validation, in terms of `training.best_by` (for "loss", its negative).
    """

    folder: Path
    updates: int
    seconds: float
    best: float
