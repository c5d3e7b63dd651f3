"""Learning curves of trained variants: the training loss over updates and over time."""

import math
from collections.abc import Mapping
from typing import Literal

from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Value
from transduce.training import MetricsLog
from transduce.training.reporting import select_lines
from transduce.training.reporting.charts import sample_evenly

MAX_POINTS = 12
"""Points of a curve that are kept as measurements."""


def train_with_curve(
    laboratory: Laboratory, settings: Mapping[str, Value], updates: int, seed: int, *, beam: int = 1
) -> dict[str, float]:
    """Train as `Laboratory.train` does; the result also has points of the learning curve.

    Point n, from 1, has the quantities "update n", "seconds n" since the first update, and "cross-entropy n" of that
    update's batch, in nats per token.
    """
    values = laboratory.train(settings, updates, seed, beam=beam)
    if "diverged" in values:
        return values
    lines = MetricsLog(laboratory.find_run(settings, updates, seed) / "metrics.jsonl").read()
    for number, line in enumerate(sample_evenly(select_lines(lines, "training"), MAX_POINTS), start=1):
        values |= {
            f"update {number}": line["update"],
            f"seconds {number}": line["seconds"],
            f"cross-entropy {number}": line["cross_entropy"],
        }
    return values


def read_curve(results: Results, x: Literal["update", "seconds"], **settings: Value) -> list[tuple[float, float]]:
    """The learning curve of the trial with these settings: `x` and cross-entropy, both as means over the seeds."""
    points = [
        (results.mean(f"{x} {number}", **settings), results.mean(f"cross-entropy {number}", **settings))
        for number in range(1, MAX_POINTS + 1)
    ]
    return [(place, loss) for place, loss in points if math.isfinite(loss)]
