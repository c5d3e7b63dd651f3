"""Whether one system is better than another, or only luckier: paired tests on a test set, as sacreBLEU has them."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from sacrebleu.metrics.base import Metric

from transduce.evaluation.scores import (
    METRICS,
    CountLines,
    choose_num_resamples,
    count_lines,
    make_scorer,
    read_seed,
    strip_lines,
)
from transduce.evaluation.test_sets import SystemOutput, TestSet
from transduce.text import choose_tokenization

SIGNIFICANCE_LEVEL = 0.05
"""A difference counts as significant if both tests would find one as large by chance in fewer than 5 % of cases."""

NUM_TRIALS = 10_000
"""Trials of approximate randomisation, sacreBLEU's default."""

SHUFFLED_LINES = 30_000_000
"""Maximum number of lines that are drawn at a time, one byte each; of larger test sets there are so many fewer trials
that this is all of them, but at least 1,000 trials."""

SUMMED_LINES = 4_000_000
"""Maximum number of lines of trials that are summed at a time."""

ROUNDING = 1e-9
"""Tolerance in points when differences are compared: sums are rounded, so equal differences may deviate by this."""

POWER = 0.8
"""Statistical power: share of test sets on which a true difference of `Difference.detectable` points is significant."""


@dataclass(frozen=True)
class Difference:
    """How the score of a system differs from that of a baseline on the same test set, and what chance would do."""

    metric: str
    baseline: float
    value: float
    p_bootstrap: float
    """p by paired bootstrap resampling of the lines (Koehn 2004), computed as sacreBLEU does: the share of resamples
    whose absolute difference exceeds the mean absolute difference of all by at least the measured one. This test is
    one-sided, so that p is smaller than the probability of as large a difference in either direction."""
    p_randomization: float
    """Probability of a difference at least as large, in either direction, if the systems were equal, by approximate
    randomisation, which exchanges translations of both systems at random (Riezler & Maxwell 2005)."""
    low: float
    """Lower end of the 95 % confidence interval of the difference, `value` minus `baseline`, by paired bootstrap."""
    high: float
    """Upper end of the interval."""
    standard_error: float
    """Standard deviation of the difference in the resamples of paired bootstrap."""
    p_corrected: float | None = None
    """If several systems are compared with the baseline: the greater p, corrected for that (Holm 1979)."""
    num_comparisons: int = 1
    """Number of systems that are compared with the baseline."""

    @property
    def p(self) -> float:
        """The probability that decides: the greater one of both tests, corrected if several systems are compared."""
        return max(self.p_bootstrap, self.p_randomization) if self.p_corrected is None else self.p_corrected

    @property
    def detectable(self) -> float:
        """The size of a true difference that about four of five test sets like this one (`POWER`) would show.

        It is computed for a test by the normal distribution with the measured standard error.
        """
        normal = NormalDist()
        level = 1 - SIGNIFICANCE_LEVEL / (2 * self.num_comparisons)
        return (normal.inv_cdf(level) + normal.inv_cdf(POWER)) * self.standard_error

    @property
    def gain(self) -> float:
        """How much better the system is than the baseline, in points; of TER, lower is better."""
        return self.baseline - self.value if self.metric == METRICS["ter"][0] else self.value - self.baseline

    @property
    def is_significant(self) -> bool:
        """Whether both tests find the difference significant, see `SIGNIFICANCE_LEVEL`."""
        return self.p < SIGNIFICANCE_LEVEL

    @property
    def verdict(self) -> str:
        """The result in one word or two: "better", "worse" or "not decided"."""
        if not self.is_significant:
            return "not decided"
        return "better" if self.gain > 0 else "worse"


class Resampling(NamedTuple):
    """The numbers of random draws of the two tests on a test set, and their seed."""

    resamples: int
    """Resamples of paired bootstrap."""
    trials: int
    """Trials of approximate randomisation."""
    seed: int | None
    """Seed of both, that of sacreBLEU; None if `SACREBLEU_SEED` is none, so that every time has its own."""


def choose_resampling(num_lines: int) -> Resampling:
    """The numbers of draws for a test set of this size: sacreBLEU's defaults, and fewer for more than 3,000 lines."""
    return Resampling(
        choose_num_resamples(num_lines), min(NUM_TRIALS, max(1000, SHUFFLED_LINES // num_lines)), read_seed()
    )


def measure_differences(
    test_set: TestSet,
    outputs: Sequence[SystemOutput],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    tokenization: str | None = None,
    count: CountLines = count_lines,
) -> list[list[Difference]]:
    """Compare systems with the first one, the baseline, as `sacrebleu --paired-bs` and `--paired-ar` do.

    Args:
        test_set: the sentences and their references.
        outputs: translations by the baseline, and by each system that is compared with it.
        metrics: names in `METRICS`.
        tokenization: of BLEU and TER; by default that of `choose_tokenization`.
        count: counts the lines; a cache of `count_lines` where they are scored again.

    Returns:
        For each system after the first, its differences in the order of `metrics`, not corrected for the number of
        systems: see `correct_for_several_systems`. The same translations always give the same figures.

        Beyond 3,000 lines, there are fewer resamples and trials. Up to 3,000 lines, random numbers are those of
        sacreBLEU, and probabilities differ from sacreBLEU's only by ties: differences by chance that are exactly as
        large as the measured one. Ties count here and not in sacreBLEU, where a single different line would therefore
        be significant. Randomisation often has ties where systems differ in few lines, and in TER, which counts whole
        edits, where the scores are close.

    Raises:
        ConfigError: see `read_seed`.
    """
    tokenization = tokenization or choose_tokenization(test_set.references[0])
    systems = [tuple(strip_lines(output.hypotheses)) for output in outputs]
    references = tuple(tuple(strip_lines(one)) for one in test_set.references)
    num_lines = len(test_set.sources)
    resampling = choose_resampling(num_lines)
    seed = secrets.randbits(64) if resampling.seed is None else resampling.seed  # all systems have the same draws
    found: list[list[Difference]] = [[] for _ in systems[1:]]
    for metric in metrics:
        name, scorer = make_scorer(metric, tokenization)
        baseline, *others = (np.array(count(metric, tokenization, lines, references), np.float64) for lines in systems)
        resampled_baseline = _score(scorer, _sum_resamples(baseline, resampling.resamples, seed))
        for own, lines in zip(found, others, strict=True):
            value_before, value = _score(scorer, np.stack([baseline.sum(axis=0), lines.sum(axis=0)])).tolist()
            resampled = _score(scorer, _sum_resamples(lines, resampling.resamples, seed)) - resampled_baseline
            exchanged = _sum_exchanged(baseline - lines, resampling.trials, seed)
            by_chance = _score(scorer, lines.sum(axis=0) + exchanged) - _score(scorer, baseline.sum(axis=0) - exchanged)
            own.append(make_difference(name, value_before, value, resampled, by_chance))
    return found


def correct_for_several_systems(differences: Sequence[Sequence[Difference]]) -> list[list[Difference]]:
    """Correct the probabilities for the number of systems that are compared with the baseline, metric by metric.

    The more systems, the more probable it is that one of them seems to differ. Holm's (1979) correction keeps the
    probability of any wrong verdict about a metric below `SIGNIFICANCE_LEVEL`: the smallest of n probabilities is
    multiplied by n, the next one by n - 1, and so on. Nothing changes for a single system.

    Args:
        differences: for each system, those of `measure_differences`.
    """
    count = len(differences)
    corrected = [list(own) for own in differences]
    if count < 2:
        return corrected
    for metric in range(len(differences[0])):
        least = 0.0
        in_order = sorted(range(count), key=lambda system: differences[system][metric].p)
        for rank, system in enumerate(in_order):
            least = max(least, min(1.0, (count - rank) * differences[system][metric].p))
            corrected[system][metric] = replace(differences[system][metric], p_corrected=least, num_comparisons=count)
    return corrected


def make_difference(
    metric: str,
    baseline: float,
    value: float,
    resampled: Float64[np.ndarray, " resamples"],
    by_chance: Float64[np.ndarray, " trials"],
) -> Difference:
    """Test the difference of two scores.

    Args:
        metric: the name of the metric.
        baseline: the score of the baseline.
        value: the score of the system.
        resampled: the differences in the resamples of the lines.
        by_chance: the differences in the trials that exchange translations.
    """
    low, high = np.quantile(resampled, (0.025, 0.975))
    sizes = np.abs(resampled)
    return Difference(
        metric,
        baseline,
        value,
        _compute_p(sizes - sizes.mean(), value - baseline),
        _compute_p(np.abs(by_chance), value - baseline),
        float(low),
        float(high),
        float(resampled.std()),
    )


def _compute_p(by_chance: Float64[np.ndarray, " draws"], difference: float) -> float:
    """The probability of a difference of at least this size, from the sizes of differences by chance."""
    return float((1 + (by_chance >= abs(difference) - ROUNDING).sum()) / (1 + len(by_chance)))


def _score(scorer: Metric, sums: Float64[np.ndarray, "texts counts"]) -> Float64[np.ndarray, " texts"]:
    """The score of each text, from the counts of all its lines together."""
    return np.array([float(scorer._compute_score_from_stats(one).score) for one in sums.tolist()], np.float64)  # noqa: SLF001


def _sum_resamples(
    counts: Float64[np.ndarray, "lines counts"], num_resamples: int, seed: int
) -> Float64[np.ndarray, "{num_resamples} counts"]:
    """The summed counts of each resample of the lines."""
    generator = np.random.default_rng(seed)
    resamples = (generator.choice(len(counts), size=len(counts), replace=True) for _ in range(num_resamples))
    return np.stack([counts[sample].sum(axis=0) for sample in resamples])


def _sum_exchanged(
    differences: Float64[np.ndarray, "lines counts"], num_trials: int, seed: int
) -> Float64[np.ndarray, "{num_trials} counts"]:
    """How much the summed counts of a text change in each trial, in which chosen lines are those of another text."""
    generator = np.random.default_rng(seed)
    drawn_at_a_time = max(1, SHUFFLED_LINES // len(differences))
    summed_at_a_time = max(1, SUMMED_LINES // len(differences))
    sums = []
    for first in range(0, num_trials, drawn_at_a_time):
        size = (min(drawn_at_a_time, num_trials - first), len(differences))
        trials = generator.integers(2, size=size, dtype=bool)
        parts = (trials[start : start + summed_at_a_time] for start in range(0, len(trials), summed_at_a_time))
        sums += [part.astype(np.float64) @ differences for part in parts]
    return np.concatenate(sums)
