import pytest

from transduce.training.pace import Pace


def test_speed_is_that_of_a_line_and_time_to_go_that_of_two() -> None:
    pace = Pace()
    pace.count(100, 1.0)
    pace.count(300, 3.0)
    assert pace.tokens_per_second == 100
    assert pace.seconds_to_go(10, 2) == pytest.approx(20)  # no validation has been measured
    pace.validated(5.0)
    pace.begin_line()
    pace.count(400, 2.0)
    assert pace.tokens_per_second == 200
    assert pace.seconds_to_go(10, 2) == pytest.approx(10 * 2 + 2 * 5)
    pace.begin_line()
    pace.count(100, 4.0)
    assert pace.seconds_to_go(10, 0) == pytest.approx(10 * 3)
