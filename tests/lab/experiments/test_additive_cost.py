from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from transduce.lab.conclusion import Verdict
from transduce.lab.experiments import additive_cost
from transduce.lab.experiments.additive_cost import (
    ADDITIVE,
    DOT,
    FUSED,
    KINDS,
    LONGEST,
    OPTIMIZED,
    USUAL_WIDTH,
    conclude,
    count_operations,
    count_saved_bytes,
    list_sizes,
    make_attention,
    measure_cost,
    plan,
)
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Measurement, Results
from transduce.lab.run import run_experiment


@pytest.mark.parametrize(("length", "d_k"), [(48, 16), (32, 32)])
def test_memory_is_that_of_the_theory(length: int, d_k: int) -> None:
    measured = measure_cost(length, d_k, 0.0, seed=1)
    for kind in KINDS:
        assert measured[f"saved, {kind}"] == pytest.approx(count_saved_bytes(kind, length, d_k), rel=0.05)
        assert measured[f"forward, {kind}"] > 0
        assert measured[f"both, {kind}"] > 0


def test_operations_are_those_of_a_loop() -> None:
    d_k, length = 2, 3
    of_dot = 0
    of_additive = 2 * length * (2 * d_k * d_k)  # W q and U k: a product and a sum for each entry of the matrix
    for _ in range(length):
        for _ in range(length):
            of_dot += 2 * d_k + 1  # q·k and the division
            of_additive += d_k + d_k + 2 * d_k  # the sum, its tanh, and v·tanh
            both = 1 + 1 + 1 + 1 + 1 + 2 * d_k  # greatest, subtract it, exp, sum, divide; the sum of values
            of_dot += both
            of_additive += both
    assert count_operations(DOT, length, d_k) == additive_cost.NUM_HEADS * of_dot
    assert count_operations(ADDITIVE, length, d_k) == additive_cost.NUM_HEADS * of_additive


def test_fused_attention_computes_the_same() -> None:
    inputs = [torch.randn(1, 4, 6, 8) for _ in range(3)]
    mask = torch.ones(1, 1, 1, 6, dtype=torch.bool)
    plain, fused = (make_attention(kind, 8)(inputs, mask) for kind in (DOT, FUSED))
    torch.testing.assert_close(plain, fused)


def test_every_size_is_measured(tmp_path: Path) -> None:
    trials = plan(Laboratory(tmp_path, budget=10.0))
    assert len({tuple(trial.settings.items()) for trial in trials}) == len(trials) == len(list_sizes()) == 11


def make_results(additive: Mapping[str, float], dot: Mapping[str, float]) -> Results:
    """Two seeds at the longest length, which differ little."""
    size = {"length": LONGEST, "d_k": USUAL_WIDTH}
    return Results(
        Measurement(size, seed, {f"{name}, {kind}": value * (1 + seed / 1000) for name, value in values.items()}, 1.0)
        for kind, values in ((ADDITIVE, additive), (DOT, dot))
        for seed in (1, 2)
    )


SMALL = {"forward": 1.0, "both": 3.0, "saved": 100.0}
LARGE = {"forward": 10.0, "both": 30.0, "saved": 1000.0}


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        (make_results(LARGE, SMALL), ["supported"] * 4),
        (make_results(SMALL, LARGE), ["supported", "not supported", "not supported", "not supported"]),
        (make_results(LARGE, {}), ["supported", "not decided", "not decided", "not decided"]),
        (Results([]), ["supported", "not decided", "not decided", "not decided"]),
    ],
)
def test_verdicts_follow_from_the_figures(results: Results, verdicts: list[Verdict]) -> None:
    conclusion = conclude(results)
    assert [claim_result.verdict for claim_result in conclusion.claim_results] == verdicts
    assert [claim_result.claim for claim_result in conclusion.claim_results] == list(additive_cost.EXPERIMENT.claims)


def test_more_operations_in_the_same_time_are_no_slower_code() -> None:
    ratio = count_operations(ADDITIVE, LONGEST, USUAL_WIDTH) / count_operations(DOT, LONGEST, USUAL_WIDTH)
    same_rate = make_results({**LARGE, "forward": ratio * 0.999}, SMALL)
    assert conclude(same_rate).claim_results[-1].claim == OPTIMIZED
    assert conclude(same_rate).claim_results[-1].verdict == "not supported"


@pytest.mark.exhaustive
def test_it_runs_from_plan_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive_cost, "LENGTHS", (16, 32))
    monkeypatch.setattr(additive_cost, "WIDTHS", (8, 16))
    report = run_experiment("additive-cost", Laboratory(tmp_path, seeds=(1, 2), budget=2.0))
    assert len(report.conclusion.claim_results) == 4
    assert len(report.conclusion.tables[0].rows) == 3 * 4
    assert (tmp_path / "report.html").exists()
