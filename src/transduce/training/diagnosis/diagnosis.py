"""All checks of a run's health in one place: what is measured when, and what is said once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.kernels.device import find_device
from transduce.model import Transformer
from transduce.training.diagnosis import initial_checks, learning_checks, output_checks
from transduce.training.diagnosis.history import Check, Finding, History, Line
from transduce.training.diagnosis.source_use import SourceProbe
from transduce.training.metrics import MetricsLog
from transduce.training.precision import resolve_precision
from transduce.training.ranks import Ranks
from transduce.training.sharding import whole_model

LOOK_EVERY, YOUNG, LATER_EVERY = 50, 1000, 200
"""Updates between two looks at the model: the first while it is young, the last from update `YOUNG` on. A look takes
about as long as an update."""

CHECKS: Mapping[str, tuple[Check, Check | None]] = {
    "unrelated pairs": (initial_checks.unrelated_pairs, None),
    "swapped validation": (initial_checks.swapped_validation, None),
    "foreign validation": (initial_checks.foreign_validation, None),
    "high rate": (initial_checks.high_rate, None),
    "strong dropout": (initial_checks.strong_dropout, None),
    "unigram loss": (learning_checks.stays_at_unigram, learning_checks.is_below_unigram),
    "source ignored": (learning_checks.ignores_source, learning_checks.uses_source_now),
    "uniform attention": (learning_checks.attends_uniformly, learning_checks.attends_sharply_now),
    "rising loss": (learning_checks.loss_rises, learning_checks.loss_falls_again),
    "one output": (output_checks.writes_one_output, output_checks.writes_different_outputs),
    "repetition": (output_checks.repeats_itself, output_checks.repeats_less),
    "exposure bias": (output_checks.has_exposure_bias, output_checks.has_no_exposure_bias),
    "overfitting": (output_checks.overfits, output_checks.overfits_no_more),
}
"""Of every illness, what tells that a run has it, and what tells that it is over, if that can be."""


def new_findings(config: RunConfig, lines: Sequence[Line]) -> list[Finding]:
    """What to say after the last of these lines of metrics.jsonl that was not said before.

    Every illness is named once, and its end once. A pure function: a run that is resumed says the same.
    """
    run = History(config, lines)
    said = {(line["name"], line["is_over"]) for line in lines if line["kind"] == "finding"}
    findings = []
    for name, (is_ill, is_over) in CHECKS.items():
        if (name, False) not in said:
            if (text := is_ill(run)) is not None:
                findings.append(Finding(name, text))
        elif is_over is not None and (name, True) not in said and (text := is_over(run)) is not None:
            findings.append(Finding(name, text, is_over=True))
    return findings


class Diagnosis:
    """Looks at a run from time to time, and says what is wrong with it.

    Args:
        config: of the run.
        prepared: its data.
        metrics: where its figures are.
        log: puts figures of a kind on record.
        say: is told the findings.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: PreparedData,
        metrics: MetricsLog,
        log: Callable[[str, Mapping[str, object]], None],
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._log = log
        self._say = say
        device, training = find_device(config.training.device), config.training
        precision = resolve_precision(training.precision, device, config.model.d_model)
        self._probe = SourceProbe(prepared.validation, prepared.tokenizer, precision)

    def look(self, model: Transformer, update: int, ranks: Ranks) -> None:
        """Measure whether the model uses the source, if it is due after this update, and say what is new.

        The model is left as it was. All ranks must call this together; the first one measures.
        """
        if update % (LOOK_EVERY if update <= YOUNG else LATER_EVERY):
            return
        whole = whole_model(model, ranks)
        if ranks.is_first:
            self._log("source_use", asdict(self._probe.measure(whole)))
            self.tell()

    def tell(self) -> None:
        """Say what the figures on record show that was not said before, and put it on record."""
        for finding in new_findings(self._config, self._metrics.read()):
            self._log("finding", asdict(finding))
            self._say(f"{'over' if finding.is_over else 'warning'}: {finding.text}")
