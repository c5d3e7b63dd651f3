"""How good a run will be when it ends, from its validations so far."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

DAMPING = 0.6
"""What the gain of one doubling of the updates is multiplied by to have that of the next (docs/experiments.md)."""

EARLIEST = 0.2
"""Share of the run before which its validations say too little about its end."""


def forecast_score(points: Sequence[tuple[int, float]], last_update: int) -> float | None:
    """The score to be expected after `last_update`; None as long as too little is known.

    Every doubling of the updates is taken to gain `DAMPING` times what the one before it has gained.

    Args:
        points: update and score of every validation, in order; the scores rise, from 0 to 100.
        last_update: with which the run ends.
    """
    if len(points) < 3:
        return None
    update, score = points[-1]
    if update < EARLIEST * last_update or points[0][0] > update / 2:
        return None
    gain = max(0.0, score - _score_at(update / 2, points))
    doublings = max(0.0, math.log2(last_update / update))
    return min(100.0, score + gain * DAMPING * (1 - math.pow(DAMPING, doublings)) / (1 - DAMPING))


def forecast_line(lines: Sequence[Mapping[str, Any]], last_update: int) -> str | None:
    """What to say of the end of a run with these lines of metrics.jsonl, as long as that is not reached."""
    validations = [line for line in lines if line["kind"] == "validation"]
    if not validations or validations[-1]["update"] >= last_update:
        return None
    expected = []
    for metric in ("BLEU", "chrF"):
        points = [
            (line["update"], score["value"])
            for line in validations
            for score in line.get("scores", ())
            if score["metric"] == metric
        ]
        score = forecast_score(points, last_update)
        if score is None:
            return None
        expected.append(f"{metric} {score:.0f}")
    return f"to be expected of this run by its end, on the validation text: about {', '.join(expected)}"


def _score_at(update: float, points: Sequence[tuple[int, float]]) -> float:
    """The score at `update`, between the validations before and after it, along the logarithm of the updates."""
    before = max((point for point in points if point[0] <= update), key=lambda point: point[0])
    after = min((point for point in points if point[0] >= update), key=lambda point: point[0])
    if before[0] == after[0]:
        return before[1]
    share = math.log(update / before[0]) / math.log(after[0] / before[0])
    return before[1] + share * (after[1] - before[1])
