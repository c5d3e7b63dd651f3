from typing import Any

import pytest

from transduce.config import TrainingConfig
from transduce.training.patience import end_of_patience


def validations(*is_best: bool) -> list[dict[str, Any]]:
    """Lines of a validation every 10 updates, among others."""
    lines: list[dict[str, Any]] = [{"kind": "data", "update": 0}]
    for number, best in enumerate(is_best, start=1):
        lines += [{"kind": "training", "update": 10 * number}]
        lines += [{"kind": "validation", "update": 10 * number, "is_best": best}]
    return [*lines, {"kind": "average", "update": 10 * len(is_best), "is_best": True}]


def test_a_run_that_got_no_better_says_since_when() -> None:
    training = TrainingConfig(patience=2, best_by="chrf", updates=1000)
    assert end_of_patience(training, validations(True, False, True, False, False)) == (
        "stopped after update 50: 2 validations in a row without a better chrF; best was update 30; raise "
        "training.patience to go on"
    )


@pytest.mark.parametrize(
    ("patience", "updates", "is_best"),
    [
        (0, 1000, [True, False, False]),  # none was asked for
        (2, 1000, [True, False, False, True, False]),  # it is not at its end
        (2, 30, [True, False, False]),  # the updates are
        (2, 1000, []),
    ],
)
def test_others_have_nothing_to_say(patience: int, updates: int, is_best: list[bool]) -> None:
    assert end_of_patience(TrainingConfig(patience=patience, updates=updates), validations(*is_best)) is None
