"""The plans of addition and multiplication, and verdicts from made-up figures."""

from pathlib import Path

import pytest

from transduce.lab import Experiment, Laboratory, Measurement, Results
from transduce.lab.experiments import addition, multiplication
from transduce.lab.experiments.algorithms.comparison import NETWORKS, Operation

OPERATIONS = [(addition.ADDITION, addition.EXPERIMENT), (multiplication.MULTIPLICATION, multiplication.EXPERIMENT)]


def make_results(operation: Operation, *seeds: list[tuple[float, float]]) -> Results:
    """For each seed and network, the shares of right results of the length of training and of twice that length."""
    return Results(
        Measurement(
            {"network": name},
            seed,
            {f"exact, {operation.longest} bits": at, f"exact, {operation.beyond} bits": beyond},
            1.0,
        )
        for seed, shares in enumerate(seeds)
        for name, (at, beyond) in zip(NETWORKS, shares, strict=True)
    )


@pytest.mark.parametrize(("operation", "experiment"), OPERATIONS)
def test_plan_has_every_network(operation: Operation, experiment: Experiment, tmp_path: Path) -> None:
    assert [trial.settings["network"] for trial in experiment.plan(Laboratory(tmp_path, (1,)))] == list(NETWORKS)
    trainings = [one.training for one in (operation.neural_gpu, operation.extended, operation.transformer)]
    assert len({(one.task, one.longest_length, one.test_lengths, one.num_tests) for one in trainings}) == 1
    assert {operation.longest, operation.beyond} <= set(operation.training.test_lengths)


@pytest.mark.parametrize(("operation", "experiment"), OPERATIONS)
@pytest.mark.parametrize(
    ("shares", "verdicts"),
    [
        ([(1.0, 1.0), (1.0, 0.5), (1.0, 0.0)], ["supported", "supported", "supported", "supported"]),
        ([(0.5, 0.1), (0.2, 0.0), (1.0, 1.0)], ["not supported"] * 4),
        ([(0.9, 0.91), (0.9, 0.0), (1.0, 0.1)], ["not decided"] * 4),
        ([(1.0, 1.0), (1.0, 1.0), (0.5, 0.0)], ["supported"] * 3 + ["not decided"]),  # it has not learned to add
    ],
)
def test_verdicts(
    operation: Operation, experiment: Experiment, shares: list[tuple[float, float]], verdicts: list[str]
) -> None:
    found = [
        claim_result.verdict for claim_result in experiment.conclude(make_results(operation, shares)).claim_results
    ]
    assert found == verdicts[: len(experiment.claims)]


def test_several_seeds_are_the_cases() -> None:
    good, bad = [(1.0, 1.0)] * 3, [(1.0, 0.0)] * 3

    def judge(*seeds: list[tuple[float, float]]) -> str:
        return addition.EXPERIMENT.conclude(make_results(addition.ADDITION, *seeds)).claim_results[1].verdict

    assert (judge(good, good, good), judge(bad, bad, bad)) == ("supported", "not supported")
    assert judge(good, good, bad) == "not decided"  # though two thirds of all sums are right


def test_nothing_is_decided_from_nothing() -> None:
    for _, experiment in OPERATIONS:
        claim_results = experiment.conclude(Results([])).claim_results
        assert [claim_result.claim for claim_result in claim_results] == list(experiment.claims)
        assert {claim_result.verdict for claim_result in claim_results} == {"not decided"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("operation", "experiment"), OPERATIONS)
def test_every_network_is_trained_and_measured(operation: Operation, experiment: Experiment, tmp_path: Path) -> None:
    for trial in experiment.plan(Laboratory(tmp_path, (1,), budget=5.0)):
        values = trial.measure(1)
        assert 0 <= values[f"exact, {operation.longest} bits"] <= 1
        assert values["parameters"] > 20_000
