"""All checks of a run in one place: what is measured when, and what is reported once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.kernels.device import find_device
from transduce.model import Transformer
from transduce.training.diagnosis import initial_checks, learning_checks, output_checks
from transduce.training.diagnosis.history import Check, Finding, RunHistory
from transduce.training.diagnosis.learning_checks import SourceProbe
from transduce.training.distributed.ranks import Ranks
from transduce.training.distributed.sharding import gather_model
from transduce.training.reporting.metrics import Line, MetricsLog
from transduce.training.updater import resolve_precision

MEASURE_EVERY, YOUNG, LATER_EVERY = 50, 1000, 200
"""Updates between two measurements of the model: the first up to update `YOUNG`, the last from then on. A measurement
takes about as long as an update."""

CHECKS: Mapping[str, tuple[Check, Check | None]] = {
    "unrelated pairs": (initial_checks.find_unrelated_pairs, None),
    "swapped validation": (initial_checks.find_swapped_validation, None),
    "foreign validation": (initial_checks.find_foreign_validation, None),
    "high rate": (initial_checks.find_high_rate, None),
    "strong dropout": (initial_checks.find_strong_dropout, None),
    "unigram loss": (learning_checks.find_unigram_loss, learning_checks.find_end_of_unigram_loss),
    "source ignored": (learning_checks.find_ignored_source, learning_checks.find_end_of_ignored_source),
    "uniform attention": (learning_checks.find_uniform_attention, learning_checks.find_end_of_uniform_attention),
    "rising loss": (learning_checks.find_rising_loss, learning_checks.find_end_of_rising_loss),
    "one output": (output_checks.find_one_output, output_checks.find_end_of_one_output),
    "repetition": (output_checks.find_repetition, output_checks.find_end_of_repetition),
    "exposure bias": (output_checks.find_exposure_bias, output_checks.find_end_of_exposure_bias),
    "overfitting": (output_checks.find_overfitting, output_checks.find_end_of_overfitting),
}
"""For every problem, the check that finds it, and the check that finds that it is over, if it can be."""


def new_findings(config: RunConfig, lines: Sequence[Line]) -> list[Finding]:
    """Findings after the last of these lines of metrics.jsonl that they do not contain yet.

    Every problem is found once, and its end once. A pure function: a resumed run has the same findings.
    """
    run = RunHistory(config, lines)
    known = {(line["name"], line["is_over"]) for line in lines if line["kind"] == "finding"}
    findings = []
    for name, (find_problem, find_end) in CHECKS.items():
        if (name, False) not in known:
            if (text := find_problem(run)) is not None:
                findings.append(Finding(name, text))
        elif find_end is not None and (name, True) not in known and (text := find_end(run)) is not None:
            findings.append(Finding(name, text, is_over=True))
    return findings


class Diagnosis:
    """Measures a run from time to time, and reports and logs what is wrong with it.

    Args:
        config: of the run.
        prepared: its data.
        metrics: of the run.
        log: writes figures of a kind to metrics.jsonl.
        report: is told the findings.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: PreparedData,
        metrics: MetricsLog,
        log: Callable[[str, Mapping[str, object]], None],
        report: Callable[[str], None],
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._log = log
        self._report = report
        device, training = find_device(config.training.device), config.training
        precision = resolve_precision(training.precision, device, config.model.d_model)
        self._probe = SourceProbe(prepared.validation, prepared.tokenizer, precision)

    def measure(self, model: Transformer, update: int, ranks: Ranks) -> None:
        """Measure whether the model uses the source, if that is due after this update, and report new findings.

        The model stays as it is. All ranks call this together; the first one measures.
        """
        if update % (MEASURE_EVERY if update <= YOUNG else LATER_EVERY):
            return
        whole = gather_model(model, ranks)
        if ranks.is_first:
            self._log("source_use", asdict(self._probe.measure(whole)))
            self.report_findings()

    def report_findings(self) -> None:
        """Report and log the findings in metrics.jsonl that were not reported before."""
        for finding in new_findings(self._config, self._metrics.read()):
            self._log("finding", asdict(finding))
            self._report(f"{'over' if finding.is_over else 'warning'}: {finding.text}")
