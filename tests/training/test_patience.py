from typing import Any, Literal

import pytest

from transduce.config import TrainingConfig
from transduce.training.patience import end_of_patience


def validations(*chrf: float, average: float = 99.0) -> list[dict[str, Any]]:
    """Lines of a validation every 10 updates, among others."""
    lines: list[dict[str, Any]] = [{"kind": "data", "update": 0}]
    for number, value in enumerate(chrf, start=1):
        scores = [{"metric": "BLEU", "value": 0.0}, {"metric": "chrF", "value": value}]
        lines += [{"kind": "training", "update": 10 * number}]
        lines += [{"kind": "validation", "update": 10 * number, "loss": 9 - value, "scores": scores}]
    last = {"update": 10 * len(chrf), "is_best": True, "scores": [{"metric": "chrF", "value": average}]}
    return [*lines, {"kind": "average", **last}]


@pytest.mark.parametrize(("best_by", "name"), [("chrf", "chrF"), ("loss", "loss")])
def test_a_run_that_got_no_better_says_since_when(best_by: Literal["chrf", "loss"], name: str) -> None:
    training = TrainingConfig(patience=2, best_by=best_by, updates=1000)
    assert end_of_patience(training, validations(5, 4, 6, 6, 5)) == (
        f"stopped after update 50: 2 validations in a row without a better {name}; best was update 30; raise "
        f"training.patience to go on"
    )


def test_a_better_chrf_counts_where_bleu_is_the_same() -> None:
    training = TrainingConfig(patience=2, best_by="bleu", updates=1000)
    assert end_of_patience(training, validations(5, 6, 7)) is None
    ended = end_of_patience(training, validations(5, 7, 6, 6))
    assert ended is not None
    assert "without a better BLEU; best was update 20" in ended


@pytest.mark.parametrize(
    ("patience", "updates", "chrf"),
    [
        (0, 1000, [5, 4, 4]),  # none was asked for
        (2, 1000, [5, 4, 4, 6, 5]),  # it is not at its end
        (2, 30, [5, 4, 4]),  # the updates are
        (2, 1000, []),
    ],
)
def test_others_have_nothing_to_say(patience: int, updates: int, chrf: list[float]) -> None:
    training = TrainingConfig(patience=patience, updates=updates, best_by="chrf")
    assert end_of_patience(training, validations(*chrf)) is None
