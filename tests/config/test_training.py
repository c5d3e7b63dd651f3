from typing import Any

import pytest
from pydantic import ValidationError

from transduce.config import TrainingConfig


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 0.1}, 'learning_rate = 0.1 has no effect with schedule = "paper"'),
        ({"schedule": "linear"}, 'schedule = "linear" needs a learning_rate'),
        ({"schedule": "inverse_square_root"}, 'schedule = "inverse_square_root" needs a learning_rate'),
        ({"schedule": "cosine"}, "Input should be 'paper'"),
        ({"adam_beta1": 1.0}, "less than 1"),
        ({"adam_epsilon": 0.0}, "greater than 0"),
        ({"label_smoothing": 1.0}, "less than 1"),
        ({"seed": -1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_trained_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingConfig(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"warmup": 500_000},
        {"schedule": "inverse_square_root", "learning_rate": 5e-4},
        {"schedule": "linear", "learning_rate": 5e-4, "warmup": 51, "updates": 50},
        {"label_smoothing": 0.0, "clip_norm": 0.0, "patience": 0},
    ],
    ids=str,
)
def test_what_can(given: dict[str, Any]) -> None:
    assert TrainingConfig(**given).model_dump(include=given.keys()) == given


def test_the_defaults_are_those_of_the_paper() -> None:
    config = TrainingConfig()
    assert (config.adam_beta1, config.adam_beta2, config.adam_epsilon, config.warmup) == (0.9, 0.98, 1e-9, 4000)
    assert (config.updates, config.batch_tokens, config.label_smoothing) == (100_000, 25_000, 0.1)
