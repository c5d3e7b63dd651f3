import pytest

from transduce.lab.conclusion import Claim, Verdict
from transduce.lab.statistics import judge_above, judge_exactly

CLAIM = Claim("3.2", "It is large.")


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({1: 2.9, 2: 3.0, 3: 3.1}, "supported"),
        ({1: 1.1, 2: 1.0, 3: 0.9}, "not supported"),
        ({1: 1.0, 2: 2.0, 3: 3.1}, "not decided"),
        ({1: 9.0}, "not decided"),
        ({}, "not decided"),
    ],
)
def test_above_a_threshold_is_the_whole_interval(values: dict[int, float], verdict: Verdict) -> None:
    claim_result = judge_above(CLAIM, values, 2.0, "size")
    assert claim_result.verdict == verdict
    assert claim_result.measured.endswith("where more than 2 counts")
    assert ("not measured" in claim_result.measured) == (not values)


def test_what_was_not_measured_is_not_decided() -> None:
    verdicts = [judge_exactly(CLAIM, "all of them", holds=holds) for holds in (True, False, None)]
    assert [claim_result.verdict for claim_result in verdicts] == ["supported", "not supported", "not decided"]
    assert [claim_result.measured for claim_result in verdicts] == ["all of them", "all of them", "not measured"]
