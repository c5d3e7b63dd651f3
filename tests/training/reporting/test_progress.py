import pytest

from transduce.training.reporting import (
    DAMPING,
    FIRST_VALIDATION_SECONDS,
    VALIDATION_SHARE,
    Throughput,
    describe_forecast,
    forecast_score,
)


def test_speed_is_that_of_a_line_and_time_to_go_that_of_two() -> None:
    throughput = Throughput()
    throughput.add_update(100, 1.0)
    throughput.add_update(300, 3.0)
    assert throughput.tokens_per_second == 100
    assert throughput.seconds_remaining(10, 5) == pytest.approx(20)  # no validation has been measured
    throughput.add_validation(5.0, elapsed=9.0)
    throughput.begin_line()
    throughput.add_update(400, 2.0)
    assert throughput.tokens_per_second == 200
    assert throughput.seconds_per_update == pytest.approx(2)
    assert throughput.seconds_remaining(10, 5) == pytest.approx(10 * 2 + 2 * 5)
    throughput.begin_line()
    throughput.add_update(100, 4.0)
    assert throughput.seconds_remaining(10, 11) == pytest.approx(10 * 3)


def test_validation_by_the_clock_takes_its_share_of_the_time() -> None:
    throughput = Throughput(elapsed=7.0)
    assert not throughput.is_validation_due(7.0 + FIRST_VALIDATION_SECONDS - 0.1)
    assert throughput.is_validation_due(7.0 + FIRST_VALIDATION_SECONDS)
    throughput.add_validation(0.5, elapsed=100.0)  # as good as nothing: not more often than the first
    assert not throughput.is_validation_due(100.0 + FIRST_VALIDATION_SECONDS - 0.1)
    assert throughput.is_validation_due(100.0 + FIRST_VALIDATION_SECONDS)
    throughput.add_validation(30.0, elapsed=200.0)
    assert not throughput.is_validation_due(200.0 + 30.0 / VALIDATION_SHARE - 0.1)
    assert throughput.is_validation_due(200.0 + 30.0 / VALIDATION_SHARE)


def test_time_to_go_has_the_share_of_validation_and_the_last_one() -> None:
    throughput = Throughput()
    throughput.add_update(100, 2.0)
    throughput.add_validation(30.0, elapsed=2.0)
    assert throughput.seconds_remaining(100, "auto") == pytest.approx(200 * (1 + VALIDATION_SHARE) + 30)


# BLEU on the validation text of Multi30k by docs/experiments.md, "Multi30k, English to German: the recipe's run".
RECIPE = [(1000, 15.34), (2000, 29.09), (3000, 32.88), (4000, 34.08), (5000, 36.09), (6000, 36.78), (7000, 37.03)]


@pytest.mark.parametrize("known", [4, 5, 6])
def test_a_real_run_ends_as_was_expected_half_way(known: int) -> None:
    expected = forecast_score(RECIPE[:known], 7000)
    assert expected == pytest.approx(RECIPE[-1][1], abs=2.0)


def test_a_doubling_gains_a_share_of_the_one_before() -> None:
    points = [(100, 8.0), (200, 10.0), (400, 14.0)]
    assert forecast_score(points, 800) == pytest.approx(14 + 4 * DAMPING)
    assert forecast_score(points, 1600) == pytest.approx(14 + 4 * DAMPING + 4 * DAMPING**2)
    assert forecast_score(points, 400) == 14


def test_what_falls_or_stays_is_not_expected_to_rise_and_nothing_is_above_100() -> None:
    assert forecast_score([(100, 30.0), (200, 30.0), (400, 25.0)], 800) == 25
    assert forecast_score([(100, 1.0), (200, 10.0), (400, 99.0)], 800) == 100


@pytest.mark.parametrize(
    ("points", "last"),
    [([], 100), ([(10, 1.0), (20, 2.0)], 40), ([(10, 1.0), (20, 2.0), (30, 3.0)], 1000), ([(50, 1.0)] * 3, 90)],
)
def test_too_little_is_known(points: list[tuple[int, float]], last: int) -> None:
    assert forecast_score(points, last) is None


def test_it_is_said_of_both_scores_until_the_end() -> None:
    lines = [
        {
            "kind": "validation",
            "update": update,
            "scores": [{"metric": name, "value": score} for name in ("BLEU", "chrF")],
        }
        for update, score in RECIPE
    ]
    assert describe_forecast(lines[:4], 7000).endswith("about BLEU 37, chrF 37")
    assert describe_forecast(lines, 7000) is None
    assert describe_forecast([], 7000) is None
