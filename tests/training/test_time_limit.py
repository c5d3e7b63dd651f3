import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import list_checkpoints, load_checkpoint
from transduce.config import RunConfig, TrainingConfig
from transduce.training import train
from transduce.training.schedule import Decay
from transduce.training.time_limit import TOLERANCE, adjust_decay, begin_decay

STABLE = {"schedule": "warmup_stable_decay", "learning_rate": 1e-2}
TIMED = TrainingConfig(**STABLE, time_limit="1000s", decay_share=0.2, updates=1_000_000)


def test_the_rate_begins_to_fall_when_the_share_of_the_time_is_left() -> None:
    assert begin_decay(TIMED, 4000, seconds_left=200.1, seconds_per_update=0.2) is None
    assert begin_decay(TIMED, 4000, seconds_left=200.0, seconds_per_update=0.2) == Decay(4001, 5000)


def test_the_rate_begins_to_fall_before_the_last_update_whatever_the_clock_says() -> None:
    for limit in (None, "1000s"):
        config = TIMED.model_copy(update={"updates": 100, "time_limit": limit})
        left = config.time_limit_seconds - 3
        assert begin_decay(config, 79, left, 0.01) is None
        assert begin_decay(config, 80, left, 0.01) == Decay(81, 100)


@pytest.mark.parametrize("left", [0.0, -100.0])
def test_a_run_whose_time_is_over_ends_with_the_next_update(left: float) -> None:
    assert begin_decay(TIMED, 7, left, 0.2) == Decay(8, 8)
    assert adjust_decay(TIMED, Decay(5, 200), 50, left, 0.2).end == 51


@pytest.mark.parametrize("seconds_per_update", [0.1, 0.15, 0.3, 2.0])
def test_a_machine_that_changes_its_speed_changes_the_end_and_never_raises_the_rate(seconds_per_update: float) -> None:
    decay = begin_decay(TIMED, 4000, 200.0, 0.2)
    update, left, factors = 4000, 200.0, [1.0]
    while update < decay.end:
        update += 1
        left -= seconds_per_update
        factors.append(decay.factor_at(update))
        decay = adjust_decay(TIMED, decay, update, left, seconds_per_update)
    assert abs(left) <= TOLERANCE * 1000 + seconds_per_update
    assert all(later < earlier for earlier, later in itertools.pairwise(factors))


def test_a_small_difference_changes_nothing() -> None:
    decay = Decay(4001, 5000)
    assert adjust_decay(TIMED, decay, 4500, seconds_left=109.0, seconds_per_update=0.2) is decay
    assert adjust_decay(TIMED, decay, 4500, seconds_left=111.0, seconds_per_update=0.2) != decay
    assert adjust_decay(TIMED, decay, 5000, seconds_left=500.0, seconds_per_update=0.2) is decay


def _timed(make_config: Callable[..., RunConfig], limit: str, **settings: Any) -> RunConfig:
    return make_config(
        training__schedule="warmup_stable_decay",
        training__time_limit=limit,
        training__updates=10_000_000,
        training__ema_decay=0.99,
        training__validate_every="auto",
        training__checkpoint_every=100_000,
        **settings,
    )


def test_a_run_ends_in_its_time_with_a_validated_average(
    make_config: Callable[..., RunConfig], metrics_of: Callable[[Path], Any]
) -> None:
    started = time.perf_counter()
    result = train(_timed(make_config, "8s"))  # or never, if it took no heed of the time
    assert time.perf_counter() - started > 6.0
    lines = metrics_of(result.folder)
    *_, validation = (line for line in lines if line["kind"] == "validation")
    assert validation["update"] == result.updates
    best = json.loads((result.folder / "best" / "bundle.json").read_text(encoding="utf-8"))
    assert best["training"]["update"] == result.updates


def test_what_the_clock_has_decided_is_kept(make_config: Callable[..., RunConfig]) -> None:
    result = train(_timed(make_config, "4s"))
    update = list_checkpoints(result.folder / "checkpoints")[-1]
    _, state = load_checkpoint(result.folder / "checkpoints", update, [])
    assert state["decay"]["end"] == update == result.updates
    assert state["elapsed"] > state["seconds"]
    again = train(_timed(make_config, "4s"))
    assert (again.updates, again.seconds) == (result.updates, result.seconds)  # nothing is left to do


def test_updates_end_a_run_that_has_time_left(make_config: Callable[..., RunConfig]) -> None:
    config = make_config(training__schedule="warmup_stable_decay", training__time_limit="1h", training__updates=20)
    assert train(config).updates == 20


def test_once_the_rate_has_fallen_a_longer_run_is_another(make_config: Callable[..., RunConfig], watcher: Any) -> None:
    settings = {"training__schedule": "warmup_stable_decay", "training__decay_share": 0.25}
    assert train(make_config(training__updates=8, **settings)).updates == 8
    told = watcher()
    assert train(make_config(training__updates=16, **settings), told).updates == 8
    assert any("longer training is a new run" in sentence for sentence in told.said)
