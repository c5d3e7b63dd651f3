from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.lab.conclusion import Verdict
from transduce.lab.experiments import feed_forward
from transduce.lab.experiments.feed_forward import (
    CONVOLUTIONS,
    D_FF,
    EXPERIMENT,
    PRODUCTS,
    ROUNDING,
    SIZES,
    Convolutions,
    conclude,
    measure_equality,
    measure_time,
    plan,
)
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Measurement, Results
from transduce.lab.run import run_experiment
from transduce.model import FeedForward

TINY = TransformerConfig(d_model=16, d_ff=32)


def test_convolutions_compute_the_formula() -> None:
    network = FeedForward(TINY).double()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    hidden = (x @ network.inner.weight.T + network.inner.bias).clamp(min=0)  # equation 2
    expected = hidden @ network.outer.weight.T + network.outer.bias
    found = Convolutions(network).double()(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(found, expected)


def test_differences_are_of_rounding() -> None:
    found = measure_equality(1, TINY)
    assert found["outputs"] <= ROUNDING
    assert found["gradients"] <= ROUNDING
    assert found["neighbours"] <= ROUNDING
    assert found["order"] <= ROUNDING
    assert found["outputs, float32"] < 1e-5


def test_a_wider_convolution_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Convolutions.forward
    monkeypatch.setattr(Convolutions, "forward", lambda self, inputs: plain(self, inputs + 0.01 * inputs.roll(1, 2)))
    found = measure_equality(1, TINY)
    assert found["outputs"] > ROUNDING
    assert found["gradients"] > ROUNDING


def test_times_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_forward, "PAPER", TINY)
    found = measure_time(8, 0.0, 1)
    assert set(found) == {f"{way}, {kind}" for way in ("forward", "both") for kind in (PRODUCTS, CONVOLUTIONS)}
    assert all(seconds > 0 for seconds in found.values())


def test_the_plan_has_comparison_times_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Laboratory, "plan_updates", lambda *_, **__: 60)
    settings = [dict(trial.settings) for trial in plan(Laboratory(tmp_path))]
    assert settings[0] == {"comparison": "convolutions"}
    assert sum("positions" in one for one in settings) == 3
    assert [one["variant"] for one in settings if "variant" in one] == [f"d_ff = {size}" for size in SIZES]


def make_results(equality: Mapping[str, float], losses: Mapping[int, float]) -> Results:
    found = [Measurement({"comparison": "convolutions"}, 1, equality, 1.0)] if equality else []
    return Results(
        [
            *found,
            *(
                Measurement({"variant": f"d_ff = {size}"}, seed, {"loss": loss + seed * (1 + size) / 1e6}, 1.0)
                for size, loss in losses.items()
                for seed in (1, 2, 3)
            ),
        ]
    )


SAME = {"neighbours": 0.0, "order": 1e-15, "outputs": 1e-15, "gradients": 1e-14}
OTHER = {"neighbours": 0.1, "order": 0.0, "outputs": 1e-15, "gradients": 1e-3}
SMALLER, LARGER = D_FF // 4, 4 * D_FF


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        (make_results(SAME, {SMALLER: 0.5, D_FF: 0.4, LARGER: 0.3}), ["supported"] * 4),
        (make_results(OTHER, {SMALLER: 0.3, D_FF: 0.4, LARGER: 0.5}), ["not supported"] * 4),
        (make_results({}, {D_FF: 0.4}), ["not decided"] * 4),
    ],
)
def test_verdicts_follow_from_the_figures(results: Results, verdicts: list[Verdict]) -> None:
    claim_results = conclude(results).claim_results
    assert [claim_result.verdict for claim_result in claim_results] == verdicts
    assert [claim_result.claim for claim_result in claim_results] == list(EXPERIMENT.claims)


@pytest.mark.exhaustive
def test_it_runs_from_plan_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_forward, "SIZES", (1, 4))
    monkeypatch.setattr(feed_forward, "NUM_POSITIONS", (8,))
    report = run_experiment("feed-forward", Laboratory(tmp_path, seeds=(1,), budget=2.0))
    assert [claim_result.verdict for claim_result in report.conclusion.claim_results[:2]] == ["supported"] * 2
    assert [row[0] for row in report.conclusion.tables[0].rows] == ["d_ff = 1", "d_ff = 4"]
