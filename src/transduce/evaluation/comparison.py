"""The comparison of systems on a test set: scores, significance, a verdict in words, and where they differ."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from transduce.evaluation.analysis import (
    ClassScores,
    PhraseDifference,
    SentenceDifference,
    count_words,
    find_phrase_differences,
    find_sentence_differences,
    score_by_frequency,
    score_by_length,
)
from transduce.evaluation.comet import CometScorer, compare_lines, summarize_lines
from transduce.evaluation.scores import (
    METRICS,
    Score,
    check_tokenization,
    count_lines,
    score_corpus,
)
from transduce.evaluation.significance import (
    ROUNDING,
    Difference,
    Resampling,
    choose_resampling,
    correct_for_several_systems,
    measure_differences,
)
from transduce.evaluation.test_sets import SystemOutput, TestSet
from transduce.pages import Table, format_count
from transduce.text import choose_tokenization

FEW_LINES = 50
"""Below this number of lines, intervals by resampling may be too narrow (docs/experiments.md)."""


@dataclass(frozen=True)
class ComparedSystem:
    """A system's scores, and how they differ from those of the baseline."""

    output: SystemOutput
    scores: Sequence[Score]
    """With 95 % confidence intervals."""
    differences: Sequence[Difference] = ()
    """From the baseline, in the order of `scores`; none for the baseline itself."""

    @property
    def verdict(self) -> str:
        """What the differences say of this system, as in "better (BLEU, chrF); not decided (TER)"."""
        metrics: dict[str, list[str]] = {}
        for one in self.differences:
            metrics.setdefault(one.verdict, []).append(one.metric)
        if len(metrics) == 1:
            return next(iter(metrics))
        return "; ".join(f"{verdict} ({', '.join(names)})" for verdict, names in sorted(metrics.items()))


@dataclass(frozen=True)
class Comparison:
    """Systems on one test set, of which the first is the baseline."""

    test_set: TestSet
    tokenization: str
    """How BLEU splits text into words."""
    systems: Sequence[ComparedSystem]

    @property
    def verdicts(self) -> list[str]:
        """A sentence for each system after the baseline."""
        baseline = self.systems[0].output.system
        return [f"{one.output.system} against {baseline}: {one.verdict}" for one in self.systems[1:]]

    @property
    def resampling(self) -> Resampling:
        """Resamples, trials and seed of the tests."""
        return choose_resampling(len(self.test_set.sources))

    @property
    def size(self) -> str:
        """The size of the test set, as in "1,000 lines, 1 reference each"."""
        lines = format_count(len(self.test_set.sources), "line")
        return f"{lines}, {format_count(len(self.test_set.references), 'reference')} each"

    @property
    def notes(self) -> list[str]:
        """What has to be known to read the table: how it was tested, and what this test set cannot show."""
        resamples, trials, seed = self.resampling
        drawn = "no fixed seed" if seed is None else f"seed {seed}"
        notes = [f"paired bootstrap: {resamples:,} resamples; approximate randomisation: {trials:,} trials; {drawn}"]
        num_compared = len(self.systems) - 1
        if num_compared > 1:
            notes.append(
                f"corrected: the greater p, corrected for {num_compared} systems compared with one (Holm 1979); it "
                "decides"
            )
        for system in self.systems[1:]:
            # Resampling a test set of one line does not tell how much scores vary.
            undecided = [one for one in system.differences if not one.is_significant and one.standard_error > ROUNDING]
            if list(system.output.hypotheses) == list(self.systems[0].output.hypotheses):
                notes.append(f"{system.output.system}: the translations are those of the baseline")
            elif undecided:
                sizes = ", ".join(f"{one.metric} {one.detectable:.2f}" for one in undecided)
                notes.append(
                    f"{system.output.system}: not decided; a test set like this one would show a difference of about "
                    f"{sizes} in four of five cases"
                )
        if self._has_decided_overlap:
            notes.append(
                "95 % intervals of two scores may overlap where their difference is decided: both systems had the same "
                "lines, and the tests compare line by line"
            )
        if len(self.test_set.sources) < FEW_LINES:
            notes.append(f"fewer than {FEW_LINES} lines: intervals may be too narrow")
        return notes

    @property
    def _has_decided_overlap(self) -> bool:
        """Whether scores with a significant difference have intervals that overlap."""
        baseline, *others = self.systems
        return any(
            difference.is_significant and score.overlaps(first)
            for system in others
            for first, score, difference in zip(baseline.scores, system.scores, system.differences, strict=True)
        )

    def tabulate(self) -> Table:
        """The scores and differences of all systems, metric by metric."""
        is_corrected = len(self.systems) > 2
        heads = [
            "metric",
            "system",
            "score",
            "95 % interval",
            "difference",
            "its 95 % interval",
            "p, bootstrap",
            "p, randomisation",
            *(["p, corrected"] if is_corrected else []),
            "verdict",
        ]
        rows = []
        for number, score in enumerate(self.systems[0].scores):
            for system in self.systems:
                own = system.scores[number]
                row = [score.metric, system.output.system, f"{own.value:.2f}", f"{own.low:.2f} to {own.high:.2f}"]
                if system.differences:
                    one = system.differences[number]
                    row += [
                        f"{one.value - one.baseline:+.2f}",
                        f"{one.low:+.2f} to {one.high:+.2f}",
                        f"{one.p_bootstrap:.4f}",
                        f"{one.p_randomization:.4f}",
                        *([f"{one.p:.4f}"] if is_corrected else []),
                        one.verdict,
                    ]
                rows.append(row + [""] * (len(heads) - len(row)))
        return Table("", heads, rows, num_texts=2)

    def as_json(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        systems = []
        for system in self.systems:
            scores = {score.metric.lower(): _drop_none(vars(score), "metric") for score in system.scores}
            for one in system.differences:
                scores[one.metric.lower()] |= {
                    "difference": one.value - one.baseline,
                    "difference_low": one.low,
                    "difference_high": one.high,
                    "p_bootstrap": one.p_bootstrap,
                    "p_randomization": one.p_randomization,
                    "p": one.p,
                    "detectable": one.detectable,
                    "verdict": one.verdict,
                }
            systems.append({"system": system.output.system, "scores": scores})
        return {
            "test_set": self.test_set.name,
            "lines": len(self.test_set.sources),
            "references": len(self.test_set.references),
            "tests": self.resampling._asdict(),
            "systems": systems,
            "notes": self.notes,
        }


def _drop_none(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and key != name}


def compare_systems(
    test_set: TestSet,
    outputs: Sequence[SystemOutput],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    tokenization: str | None = None,
    comet: CometScorer | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Score systems on a test set, and test whether each differs from the first one, the baseline.

    Args:
        test_set: the sentences and their references.
        outputs: the translations of at least two systems.
        metrics: names in `METRICS`.
        tokenization: of BLEU and TER; by default that of `choose_tokenization`.
        comet: adds its scores.
        report: receives messages about progress.

    Raises:
        ConfigError: the tokenisation is unknown.
        UserError: COMET has failed.
    """
    tokenization = tokenization or choose_tokenization(test_set.references[0])
    check_tokenization(tokenization)
    report(f"{test_set.name}: computing scores and significance of {len(outputs)} systems")
    first, *more = test_set.references
    count = cache(count_lines)
    scores = [
        score_corpus(
            one.hypotheses,
            first,
            metrics,
            more_references=more,
            confidence=True,
            tokenization=tokenization,
            count=count,
        )
        for one in outputs
    ]
    differences = measure_differences(test_set, outputs, metrics, tokenization=tokenization, count=count)
    if comet is not None:
        signature = comet.signature
        baseline, *others = lines = comet.score(test_set, outputs, report)
        for own, values in zip(scores, lines, strict=True):
            own.append(summarize_lines(values, signature, confidence=True))
        for found, values in zip(differences, others, strict=True):
            found.append(compare_lines(baseline, values))
    corrected = [[], *correct_for_several_systems(differences)]
    systems = [ComparedSystem(*given) for given in zip(outputs, scores, corrected, strict=True)]
    return Comparison(test_set, tokenization, systems)


@dataclass(frozen=True)
class PairwiseAnalysis:
    """Where a system differs from the baseline."""

    system: str
    better_phrases: Sequence[PhraseDifference]
    worse_phrases: Sequence[PhraseDifference]
    better_sentences: Sequence[SentenceDifference]
    worse_sentences: Sequence[SentenceDifference]


@dataclass(frozen=True)
class Analysis:
    """Where the systems of a comparison differ."""

    by_length: ClassScores
    by_frequency: ClassScores
    pairs: Sequence[PairwiseAnalysis]
    """For each system after the baseline."""


def analyse(comparison: Comparison, frequencies: Counter[str] | None = None) -> Analysis:
    """Find where the systems of a comparison differ.

    Args:
        comparison: the systems and their translations.
        frequencies: how often each word occurs, in the target sentences of the training text for instance, by
            `count_words` with the tokenisation of the comparison; by default, in the references.
    """
    test_set, tokenization = comparison.test_set, comparison.tokenization
    outputs = [one.output for one in comparison.systems]
    if frequencies is None:
        frequencies = count_words(chain.from_iterable(test_set.references), tokenization)
    pairs = []
    for output in outputs[1:]:
        phrases = find_phrase_differences(test_set, outputs[0], output, tokenization)
        pairs.append(
            PairwiseAnalysis(output.system, *phrases, *find_sentence_differences(test_set, outputs[0], output))
        )
    return Analysis(
        score_by_length(test_set, outputs, tokenization),
        score_by_frequency(test_set, outputs, tokenization, frequencies),
        pairs,
    )
