"""The history of a run, from which the checks decide, and what they find."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from transduce.config import RunConfig
from transduce.training.reporting.metrics import Line, select_lines


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a run, or no longer is."""

    name: str
    """Of the problem; the same in every run."""
    text: str
    """What is wrong, the most likely cause and the setting to change; or why it is over."""
    is_over: bool = False
    """Whether this is the end of an earlier finding of that name."""


@dataclass(frozen=True)
class RunHistory:
    """Configuration of a run, and the lines of its metrics.jsonl so far."""

    config: RunConfig
    lines: Sequence[Line]

    @cached_property
    def text(self) -> Line:
        """The `TextFigures` of the run; empty for a run that an earlier version began."""
        return next((line.get("text", {}) for line in self.lines if line["kind"] == "data"), {})

    @cached_property
    def source_uses(self) -> list[Line]:
        """Lines with the figures of `SourceUse`."""
        return select_lines(self.lines, "source_use")

    @cached_property
    def validations(self) -> list[Line]:
        """Lines of validations, without the averages at the end."""
        return select_lines(self.lines, "validation")

    @cached_property
    def training(self) -> list[Line]:
        """Lines of training."""
        return select_lines(self.lines, "training")

    def share_done(self, line: Line) -> float:
        """Share of the run that was done when `line` was written, by its updates or by its time limit."""
        training = self.config.training
        by_time: float = line.get("seconds", 0.0) / training.time_limit_seconds
        by_updates: float = line["update"] / training.updates
        return max(by_time, by_updates)


Check = Callable[[RunHistory], str | None]
"""A pure function: the text of a finding if a run has a problem, or if a problem is over; None otherwise."""


def relative_step(config: RunConfig) -> float:
    """The highest learning rate over the size of an initial weight, d_model^-0.5.

    Adam moves a weight by about the rate, so this is the share by which a weight changes in one update. It is 0.016 in
    the paper's base model and between 0.011 and 0.034 in all presets.
    """
    return peak_rate(config) * math.sqrt(config.model.d_model)


def peak_rate(config: RunConfig) -> float:
    """The highest learning rate of the schedule; for that of the paper (eq. 3), at the end of the warm-up."""
    training = config.training
    return training.learning_rate or 1 / math.sqrt(config.model.d_model * training.warmup)
