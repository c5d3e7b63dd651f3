"""A run so far as the checks of its health see it, and what they find."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transduce.config import RunConfig

Line = Mapping[str, Any]
"""A line of metrics.jsonl."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a run, or no longer is.

    Args:
        name: of the illness; the same in every run.
        text: what is wrong, the most likely cause and the setting to change; or why it is over.
        is_over: whether this is the end of an earlier finding of that name.
    """

    name: str
    text: str
    is_over: bool = False


@dataclass(frozen=True)
class History:
    """A run so far.

    Args:
        config: its settings.
        lines: of its metrics.jsonl.
    """

    config: RunConfig
    lines: Sequence[Line]

    @cached_property
    def text(self) -> Line:
        """The `TextFigures` of the run; empty for one that an earlier version began."""
        return next((line.get("text", {}) for line in self.lines if line["kind"] == "data"), {})

    @cached_property
    def looks(self) -> list[Line]:
        """Lines with the figures of `SourceUse`, from the first to the latest."""
        return self._of_kind("source_use")

    @cached_property
    def validations(self) -> list[Line]:
        """Lines of validations, without the averages at the end."""
        return self._of_kind("validation")

    @cached_property
    def training(self) -> list[Line]:
        """Lines of training."""
        return self._of_kind("training")

    def share_done(self, line: Line) -> float:
        """How much of the run was done when `line` was written, from 0 to 1: by its updates, or by its time limit."""
        training = self.config.training
        by_time: float = line.get("seconds", 0.0) / training.time_limit_seconds
        by_updates: float = line["update"] / training.updates
        return max(by_time, by_updates)

    def _of_kind(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]


Check = Callable[[History], str | None]
"""What to say if a run is ill, or if an illness is over; nothing otherwise. A pure function."""


def relative_step(config: RunConfig) -> float:
    """The highest learning rate over the size of an initial weight, d_model^-0.5.

    Adam moves a weight by about the rate, so this is the share of itself by which a weight changes in one update. It is
    0.016 in the paper's base model and between 0.011 and 0.034 in all presets.
    """
    return peak_rate(config) * math.sqrt(config.model.d_model)


def peak_rate(config: RunConfig) -> float:
    """The highest learning rate of the schedule; for that of the paper (eq. 3), at the end of the warm-up."""
    training = config.training
    return training.learning_rate or 1 / math.sqrt(config.model.d_model * training.warmup)
