"""Intervals against SciPy and by their definition; each verdict where it is due."""

import math

import numpy as np
import pytest
from scipy import stats

from transduce.lab import Claim
from transduce.lab.conclusion import Verdict
from transduce.lab.statistics import (
    Interval,
    combine_verdicts,
    compare,
    compare_ratio,
    compute_p_value,
    confidence_interval,
    judge_equal,
    judge_exactly,
    judge_interval_above,
    judge_interval_within,
    judge_larger,
    judge_larger_than_all,
    judge_ratio_above,
    judge_ratio_equal,
)

CLAIM = Claim("1", "One is larger.")
VALUES = [0.31, 0.27, 0.4, 0.22]


def test_interval_is_that_of_scipy() -> None:
    found = confidence_interval(VALUES)
    expected = stats.t.interval(0.95, len(VALUES) - 1, loc=np.mean(VALUES), scale=stats.sem(VALUES))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.mean == pytest.approx(np.mean(VALUES))


def test_interval_holds_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    found = [confidence_interval(random.normal(5.0, 2.0, size=3).tolist()) for _ in range(2000)]
    share = np.mean([one.low <= 5.0 <= one.high for one in found])
    assert 0.935 < share < 0.965


def test_one_seed_says_nothing_of_uncertainty() -> None:
    found = confidence_interval({1: 0.5})
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.format(".2f") == "0.50 (one seed)"
    assert confidence_interval([]).format() == "not measured"


def test_comparison_is_paired_by_seed() -> None:
    first, second = {1: 10.1, 2: 20.2, 3: 30.0, 4: 5.0}, {3: 29.0, 1: 9.0, 2: 19.0}
    assert compare(first, second).mean == pytest.approx((1.1 + 1.2 + 1.0) / 3)
    assert compare(first, second).low > 0.7  # though the seeds differ by 10
    expected = stats.ttest_rel([10.1, 20.2, 30.0], [9.0, 19.0, 29.0]).pvalue
    assert compute_p_value(first, second) == pytest.approx(expected)
    assert math.isnan(compute_p_value({1: 1.0}, {1: 2.0}))


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([3.0, 3.1, 3.2], [1.0, 1.2, 1.1], "supported"),
        ([1.0, 1.2, 1.1], [3.0, 3.1, 3.2], "not supported"),
        ([1.0, 3.2, 1.1], [3.0, 1.1, 1.3], "not decided"),
        ([3.0], [1.0], "not decided"),
        ([], [], "not decided"),
    ],
)
def test_larger(first: list[float], second: list[float], verdict: str) -> None:
    assert judge_larger(CLAIM, dict(enumerate(first)), dict(enumerate(second)), "difference").verdict == verdict


def test_larger_by_less_than_the_margin_is_not_supported() -> None:
    first, second = {1: 1.1, 2: 1.1001, 3: 1.1}, {1: 1.0, 2: 1.0, 3: 1.0001}
    assert judge_larger(CLAIM, first, second, "difference").verdict == "supported"
    assert judge_larger(CLAIM, first, second, "difference", margin=0.5).verdict == "not supported"


@pytest.mark.parametrize("margin", [0.5, -0.02, 3.0])
def test_a_margin_is_stated_and_tested_against(margin: float) -> None:
    first, second = {1: 1.1, 2: 1.3, 3: 1.6}, {1: 1.0, 2: 1.0, 3: 1.1}
    gains = [first[seed] - second[seed] for seed in first]
    p_value = stats.ttest_1samp(gains, margin).pvalue
    assert compute_p_value(first, second, margin) == pytest.approx(p_value)
    claim_result = judge_larger(CLAIM, first, second, "difference", margin=margin)
    assert (
        f", where more than {margin:.3g} counts; paired t-test against that: p = {p_value:.2g}" in claim_result.measured
    )
    assert (claim_result.verdict == "not decided") == (p_value > 0.05)
    assert "counts" not in judge_larger(CLAIM, first, second, "difference").measured


@pytest.mark.parametrize(
    ("first", "verdict"),
    [([1.001, 0.999, 1.0], "supported"), ([1.5, 1.51, 1.49], "not supported"), ([1.5, 0.6, 1.0], "not decided")],
)
def test_equal(first: list[float], verdict: str) -> None:
    second = {0: 1.0, 1: 1.0, 2: 1.0}
    assert judge_equal(CLAIM, dict(enumerate(first)), second, "difference", tolerance=0.1).verdict == verdict


def test_exactly() -> None:
    assert judge_exactly(CLAIM, "counted", holds=True).verdict == "supported"
    assert judge_exactly(CLAIM, "counted", holds=False).verdict == "not supported"


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ({"a": [1.0, 1.2, 1.1], "b": [0.1, 0.2, 0.3]}, "supported"),
        ({"a": [1.0, 1.2, 1.1], "b": [5.0, 5.2, 5.1]}, "not supported"),
        ({"a": [1.0, 1.2, 1.1], "b": [1.0, 5.2, 2.1]}, "not decided"),
        ({"a": [1.0, 1.2, 1.1], "b": []}, "not decided"),
        # The best of both, seed by seed, would be larger, though neither is.
        ({"a": [2.9, 1.0, 2.9], "b": [1.0, 3.1, 1.0]}, "not decided"),
    ],
)
def test_larger_than_all(others: dict[str, list[float]], verdict: str) -> None:
    by_seed = {name: dict(enumerate(values)) for name, values in others.items()}
    claim_result = judge_larger_than_all(CLAIM, {0: 3.0, 1: 3.0, 2: 3.2}, by_seed, "size of one")
    assert claim_result.verdict == verdict
    assert claim_result.measured.startswith("size of one minus that of each other: a: ")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["supported", "supported"], "supported"),
        (["supported", "not decided"], "not decided"),
        (["not decided", "not supported", "supported"], "not supported"),
        ([], "not decided"),
    ],
    ids=str,
)
def test_a_claim_of_several_parts_needs_all(verdicts: list[Verdict], expected: Verdict) -> None:
    assert combine_verdicts(verdicts) == expected


@pytest.mark.parametrize(
    ("low", "high", "above", "within"),
    [
        (1.5, 2.5, "supported", "not decided"),
        (1.2, 1.8, "supported", "supported"),
        (0.5, 1.5, "not decided", "not decided"),
        (0.2, 0.8, "not supported", "not supported"),
        (2.2, 2.8, "supported", "not supported"),
    ],
    ids=str,
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, above: Verdict, within: Verdict) -> None:
    found = Interval((low + high) / 2, low, high, 3)
    assert judge_interval_above(found, 1.0) == above
    assert judge_interval_within(found, 1.0, 2.0) == within


def test_ratios_are_compared_by_their_logarithms() -> None:
    first, second = {1: 8.0, 2: 2.0, 3: 4.0}, {1: 2.0, 2: 1.0, 3: 1.0, 4: 9.0}
    found = compare_ratio(first, second)
    assert found.mean == pytest.approx((4 * 2 * 4) ** (1 / 3))
    other_way = compare_ratio(second, first)
    assert (other_way.mean, other_way.low, other_way.high) == pytest.approx(
        (1 / found.mean, 1 / found.high, 1 / found.low)
    )
    logarithms = confidence_interval([math.log(4), math.log(2), math.log(4)])
    assert (found.low, found.high) == pytest.approx((math.exp(logarithms.low), math.exp(logarithms.high)))
    assert compare_ratio({1: 2.0}, {1: 1.0}).high == math.inf
    assert compare_ratio({}, {}).num_seeds == 0


@pytest.mark.parametrize(
    ("times", "verdict"),
    [([30.0, 40.0, 9.0], "supported"), ([0.4, 0.5, 0.6], "not supported"), ([3.0, 1.5, 0.9], "not decided")],
)
def test_a_ratio_is_above_its_threshold(times: list[float], verdict: str) -> None:
    assert (
        judge_ratio_above(CLAIM, dict(enumerate(times)), dict.fromkeys(range(3), 1.0), 1.0, "time").verdict == verdict
    )


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ([1.1, 0.9, 1.0], "supported"),
        ([2.0, 2.1, 1.9], "not supported"),
        ([0.4, 0.41, 0.39], "not supported"),
        ([1.0, 2.5, 0.7], "not decided"),
        ([1.0], "not decided"),
        ([], "not decided"),
    ],
)
def test_a_ratio_is_near_one(times: list[float], verdict: str) -> None:
    first = {seed: 3 * time for seed, time in enumerate(times)}
    assert judge_ratio_equal(CLAIM, first, dict.fromkeys(range(3), 3.0), "time", tolerance=0.5).verdict == verdict
