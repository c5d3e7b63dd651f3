import itertools
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import list_checkpoints, load_checkpoint
from transduce.config import RunConfig, TrainingConfig
from transduce.data import PreparedData
from transduce.errors import TrainingInterruptedError
from transduce.training import compute_learning_rate, train
from transduce.training.optimization.schedule import TOLERANCE, Decay, make_default_decay, plan_decay
from transduce.training.screened_data import prepare_screened


def test_the_paper_by_hand() -> None:
    config = TrainingConfig(warmup=4000)
    # eq. 3 with d_model 512: 512^-0.5 · min(n^-0.5, n · 4000^-1.5)
    assert compute_learning_rate(config, 512, 1) == pytest.approx(1.7469e-7, rel=1e-4)
    assert compute_learning_rate(config, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert compute_learning_rate(config, 512, 100_000) == pytest.approx(1.39754e-4, rel=1e-4)


@pytest.mark.parametrize("update", [1, 7, 99, 100, 101, 5000])
@pytest.mark.parametrize("d_model", [16, 512])
def test_the_paper_is_equation_3(update: int, d_model: int) -> None:
    expected = d_model**-0.5 * min(update**-0.5, update * 100**-1.5)
    assert compute_learning_rate(TrainingConfig(warmup=100), d_model, update) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["inverse_square_root", "linear", "cosine"])
def test_the_peak_is_the_learning_rate_at_the_end_of_the_warmup(schedule: str) -> None:
    config = TrainingConfig(schedule=schedule, learning_rate=3e-3, warmup=50, updates=400)
    rates = [compute_learning_rate(config, 64, update) for update in range(1, 401)]
    assert rates[49] == max(rates) == pytest.approx(3e-3)
    assert all(rate > 0 for rate in rates)
    assert rates[:50] == sorted(rates[:50])
    assert rates[49:] == sorted(rates[49:], reverse=True)
    assert len(set(rates)) > 390


def test_inverse_square_root_is_the_curve_of_the_paper() -> None:
    paper = TrainingConfig(warmup=50)
    scaled = TrainingConfig(schedule="inverse_square_root", learning_rate=3e-3, warmup=50)
    shares = [
        compute_learning_rate(scaled, 64, update) / compute_learning_rate(paper, 64, update)
        for update in (1, 20, 50, 51, 999)
    ]
    assert shares == pytest.approx([shares[0]] * 5)


def test_linear_ends_just_above_zero() -> None:
    config = TrainingConfig(schedule="linear", learning_rate=1.0, warmup=10, updates=1000)
    steps = [
        compute_learning_rate(config, 64, update) - compute_learning_rate(config, 64, update + 1)
        for update in range(10, 1000)
    ]
    assert steps == pytest.approx([1 / 991] * 990)
    assert compute_learning_rate(config, 64, 1000) == pytest.approx(1 / 991)


def test_cosine_is_that_of_pytorch_and_ends_just_above_zero() -> None:
    config = TrainingConfig(schedule="cosine", learning_rate=2.0, warmup=10, updates=1000)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=991)
    for update in range(10, 1001):
        assert compute_learning_rate(config, 64, update) == pytest.approx(theirs.get_last_lr()[0], rel=1e-6)
        optimizer.step()
        theirs.step()
    assert 0 < compute_learning_rate(config, 64, 1000) < 1e-5
    assert compute_learning_rate(config, 64, 1001) == 0


def test_a_plateau_lowers_a_constant_rate_by_its_factor() -> None:
    config = TrainingConfig(schedule="plateau", learning_rate=2.0, warmup=10, plateau_factor=0.3)
    assert [compute_learning_rate(config, 64, update) for update in (5, 10, 99_999)] == [1.0, 2.0, 2.0]
    rates = [compute_learning_rate(config, 64, update, num_plateaus=2) for update in (5, 10, 99_999)]
    assert rates == pytest.approx([0.09, 0.18, 0.18])


def test_a_stable_rate_decays_over_its_share_of_the_run_to_just_above_zero() -> None:
    config = TrainingConfig(
        schedule="warmup_stable_decay", learning_rate=2.0, warmup=10, updates=1000, decay_share=0.25
    )
    rates = [compute_learning_rate(config, 64, update) for update in range(1, 1001)]
    assert rates[:10] == pytest.approx([0.2 * update for update in range(1, 11)])
    assert set(rates[9:750]) == {2.0}
    assert rates[750:] == pytest.approx([2.0 * left / 251 for left in range(250, 0, -1)])


def test_a_decay_that_continues_another_begins_where_that_one_is() -> None:
    first = Decay(start=101, end=200)
    factors = [first.factor_at(update) for update in range(99, 202)]
    assert factors[:2] == [1.0, 1.0]
    assert factors == sorted(factors, reverse=True)
    assert factors[-2] > 0 == factors[-1]
    longer = Decay(start=151, end=400, factor=first.factor_at(150))
    assert longer.factor_at(150) == first.factor_at(150)
    assert first.factor_at(151) < longer.factor_at(151) < longer.factor_at(150)
    assert longer.factor_at(400) > 0


@pytest.mark.parametrize("updates", [1, 2, 3, 5, 1000])
def test_every_run_ends_with_a_decay_of_at_least_one_update(updates: int) -> None:
    config = TrainingConfig(schedule="warmup_stable_decay", learning_rate=1e-3, updates=updates, decay_share=0.2)
    decay = make_default_decay(config)
    assert 1 <= decay.start <= decay.end == updates
    assert decay.end + 1 - decay.start == max(1, round(updates / 5))


@pytest.mark.parametrize(
    "schedule", ["paper", "inverse_square_root", "linear", "cosine", "warmup_stable_decay", "plateau"]
)
@pytest.mark.parametrize("warmup", [1, 2, 3, 4, 100])
def test_a_run_may_be_as_short_as_its_warmup_or_shorter(schedule: str, warmup: int) -> None:
    peak = None if schedule == "paper" else 1e-3
    config = TrainingConfig(schedule=schedule, learning_rate=peak, warmup=warmup, updates=3)
    rates = [compute_learning_rate(config, 64, update) for update in (1, 2, 3)]
    assert all(rate > 0 for rate in rates)
    if warmup >= 3 and schedule != "warmup_stable_decay":
        assert rates == pytest.approx([rates[0], 2 * rates[0], 3 * rates[0]])


STABLE = {"schedule": "warmup_stable_decay", "learning_rate": 1e-2}
TIMED = TrainingConfig(**STABLE, time_limit="1000s", decay_share=0.2, updates=1_000_000)


def test_the_rate_begins_to_fall_when_the_share_of_the_time_is_left() -> None:
    assert plan_decay(TIMED, None, 4000, seconds_left=200.1, seconds_per_update=0.2) is None
    assert plan_decay(TIMED, None, 4000, seconds_left=200.0, seconds_per_update=0.2) == Decay(4001, 5000)


def test_the_rate_begins_to_fall_before_the_last_update_whatever_the_clock_says() -> None:
    for limit in (None, "1000s"):
        config = TIMED.model_copy(update={"updates": 100, "time_limit": limit})
        left = config.time_limit_seconds - 3
        assert plan_decay(config, None, 79, left, 0.01) is None
        assert plan_decay(config, None, 80, left, 0.01) == Decay(81, 100)


@pytest.mark.parametrize("left", [0.0, -100.0])
def test_a_run_whose_time_is_over_ends_with_the_next_update(left: float) -> None:
    assert plan_decay(TIMED, None, 7, left, 0.2) == Decay(8, 8)
    assert plan_decay(TIMED, Decay(5, 200), 50, left, 0.2).end == 51


@pytest.mark.parametrize("seconds_per_update", [0.1, 0.15, 0.3, 2.0])
def test_a_machine_that_changes_its_speed_changes_the_end_and_never_raises_the_rate(seconds_per_update: float) -> None:
    decay = plan_decay(TIMED, None, 4000, 200.0, 0.2)
    update, left, factors = 4000, 200.0, [1.0]
    while update < decay.end:
        update += 1
        left -= seconds_per_update
        factors.append(decay.factor_at(update))
        decay = plan_decay(TIMED, decay, update, left, seconds_per_update)
    assert abs(left) <= TOLERANCE * 1000 + seconds_per_update
    assert all(later < earlier for earlier, later in itertools.pairwise(factors))


def test_a_small_difference_changes_nothing() -> None:
    decay = Decay(4001, 5000)
    assert plan_decay(TIMED, decay, 4500, seconds_left=109.0, seconds_per_update=0.2) is decay
    assert plan_decay(TIMED, decay, 4500, seconds_left=111.0, seconds_per_update=0.2) != decay
    assert plan_decay(TIMED, decay, 5000, seconds_left=500.0, seconds_per_update=0.2) is decay


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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_what_the_clock_has_decided_is_kept(make_config: Callable[..., RunConfig]) -> None:
    result = train(_timed(make_config, "4s"))
    update = list_checkpoints(result.folder / "checkpoints")[-1]
    _, state = load_checkpoint(result.folder / "checkpoints", update, [])
    assert state["decay"]["end"] == update == result.updates
    assert state["elapsed"] > state["seconds"]
    again = train(_timed(make_config, "4s"))
    assert (again.updates, again.seconds) == (result.updates, result.seconds)  # nothing is left to do


def test_a_long_preparation_does_not_bring_the_first_validation_forward(
    make_config: Callable[..., RunConfig], metrics_of: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare_slowly(*given: Any, **more: Any) -> PreparedData:
        prepared = prepare_screened(*given, **more)
        time.sleep(0.5)
        return prepared

    monkeypatch.setattr("transduce.training.run.prepare_screened", prepare_slowly)
    monkeypatch.setattr("transduce.training.reporting.FIRST_VALIDATION_SECONDS", 0.5)
    folder = train(make_config(training__validate_every="auto", training__updates=2)).folder
    assert [line["update"] for line in metrics_of(folder) if line["kind"] == "validation"] == [2]


@pytest.mark.exhaustive
def test_updates_end_a_run_that_has_time_left(make_config: Callable[..., RunConfig]) -> None:
    config = make_config(training__schedule="warmup_stable_decay", training__time_limit="1h", training__updates=20)
    assert train(config).updates == 20


@pytest.mark.exhaustive
def test_once_the_rate_has_fallen_a_longer_run_is_another(make_config: Callable[..., RunConfig], watcher: Any) -> None:
    settings = {"training__schedule": "warmup_stable_decay", "training__decay_share": 0.25}
    assert train(make_config(training__updates=8, **settings)).updates == 8
    told = watcher()
    assert train(make_config(training__updates=16, **settings), told).updates == 8
    assert any("for longer training start a new run" in sentence for sentence in told.said)


@pytest.mark.parametrize("updates", [5, 16])
def test_a_decay_that_has_begun_says_where_the_run_ends(
    make_config: Callable[..., RunConfig], watcher: Any, updates: int
) -> None:
    settings = {"training__schedule": "warmup_stable_decay", "training__decay_share": 0.75}
    with pytest.raises(TrainingInterruptedError):
        train(make_config(training__updates=8, **settings), watcher(3, signal.SIGTERM))
    told = watcher()
    assert train(make_config(training__updates=updates, **settings), told).updates == 8
    assert any("decay has begun: the run ends with update 8;" in sentence for sentence in told.said)
    assert any("ending after 8 updates;" in sentence for sentence in told.said)
