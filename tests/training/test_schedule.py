import pytest

from transduce.config import TrainingConfig
from transduce.training import learning_rate
from transduce.training.schedule import Decay, planned_decay


def test_the_paper_by_hand() -> None:
    config = TrainingConfig(warmup=4000)
    # eq. 3 with d_model 512: 512^-0.5 · min(n^-0.5, n · 4000^-1.5)
    assert learning_rate(config, 512, 1) == pytest.approx(1.7469e-7, rel=1e-4)
    assert learning_rate(config, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert learning_rate(config, 512, 100_000) == pytest.approx(1.39754e-4, rel=1e-4)


@pytest.mark.parametrize("update", [1, 7, 99, 100, 101, 5000])
@pytest.mark.parametrize("d_model", [16, 512])
def test_the_paper_is_equation_3(update: int, d_model: int) -> None:
    expected = d_model**-0.5 * min(update**-0.5, update * 100**-1.5)
    assert learning_rate(TrainingConfig(warmup=100), d_model, update) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["inverse_square_root", "linear"])
def test_the_peak_is_the_learning_rate_at_the_end_of_the_warmup(schedule: str) -> None:
    config = TrainingConfig(schedule=schedule, learning_rate=3e-3, warmup=50, updates=400)
    rates = [learning_rate(config, 64, update) for update in range(1, 401)]
    assert rates[49] == max(rates) == pytest.approx(3e-3)
    assert all(rate > 0 for rate in rates)
    assert rates[:50] == sorted(rates[:50])
    assert rates[49:] == sorted(rates[49:], reverse=True)
    assert len(set(rates)) > 390


def test_inverse_square_root_is_the_curve_of_the_paper() -> None:
    paper = TrainingConfig(warmup=50)
    scaled = TrainingConfig(schedule="inverse_square_root", learning_rate=3e-3, warmup=50)
    shares = [learning_rate(scaled, 64, update) / learning_rate(paper, 64, update) for update in (1, 20, 50, 51, 999)]
    assert shares == pytest.approx([shares[0]] * 5)


def test_linear_ends_just_above_zero() -> None:
    config = TrainingConfig(schedule="linear", learning_rate=1.0, warmup=10, updates=1000)
    steps = [learning_rate(config, 64, update) - learning_rate(config, 64, update + 1) for update in range(10, 1000)]
    assert steps == pytest.approx([1 / 991] * 990)
    assert learning_rate(config, 64, 1000) == pytest.approx(1 / 991)


def test_a_stable_rate_decays_over_its_share_of_the_run_to_just_above_zero() -> None:
    config = TrainingConfig(
        schedule="warmup_stable_decay", learning_rate=2.0, warmup=10, updates=1000, decay_share=0.25
    )
    rates = [learning_rate(config, 64, update) for update in range(1, 1001)]
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
    decay = planned_decay(config)
    assert 1 <= decay.start <= decay.end == updates
    assert decay.end + 1 - decay.start == max(1, round(updates / 5))


@pytest.mark.parametrize("schedule", ["paper", "inverse_square_root", "linear", "warmup_stable_decay"])
@pytest.mark.parametrize("warmup", [1, 2, 3, 4, 100])
def test_a_run_may_be_as_short_as_its_warmup_or_shorter(schedule: str, warmup: int) -> None:
    peak = None if schedule == "paper" else 1e-3
    config = TrainingConfig(schedule=schedule, learning_rate=peak, warmup=warmup, updates=3)
    rates = [learning_rate(config, 64, update) for update in (1, 2, 3)]
    assert all(rate > 0 for rate in rates)
    if warmup >= 3 and schedule != "warmup_stable_decay":
        assert rates == pytest.approx([rates[0], 2 * rates[0], 3 * rates[0]])
