"""Confidence intervals over seeds, paired comparisons, and the verdicts that follow from them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from transduce.errors import MissingExtraError
from transduce.lab.conclusion import Claim, ClaimResult, Verdict
from transduce.lab.measurements import BySeed, Results, Value

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean over seeds with its 95 % confidence interval (Student's t); infinite if there is only one seed."""

    mean: float
    low: float
    high: float
    num_seeds: int

    def format(self, form: str = ".3g") -> str:
        """The interval as text, as in "0.31 (0.27 to 0.35)"; the mean alone where there is only one seed."""
        if not self.num_seeds:
            return "not measured"
        if self.num_seeds == 1:
            return f"{self.mean:{form}} (one seed)"
        return f"{self.mean:{form}} ({self.low:{form}} to {self.high:{form}})"


def confidence_interval(values: Iterable[float] | BySeed) -> Interval:
    """The interval of the mean of `values`, one for each seed.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    numbers = list(values.values() if isinstance(values, Mapping) else values)
    count = len(numbers)
    if not count:
        return Interval(math.nan, -math.inf, math.inf, 0)
    mean = math.fsum(numbers) / count
    if count == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    variance = math.fsum((number - mean) ** 2 for number in numbers) / (count - 1)
    width = float(_import_stats().t.ppf((1 + CONFIDENCE) / 2, count - 1)) * math.sqrt(variance / count)
    return Interval(mean, mean - width, mean + width, count)


def format_mean(results: Results, quantity: str, form: str, **settings: Value) -> str:
    """The mean of a quantity over the seeds, with its interval, as a table shows it; `form` is that of a number."""
    return confidence_interval(results.by_seed(quantity, **settings)).format(form)


def format_means(results: Results, forms: Mapping[str, str], **settings: Value) -> list[str]:
    """The cells of a row: `format_mean` of every quantity in `forms`, in the form that stands there."""
    return [format_mean(results, quantity, form, **settings) for quantity, form in forms.items()]


def compare(first: BySeed, second: BySeed) -> Interval:
    """The mean difference `first` - `second` over the seeds that both have: a paired comparison (Student's t)."""
    return confidence_interval([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])


def compare_ratio(first: BySeed, second: BySeed) -> Interval:
    """The mean ratio `first` / `second` over the seeds that both have, of quantities above zero, as times are.

    It is the geometric mean, with the interval of the logarithms (Student's t): half as long and twice as long are then
    equally far from the same.
    """
    logarithms = [math.log(first[seed] / second[seed]) for seed in sorted(first.keys() & second.keys())]
    found = confidence_interval(logarithms)
    return Interval(math.exp(found.mean), _exponentiate(found.low), _exponentiate(found.high), found.num_seeds)


def _exponentiate(value: float) -> float:
    """The exponential of `value`; infinite where that is too large for a float."""
    return math.exp(value) if value < 700 else math.inf


def compute_p_value(first: BySeed, second: BySeed, margin: float = 0.0) -> float:
    """The two-sided p-value of the paired t-test of the difference `first` - `second` against `margin`.

    NaN with fewer than two seeds, or if all differences are equal.
    """
    difference = compare(first, second)
    if difference.num_seeds < 2 or difference.low == difference.high:
        return math.nan
    # The interval is `quantile` standard errors wide on either side.
    quantile = float(_import_stats().t.ppf((1 + CONFIDENCE) / 2, difference.num_seeds - 1))
    t = quantile * (difference.mean - margin) / (difference.high - difference.mean)
    return float(2 * _import_stats().t.sf(abs(t), difference.num_seeds - 1))


def judge_larger(
    claim: Claim, larger: BySeed, smaller: BySeed, what: str, *, margin: float = 0.0, form: str = ".3g"
) -> ClaimResult:
    """The result for the claim that one quantity is larger than another, by more than `margin`.

    Supported if the whole confidence interval of the paired difference lies above `margin`, not supported if all of it
    lies below, and else not decided.

    Args:
        claim: what the paper says.
        larger: the quantity that is larger if the claim holds.
        smaller: the other.
        what: names the difference, as in "BLEU with eight heads minus BLEU with one".
        margin: the least difference that counts; the report states it, and the t-test is against it.
        form: how numbers are printed.
    """
    difference = compare(larger, smaller)
    p_value = compute_p_value(larger, smaller, margin)
    counted, against = (f", where more than {margin:{form}} counts", " against that:") if margin else ("", "")
    tested = "" if math.isnan(p_value) else f"; paired t-test{against} p = {p_value:.2g}"
    return ClaimResult(
        claim, f"{what}: {difference.format(form)}{counted}{tested}", judge_interval_above(difference, margin)
    )


def judge_larger_than_all(
    claim: Claim, larger: BySeed, others: Mapping[str, BySeed], what: str, *, form: str = ".3g"
) -> ClaimResult:
    """The result for the claim that one quantity is larger than each of several others.

    Supported if `judge_larger` supports it against each of them, not supported if it does not against one, and else
    not decided. The best of the others is not chosen seed by seed: the maximum of noisy figures is too high.

    Args:
        claim: what the paper says.
        larger: the quantity that is larger if the claim holds.
        others: the others by name.
        what: names the quantity, as in "BLEU of the Transformer".
        form: how numbers are printed.
    """
    claim_results = {name: judge_larger(claim, larger, values, "", form=form) for name, values in others.items()}
    verdict = combine_verdicts(claim_result.verdict for claim_result in claim_results.values())
    differences = ", ".join(f"{name}{claim_result.measured}" for name, claim_result in claim_results.items())
    return ClaimResult(claim, f"{what} minus that of each other: {differences}", verdict)


def judge_equal(
    claim: Claim, first: BySeed, second: BySeed, what: str, *, tolerance: float, form: str = ".3g"
) -> ClaimResult:
    """The result for the claim that two quantities are nearly the same: that they differ by less than `tolerance`.

    Supported if the whole confidence interval of the paired difference lies within ± `tolerance`, not supported if all
    of it lies outside on one side, and else not decided.
    """
    difference = compare(first, second)
    measured = f"{what}: {difference.format(form)}, where up to ±{tolerance:{form}} counts as the same"
    return ClaimResult(claim, measured, judge_interval_within(difference, -tolerance, tolerance))


def judge_above(claim: Claim, values: BySeed, threshold: float, what: str) -> ClaimResult:
    """The result for the claim that a quantity is above `threshold`.

    Supported if its whole confidence interval lies above, not supported if all of it lies below, and else not decided.
    """
    interval = confidence_interval(values)
    measured = f"{what}: {interval.format('.3g')}, where more than {threshold:.3g} counts"
    return ClaimResult(claim, measured, judge_interval_above(interval, threshold))


def judge_ratio_above(claim: Claim, first: BySeed, second: BySeed, threshold: float, what: str) -> ClaimResult:
    """The result for the claim that `first` is more than `threshold` times `second`; both are above zero.

    Supported if the whole confidence interval of `compare_ratio` lies above, not supported if all of it lies below, and
    else not decided.
    """
    ratio = compare_ratio(first, second)
    measured = f"{what}: {ratio.format('.3g')}, where more than {threshold:.3g} counts"
    return ClaimResult(claim, measured, judge_interval_above(ratio, threshold))


def judge_ratio_equal(claim: Claim, first: BySeed, second: BySeed, what: str, *, tolerance: float) -> ClaimResult:
    """The result for the claim that `first` is nearly `second`, as a ratio; both are above zero.

    Supported if the whole confidence interval of `compare_ratio` lies within 1 ± `tolerance`, not supported if all of
    it lies outside on one side, and else not decided.
    """
    ratio, lowest, highest = compare_ratio(first, second), 1 - tolerance, 1 + tolerance
    measured = f"{what}: {ratio.format('.3g')}, where {lowest:.3g} to {highest:.3g} counts as the same"
    return ClaimResult(claim, measured, judge_interval_within(ratio, lowest, highest))


def judge_share_above(claim: Claim, num_right: int, num_all: int, threshold: float, what: str) -> ClaimResult:
    """The result for the claim that more than `threshold` of all cases are right, from a number of independent ones.

    The interval is the exact one of a binomial share (Clopper & Pearson 1934). Supported if all of it lies above the
    threshold, not supported if all of it lies below, and else not decided.
    """
    if not num_all:
        return ClaimResult(claim, f"{what}: not measured", "not decided")
    low, high = _import_stats().binomtest(num_right, num_all).proportion_ci(CONFIDENCE)
    interval = Interval(num_right / num_all, float(low), float(high), num_all)
    text = f"{interval.mean:.1%} ({interval.low:.1%} to {interval.high:.1%}) of {num_all:,}"
    return ClaimResult(
        claim, f"{what}: {text}, where more than {threshold:.0%} counts", judge_interval_above(interval, threshold)
    )


def judge_exactly(claim: Claim, measured: str, *, holds: bool | None) -> ClaimResult:
    """The result for a claim that was checked without uncertainty: by counting, or against a formula.

    `holds` is None if what decides was not measured.
    """
    if holds is None:
        return ClaimResult(claim, "not measured", "not decided")
    return ClaimResult(claim, measured, "supported" if holds else "not supported")


def judge_interval_above(found: Interval, threshold: float) -> Verdict:
    """Supported if all of an interval lies above `threshold`, not supported if all lies below, else not decided."""
    if found.low > threshold:
        return "supported"
    return "not supported" if found.high < threshold else "not decided"


def judge_interval_within(found: Interval, lowest: float, highest: float) -> Verdict:
    """Supported if all of an interval lies within limits, not supported if all lies on one side, else not decided."""
    if lowest < found.low and found.high < highest:
        return "supported"
    return "not supported" if found.low > highest or found.high < lowest else "not decided"


def combine_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim that has several parts: supported if all are, not supported if one is not."""
    found = set(verdicts)
    if "not supported" in found:
        return "not supported"
    return "supported" if found == {"supported"} else "not decided"


def _import_stats() -> Any:  # noqa: ANN401 - a module without types
    try:
        from scipy import stats  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtraError("scipy", "lab", "confidence intervals and tests") from error
    return stats
