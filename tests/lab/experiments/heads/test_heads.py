from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.lab.conclusion import Verdict
from transduce.lab.experiments import heads
from transduce.lab.experiments.heads import (
    EXPERIMENT,
    IN_TASK,
    LOOP,
    ONE_PRODUCT,
    TRAINED,
    LoopedHeads,
    conclude,
    count_operations,
    make_attention,
    measure_entropies,
    measure_times,
    plan,
)
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Measurement, Results, Settings
from transduce.lab.run import run_experiment
from transduce.model import MultiHeadAttention
from transduce.translation.confidence.scoring import ForcedDecoder


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_a_loop_over_heads_computes_the_same(num_heads: int) -> None:
    attention = MultiHeadAttention(TransformerConfig(d_model=16, num_heads=num_heads))
    inputs = torch.randn(2, 5, 16)

    def attend(given: Tensor) -> Tensor:
        queries, keys_and_values = attention.project(given)
        return attention.attend(queries, keys_and_values, torch.ones(1, 1, 1, 5, dtype=torch.bool))

    results = []
    for function in (attend, LoopedHeads(attention)):
        given = inputs.clone().requires_grad_()
        outputs = function(given)
        results.append((outputs, torch.autograd.grad(outputs.square().sum(), given)[0]))
    torch.testing.assert_close(*results)


def test_times_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "WIDTH", 16)
    monkeypatch.setattr(heads, "TIMED", (1, 2))
    for kind in (ONE_PRODUCT, LOOP):
        assert make_attention(kind, 2)(torch.randn(1, 3, 16)).shape == (1, 3, 16)
    found = measure_times(0.0, 1)
    assert list(found) == [f"{kind}, {number} heads" for number in (1, 2) for kind in (ONE_PRODUCT, LOOP)]
    assert all(seconds > 0 for seconds in found.values())


def test_operations_differ_by_the_softmax_alone() -> None:
    pairs = heads.SENTENCES * heads.TOKENS**2
    assert count_operations(8) - count_operations(1) == 7 * 6 * pairs
    assert count_operations(8) < 1.1 * count_operations(1)


def test_entropies_are_largest_if_all_keys_weigh_the_same(make_decoder: Callable[..., ForcedDecoder]) -> None:
    pairs = [("sun moon river", "stone bird"), ("salt", "road lamp fish door sun moon")]
    decoder = make_decoder()
    some = measure_entropies(decoder, pairs)
    assert 0 < some["lowest"] < some["highest"] < 1
    assert all(some["lowest"] <= some[kind] <= some["highest"] for kind in heads.ENTROPIES)
    with torch.no_grad():
        for part in decoder.model.modules():
            if isinstance(part, MultiHeadAttention):
                part.projection.weight[: part.query_width] = 0
                part.projection.bias[: part.query_width] = 0
    assert measure_entropies(decoder, pairs) == pytest.approx(dict.fromkeys(some, 1.0))


def test_padding_does_not_change_entropies(make_decoder: Callable[..., ForcedDecoder]) -> None:
    decoder = make_decoder()
    short, long = ("sun", "moon"), ("river stone bird tree wind salt", "river stone bird tree wind salt road lamp")
    alone, beside = measure_entropies(decoder, [long]), measure_entropies(decoder, [short, long, long])
    only_short = measure_entropies(decoder, [short])
    assert beside["encoder"] != pytest.approx(alone["encoder"], rel=1e-6)
    assert (
        min(alone["encoder"], only_short["encoder"]) < beside["encoder"] < max(alone["encoder"], only_short["encoder"])
    )
    assert measure_entropies(decoder, [long, long]) == pytest.approx(alone, rel=1e-5)


def test_the_plan_has_task_times_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Laboratory, "plan_updates", lambda *_, **__: 60)
    monkeypatch.setattr(heads, "_plan_task", lambda _: 10)
    settings = [dict(trial.settings) for trial in plan(Laboratory(tmp_path))]
    assert [one["task heads"] for one in settings if "task heads" in one] == list(IN_TASK)
    assert {"timed": "self-attention"} in settings
    assert len([one for one in settings if "variant" in one]) == len(TRAINED)
    assert settings[-1] == {"variant": "32 heads, d_k = 2"}


def make_results(right: Mapping[int, float], times: Mapping[int, float], losses: Mapping[str, float]) -> Results:
    """Three seeds, with small differences between them."""
    found: list[tuple[Settings, Mapping[str, float]]] = []
    found += [({"task heads": number}, {"right": value}) for number, value in right.items()]
    found += [({"timed": number}, {f"{ONE_PRODUCT}, {number} heads": value}) for number, value in times.items()]
    found += [({"variant": name}, {"loss": value}) for name, value in losses.items()]
    return Results(
        Measurement(
            settings, seed, {name: value * (1 + 0.001 * seed * (1 + place)) for name, value in values.items()}, 1.0
        )
        for place, (settings, values) in enumerate(found)
        for seed in (1, 2, 3)
    )


ONE, USUAL, MANY = "1 head, d_k = 64", "4 heads, d_k = 16", "32 heads, d_k = 2"


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        (
            make_results({1: 0.3, 2: 0.9}, {1: 1.0, 8: 1.2}, {ONE: 0.5, USUAL: 0.4, MANY: 0.6}),
            ["supported"] * 4,
        ),
        (
            make_results({1: 0.9, 2: 0.3}, {1: 1.0, 8: 3.0}, {ONE: 0.3, USUAL: 0.4, MANY: 0.2}),
            ["not supported"] * 4,
        ),
        (make_results({1: 0.9}, {8: 1.0}, {USUAL: 0.4}), ["not decided"] * 4),
    ],
)
def test_verdicts_follow_from_the_figures(results: Results, verdicts: list[Verdict]) -> None:
    claim_results = conclude(results).claim_results
    assert [claim_result.verdict for claim_result in claim_results] == verdicts
    assert [claim_result.claim for claim_result in claim_results] == list(EXPERIMENT.claims)


@pytest.mark.exhaustive
def test_it_runs_from_plan_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "TRAINED", (1, 4, 32))
    monkeypatch.setattr(heads, "TIMED", (1, 8))
    report = run_experiment("heads", Laboratory(tmp_path, seeds=(1,), budget=2.0))
    trained, task, times = report.conclusion.tables
    assert [row[0] for row in trained.rows] == [ONE, USUAL, MANY]
    assert [row[0] for row in task.rows] == ["1", "2", "4", "8"]
    assert [row[0] for row in times.rows] == ["1", "8"]
    assert not [
        cell for table in (trained, task, times) for row in table.rows for cell in row if cell == "not measured"
    ]
