"""Why a run ended before its last update: its figures got no better any more."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transduce.config import TrainingConfig

NAMES = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}


def end_of_patience(training: TrainingConfig, lines: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say of a run that ended early, by its lines of metrics.jsonl; nothing of any other."""
    highest, best, since = [-math.inf], 0, list[int]()
    for line in lines:
        if line["kind"] != "validation":
            continue
        quality = [_quality(line, name) for name in (training.best_by, "chrf", "loss")]  # the two last decide ties
        if quality > highest:
            highest, best, since = quality, line["update"], []
        else:
            since.append(line["update"])
    if not 0 < training.patience <= len(since) or since[-1] >= training.updates:
        return None
    return (
        f"stopped after update {since[-1]:,}: {len(since)} validations in a row without a better "
        f"{NAMES[training.best_by]}; best was update {best:,}; raise training.patience to go on"
    )


def _quality(line: Mapping[str, Any], best_by: str) -> float:
    """No number, which is never better, where a damaged line does not have the figure."""
    if best_by == "loss":
        return -float(line.get("loss", math.nan))
    values = (float(score["value"]) for score in line.get("scores", ()) if score["metric"].lower() == best_by)
    return next(values, math.nan)
