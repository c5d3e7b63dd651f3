"""Whether one system is better than another, or only luckier: sacreBLEU's paired tests on a test set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

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

    @property
    def gain(self) -> float:
        """How much better the system is than the baseline, in points; of TER, lower is better."""
        return self.baseline - self.value if self.metric == METRICS["ter"][0] else self.value - self.baseline

    @property
    def is_significant(self) -> bool:
        """Whether both tests find the difference significant, see `SIGNIFICANCE_LEVEL`."""
        return max(self.p_bootstrap, self.p_randomization) < SIGNIFICANCE_LEVEL

    @property
    def verdict(self) -> str:
        """The result in one word or two: "better", "worse" or "not decided"."""
        if not self.is_significant:
            return "not decided"
        return "better" if self.gain > 0 else "worse"


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
        For each system after the first, its differences in the order of `metrics`. The same translations always give
        the same figures. The larger the test set, the fewer the resamples and trials beyond 3,000 lines. The
        probabilities are sacreBLEU's, except for a system whose translations are those of the baseline: 1, where
        sacreBLEU, which counts larger differences than 0 and finds none, has one near 0.
    """
    tokenization = tokenization or choose_tokenization(test_set.references[0])
    systems = [strip_lines(output.hypotheses) for output in outputs]
    references = [strip_lines(one) for one in test_set.references]
    num_lines = len(test_set.sources)
    scorers = [dict([make_scorer(metric, tokenization)]) for metric in metrics]
    num_trials = min(NUM_TRIALS, max(1000, SHUFFLED_LINES // num_lines))
    results = [
        (
            _run_paired_test("bs", systems, scorer, references, choose_num_resamples(num_lines)),
            _run_paired_test("ar", systems, scorer, references, num_trials),
        )
        for scorer in scorers
    ]
    return [
        [
            Difference(
                METRICS[metric][0],
                bootstrap[0].score,
                bootstrap[number].score,
                *(
                    1.0 if systems[number] == systems[0] else float(cast("float", found[number].p_value))
                    for found in (bootstrap, randomization)
                ),
            )
            for metric, (bootstrap, randomization) in zip(metrics, results, strict=True)
        ]
        for number in range(1, len(systems))
    ]


def _run_paired_test(
    kind: str, systems: Sequence[list[str]], scorer: dict[str, Metric], references: Sequence[list[str]], count: int
) -> list[Result]:
    """SacreBLEU's results for each system: "bs" is paired bootstrap resampling, "ar" approximate randomisation."""
    named: list[tuple[str, Sequence[str]]] = [(str(number), lines) for number, lines in enumerate(systems)]
    _, found = PairedTest(named, scorer, references, kind, count)()
    # Beside the names of the systems, there is one list: that of the metric.
    (results,) = (values for name, values in found.items() if name != "System")
    return cast("list[Result]", results)
