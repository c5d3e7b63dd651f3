"""A laboratory that takes no time to plan, measurements that are made up, and the verdicts that follow from them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from transduce.lab import Experiment, Laboratory, Measurement, Results, TextFiles, run_experiment


@pytest.fixture
def planned(text_files: TextFiles, tmp_path: Path) -> Laboratory:
    """A laboratory that has already decided on 60 updates, so that planning measures nothing."""
    laboratory = Laboratory(tmp_path / "planned", text_files=text_files)
    laboratory.remember("updates", lambda: 60)
    return laboratory


@pytest.fixture
def make_up() -> Callable[..., list[Measurement]]:
    """Measurements of one trial, given its settings and the values of each quantity for the seeds 1, 2, 3 and so on."""

    def make(settings: Mapping[str, str | float], **values: Sequence[float]) -> list[Measurement]:
        num_seeds = max(map(len, values.values()))
        return [
            Measurement(settings, seed + 1, {name: of_seeds[seed] for name, of_seeds in values.items()}, 1.0)
            for seed in range(num_seeds)
        ]

    return make


@pytest.fixture
def judge() -> Callable[[Experiment, Sequence[Measurement]], list[str]]:
    """The verdicts about the claims of an experiment, in their order."""

    def find_verdicts(experiment: Experiment, measurements: Sequence[Measurement]) -> list[str]:
        findings = experiment.conclude(Results(measurements)).findings
        assert [finding.claim for finding in findings] == list(experiment.claims)
        return [finding.verdict for finding in findings]

    return find_verdicts


@pytest.fixture
def check_whole_run(tmp_path: Path) -> Callable[[str], None]:
    """Runs an experiment on generated text with a budget of seconds, from its plan to its report, and once more."""

    def check(name: str) -> None:
        laboratory = Laboratory(tmp_path / "whole", (1,), budget=5.0)
        report = run_experiment(name, laboratory)
        assert report.conclusion.findings
        assert (laboratory.folder / "report.html").is_file()
        measurements = (laboratory.folder / "measurements.jsonl").read_bytes()
        run_experiment(name, laboratory)  # nothing is missing, so that nothing is measured
        assert (laboratory.folder / "measurements.jsonl").read_bytes() == measurements

    return check
