"""Whether one system is better than another, or only luckier: sacreBLEU's paired tests on a test set."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float64
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from transduce.evaluation.scores import METRICS, choose_num_resamples, choose_tokenization, make_scorer, strip_lines
from transduce.evaluation.test_sets import SystemOutput, TestSet

SIGNIFICANCE_LEVEL = 0.05
"""A difference counts as significant if both tests would find one as large by chance in fewer than 5 % of cases."""

NUM_TRIALS = 10_000
"""Trials of approximate randomisation, sacreBLEU's default."""

SHUFFLED_LINES = 30_000_000
"""Maximum number of lines in all trials, which are in memory at once: about 10 bytes per line."""

POWER = 0.8
"""Share of test sets in which a difference of the size `Difference.detectable` is found, the usual one."""


@dataclass(frozen=True)
class Difference:
    """How the score of a system differs from that of a baseline on the same test set, and what chance would do."""

    metric: str
    baseline: float
    value: float
    p_bootstrap: float
    """Probability of a difference at least as large if the systems were equal, by paired bootstrap resampling of the
    lines (Koehn 2004)."""
    p_randomization: float
    """The same by approximate randomisation, which exchanges translations of both systems at random (Riezler & Maxwell
    2005)."""
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
        """The size of a difference that a test set like this one would show in four of five cases (`POWER`), about.

        It is that of a test by the normal distribution, with the standard error that was measured.
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
    """How much chance the two tests draw for a test set."""

    resamples: int
    """Resamples of paired bootstrap."""
    trials: int
    """Trials of approximate randomisation."""
    seed: int | None
    """Seed of both, that of sacreBLEU; None if `SACREBLEU_SEED` is none, so that every time has its own."""


def choose_resampling(num_lines: int) -> Resampling:
    """Those for a test set of this size: sacreBLEU's defaults, and fewer for more than 3,000 lines."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    return Resampling(
        choose_num_resamples(num_lines),
        min(NUM_TRIALS, max(1000, SHUFFLED_LINES // num_lines)),
        None if seed.lower() == "none" else int(seed),
    )


def measure_differences(
    test_set: TestSet,
    outputs: Sequence[SystemOutput],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    tokenization: str | None = None,
) -> list[list[Difference]]:
    """Compare systems with the first one, the baseline, as `sacrebleu --paired-bs` and `--paired-ar` do.

    Args:
        test_set: the sentences and their references.
        outputs: translations by the baseline, and by each system that is compared with it.
        metrics: names in `METRICS`.
        tokenization: of BLEU; by default that of `choose_tokenization`.

    Returns:
        For each system after the first, its differences in the order of `metrics`, not corrected for their number: see
        `correct_for_several_systems`. The same translations always give the same figures. The larger the test set, the
        fewer the resamples and trials beyond 3,000 lines. The probabilities are sacreBLEU's, except for a system whose
        translations are those of the baseline: 1, where sacreBLEU, which counts larger differences than 0 and finds
        none, has one near 0.
    """
    tokenization = tokenization or choose_tokenization(test_set.references[0])
    systems = [strip_lines(output.hypotheses) for output in outputs]
    references = [strip_lines(one) for one in test_set.references]
    counts = choose_resampling(len(test_set.sources))
    found: list[list[Difference]] = [[] for _ in systems[1:]]
    for metric in metrics:
        name, scorer = make_scorer(metric, tokenization)
        trials = _run_randomization(systems, {name: scorer}, references, counts.trials)
        resampled = _resample_scores(systems, scorer, references, counts)
        for own, lines, trial, scores in zip(found, systems[1:], trials[1:], resampled[1:], strict=True):
            differences = scores - resampled[0]
            low, high = np.quantile(differences, (0.025, 0.975))
            baseline, value = float(trials[0].score), float(trial.score)
            is_same = lines == systems[0]
            own.append(
                Difference(
                    name,
                    baseline,
                    value,
                    1.0 if is_same else _compute_bootstrap_p(differences, value - baseline),
                    1.0 if is_same else float(cast("float", trial.p_value)),
                    float(low),
                    float(high),
                    float(differences.std()),
                )
            )
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


def _run_randomization(
    systems: Sequence[list[str]], scorer: dict[str, Metric], references: Sequence[list[str]], count: int
) -> list[Result]:
    """SacreBLEU's results of approximate randomisation for each system."""
    named: list[tuple[str, Sequence[str]]] = [(str(number), lines) for number, lines in enumerate(systems)]
    _, found = PairedTest(named, scorer, references, "ar", count)()
    # Beside the names of the systems, there is one list: that of the metric.
    (results,) = (values for name, values in found.items() if name != "System")
    return cast("list[Result]", results)


def _resample_scores(
    systems: Sequence[list[str]], scorer: Metric, references: Sequence[list[str]], counts: Resampling
) -> Float64[np.ndarray, "systems resamples"]:
    """The scores of each system in resamples of the lines, which are the same ones for all.

    They are those of sacreBLEU's paired bootstrap, which has no interval of the difference.
    """
    num_lines = len(systems[0])
    drawn = np.random.default_rng(counts.seed).choice(num_lines, size=(counts.resamples, num_lines), replace=True)
    scores = []
    for lines in systems:
        # There is no public way to the counts of each line, of which a score is made.
        of_lines = np.array(scorer._extract_corpus_statistics(lines, references), dtype=np.float32)  # noqa: SLF001
        sums = (of_lines[sample].sum(0) for sample in drawn)
        scores.append([float(scorer._compute_score_from_stats(list(one)).score) for one in sums])  # noqa: SLF001
    return np.array(scores, np.float64)


def _compute_bootstrap_p(differences: Float64[np.ndarray, " resamples"], difference: float) -> float:
    """The probability as sacreBLEU computes it: the sizes of resampled differences vary around their mean by chance."""
    sizes = np.abs(differences)
    return float((1 + (sizes - sizes.mean() > abs(difference)).sum()) / (1 + len(sizes)))
