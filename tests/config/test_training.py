import math
from typing import Any

import pytest
from pydantic import ValidationError

from transduce.config import UNLIMITED_UPDATES, TrainingConfig

STABLE = {"schedule": "warmup_stable_decay", "learning_rate": 1e-3}
PLATEAU = {"schedule": "plateau", "learning_rate": 1e-3}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 0.1}, 'learning_rate = 0.1 has no effect with schedule = "paper"'),
        ({"schedule": "linear"}, 'schedule = "linear" needs a peak learning_rate'),
        ({"schedule": "inverse_square_root"}, 'schedule = "inverse_square_root" needs a peak learning_rate'),
        ({"schedule": "cosine"}, 'schedule = "cosine" needs a peak learning_rate'),
        ({"schedule": "plateau"}, 'schedule = "plateau" needs a peak learning_rate'),
        ({"schedule": "step"}, "Input should be 'paper'"),
        ({**PLATEAU, "validate_every": "auto"}, 'which validate_every = "auto" times by the clock'),
        ({**PLATEAU, "patience": 3}, "patience = 3 would end the run before a plateau_patience of 3 lowers"),
        ({**PLATEAU, "plateau_patience": 9, "patience": 5}, "raise patience, or set it to 0"),
        ({**PLATEAU, "plateau_factor": 1.0}, "less than 1"),
        ({**PLATEAU, "plateau_patience": 0}, "greater than or equal to 1"),
        ({**PLATEAU, "time_limit": "30m"}, 'time_limit = "30m" needs schedule = "warmup_stable_decay"'),
        ({"schedule": "cosine", "learning_rate": 1e-3, "time_limit": "30m"}, 'the decay of "cosine" cannot begin'),
        ({"weight_decay": -0.1}, "greater than or equal to 0"),
        ({"r_drop": -5.0}, "greater than or equal to 0"),
        ({"adam_beta1": 1.0}, "less than 1"),
        ({"adam_epsilon": 0.0}, "greater than 0"),
        ({"label_smoothing": 1.0}, "less than 1"),
        ({"validate_every": 0}, 'validate_every = 0 must be at least 1, or "auto"'),
        ({"time_limit": "30m"}, 'time_limit = "30m" needs schedule = "warmup_stable_decay"'),
        ({**STABLE, "time_limit": "30"}, 'time_limit: "30" must be a duration such as "90s"'),
        ({**STABLE, "time_limit": ""}, 'time_limit: "" must be a duration'),
        ({**STABLE, "time_limit": "0"}, 'time_limit: "0" must be a duration'),
        ({**STABLE, "time_limit": "0m"}, 'time_limit: "0m" must be from 1s to 10000h'),
        ({**STABLE, "time_limit": "100000h"}, 'time_limit: "100000h" must be from 1s to 10000h'),
        ({**STABLE, "time_limit": "10000h1s"}, "must be from 1s to 10000h"),
        ({**STABLE, "time_limit": f"{'9' * 5000}s"}, "must be from 1s to 10000h"),
        ({**STABLE, "time_limit": "1m30h"}, "must be a duration"),
        ({**STABLE, "epochs": 0.0}, "greater than 0"),
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
        {"schedule": "cosine", "learning_rate": 5e-4, "warmup": 51, "updates": 50},
        {**PLATEAU, "patience": 4},
        {"label_smoothing": 0.0, "clip_norm": 0.0, "patience": 0},
        {"r_drop": 5.0, "weight_decay": 0.1},
    ],
    ids=str,
)
def test_what_can(given: dict[str, Any]) -> None:
    assert TrainingConfig(**given).model_dump(include=given.keys()) == given


def test_the_defaults_are_those_of_the_paper() -> None:
    config = TrainingConfig()
    assert (config.adam_beta1, config.adam_beta2, config.adam_epsilon, config.warmup) == (0.9, 0.98, 1e-9, 4000)
    assert (config.updates, config.batch_tokens, config.label_smoothing) == (100_000, 25_000, 0.1)
    assert (config.schedule, config.weight_decay, config.r_drop) == ("paper", 0.0, 0.0)


@pytest.mark.parametrize(
    ("time_limit", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), (" 1h1m1s ", 3661)]
)
def test_a_time_limit_in_seconds(time_limit: str, seconds: int) -> None:
    assert TrainingConfig(**STABLE, time_limit=time_limit).time_limit_seconds == seconds


def test_without_a_time_limit_there_is_no_end_of_time() -> None:
    assert TrainingConfig().time_limit_seconds == math.inf


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({"updates": 8_000}, "8,000 updates"),
        ({"updates": UNLIMITED_UPDATES, "time_limit": "30m"}, "30m"),
        ({"updates": 500, "time_limit": "1h30m"}, "500 updates or 1h30m"),
    ],
)
def test_the_length_of_a_run_is_said_without_a_number_that_means_none(settings: dict[str, Any], length: str) -> None:
    assert TrainingConfig(**STABLE, **settings).describe_length() == length
