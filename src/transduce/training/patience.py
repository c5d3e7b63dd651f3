"""Why a run ended before its last update: its figures got no better any more."""

from collections.abc import Mapping, Sequence
from typing import Any

from transduce.config import TrainingConfig

NAMES = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}


def end_of_patience(training: TrainingConfig, lines: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say of a run that ended early, by its lines of metrics.jsonl; nothing of any other."""
    validations = [line for line in lines if line["kind"] == "validation"]
    best = next((line["update"] for line in reversed(validations) if line.get("is_best")), None)
    since = [line["update"] for line in validations if best is not None and line["update"] > best]
    if not 0 < training.patience <= len(since) or since[-1] >= training.updates:
        return None
    return (
        f"stopped after update {since[-1]:,}: {len(since)} validations in a row without a better "
        f"{NAMES[training.best_by]}; best was update {best:,}; raise training.patience to go on"
    )
