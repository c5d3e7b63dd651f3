"""The plan of the experiment, and its verdicts from made-up figures."""

from pathlib import Path

import pytest

from transduce.lab import Laboratory, Measurement, Results
from transduce.lab.experiments.algorithms import BEYOND, EXPERIMENT, NETWORKS, TRAINED


def make_results(shares: dict[str, tuple[float, float]]) -> Results:
    """For each network, the shares of right sums of the length of training and of twice that length."""
    return Results(
        Measurement({"network": name}, 1, {f"exact, {TRAINED} bits": at, f"exact, {BEYOND} bits": beyond}, 1.0)
        for name, (at, beyond) in shares.items()
    )


def test_plan_has_every_network(tmp_path: Path) -> None:
    assert [trial.settings["network"] for trial in EXPERIMENT.plan(Laboratory(tmp_path, (1,)))] == list(NETWORKS)


@pytest.mark.parametrize(
    ("shares", "verdicts"),
    [
        ([(1.0, 1.0), (1.0, 0.5), (1.0, 0.0)], ["supported", "supported", "supported", "supported"]),
        ([(0.5, 0.1), (0.2, 0.0), (1.0, 1.0)], ["not supported"] * 4),
        ([(0.9, 0.91), (0.9, 0.0), (1.0, 0.1)], ["not decided"] * 4),
    ],
)
def test_verdicts(shares: list[tuple[float, float]], verdicts: list[str]) -> None:
    conclusion = EXPERIMENT.conclude(make_results(dict(zip(NETWORKS, shares, strict=True))))
    assert [finding.verdict for finding in conclusion.findings] == verdicts


def test_nothing_is_decided_from_nothing() -> None:
    assert {finding.verdict for finding in EXPERIMENT.conclude(Results([])).findings} == {"not decided"}


@pytest.mark.exhaustive
def test_every_network_is_trained_and_measured(tmp_path: Path) -> None:
    for trial in EXPERIMENT.plan(Laboratory(tmp_path, (1,), budget=5.0)):
        values = trial.measure(1)
        assert 0 <= values[f"exact, {TRAINED} bits"] <= 1
        assert values["parameters"] > 20_000
