"""Learning curves of trained variants: the training loss over updates and over time."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from transduce.lab.conclusion import Chart
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Value, keep_finite
from transduce.pages import Series
from transduce.training import MetricsLog
from transduce.training.reporting import select_lines

NUM_POINTS = 10
"""Points of a curve, at equal distances over the updates of a run."""


def train_with_curve(
    laboratory: Laboratory, settings: Mapping[str, Value], updates: int, seed: int, *, beam: int = 1
) -> dict[str, float]:
    """Train as `Laboratory.train` does; the result also has points of the learning curve, see `summarize_curve`."""
    values = laboratory.train(settings, updates, seed, beam=beam)
    if "diverged" in values:
        return values
    lines = MetricsLog(laboratory.find_run(settings, updates, seed) / "metrics.jsonl").read()
    return values | summarize_curve(select_lines(lines, "training"))


def summarize_curve(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Points of the learning curve of a run from its lines of training.

    Point n, from 1 to `NUM_POINTS`, has the quantities "update n" and "seconds n" since the first update, where this
    part of the run ends, and "cross-entropy n", the mean over its lines in nats per token, with dropout and without
    label smoothing. A part without a line has no point.
    """
    values: dict[str, float] = {}
    end = max((line["update"] for line in lines), default=0)
    for number in range(1, NUM_POINTS + 1):
        part = [line for line in lines if (number - 1) * end < NUM_POINTS * line["update"] <= number * end]
        if part:
            values[f"update {number}"] = float(part[-1]["update"])
            values[f"seconds {number}"] = float(part[-1]["seconds"])
            values[f"cross-entropy {number}"] = statistics.fmean(line["cross_entropy"] for line in part)
    return values


def read_curve(results: Results, x: Literal["update", "seconds"], **settings: Value) -> list[tuple[float, float]]:
    """The learning curve of the trial with these settings: `x` and cross-entropy, both as means over the seeds."""
    points = [
        (results.mean(f"{x} {number}", **settings), results.mean(f"cross-entropy {number}", **settings))
        for number in range(1, NUM_POINTS + 1)
    ]
    return keep_finite(points)


def draw_learning_curves(
    results: Results, variants: Sequence[str], title: str = "Training loss over the updates"
) -> Chart:
    """A chart of the training loss of at most six variants over the updates: means over the seeds."""
    series = [Series(variant, read_curve(results, "update", variant=variant)) for variant in variants]
    return Chart.draw_lines(title, series, "updates", "nats per token")
