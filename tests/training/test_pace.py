import pytest

from transduce.training.pace import FIRST_VALIDATION_SECONDS, VALIDATION_SHARE, Pace


def test_speed_is_that_of_a_line_and_time_to_go_that_of_two() -> None:
    pace = Pace()
    pace.count(100, 1.0)
    pace.count(300, 3.0)
    assert pace.tokens_per_second == 100
    assert pace.seconds_to_go(10, 5) == pytest.approx(20)  # no validation has been measured
    pace.validated(5.0, elapsed=9.0)
    pace.begin_line()
    pace.count(400, 2.0)
    assert pace.tokens_per_second == 200
    assert pace.seconds_per_update == pytest.approx(2)
    assert pace.seconds_to_go(10, 5) == pytest.approx(10 * 2 + 2 * 5)
    pace.begin_line()
    pace.count(100, 4.0)
    assert pace.seconds_to_go(10, 11) == pytest.approx(10 * 3)


def test_validation_by_the_clock_takes_its_share_of_the_time() -> None:
    pace = Pace(elapsed=7.0)
    assert not pace.validation_is_due(7.0 + FIRST_VALIDATION_SECONDS - 0.1)
    assert pace.validation_is_due(7.0 + FIRST_VALIDATION_SECONDS)
    pace.validated(0.5, elapsed=100.0)  # as good as nothing: not more often than the first
    assert not pace.validation_is_due(100.0 + FIRST_VALIDATION_SECONDS - 0.1)
    assert pace.validation_is_due(100.0 + FIRST_VALIDATION_SECONDS)
    pace.validated(30.0, elapsed=200.0)
    assert not pace.validation_is_due(200.0 + 30.0 / VALIDATION_SHARE - 0.1)
    assert pace.validation_is_due(200.0 + 30.0 / VALIDATION_SHARE)


def test_time_to_go_has_the_share_of_validation_and_the_last_one() -> None:
    pace = Pace()
    pace.count(100, 2.0)
    pace.validated(30.0, elapsed=2.0)
    assert pace.seconds_to_go(100, "auto") == pytest.approx(200 * (1 + VALIDATION_SHARE) + 30)
