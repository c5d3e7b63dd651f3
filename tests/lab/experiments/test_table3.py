"""Rows in the paper's proportions, and the verdicts of rows and groups."""

import math
from pathlib import Path

import pytest

from transduce.config.presets import PRESETS
from transduce.lab import Laboratory, Results, TextFiles, run_experiment
from transduce.lab.experiments import table3
from transduce.lab.experiments.table3 import (
    BASE,
    BASE_ROW,
    GROUPS,
    LARGER_WIDTHS,
    ROWS,
    compute_change,
    conclude,
    judge_row,
    make_variants,
    scale,
)
from transduce.lab.measurements import Measurement, Value


def test_rows_are_all_those_of_the_paper() -> None:
    assert [row.preset for row in ROWS] == [name for name in PRESETS if name.startswith("table3-")]
    assert [sum(map(rows, ROWS)) for rows in GROUPS.values()] == [2, 2, 8, 1, 1, 1]


def test_rows_have_the_proportions_of_the_paper() -> None:
    def changed(preset: str) -> dict[str, Value]:
        return {name: value for name, value in scale(preset, BASE).items() if BASE.get(name) != value}

    assert [changed(f"table3-A-{number}") for number in (1, 2, 3, 4)] == [
        {"model.num_heads": heads} for heads in (1, 2, 8, 16)
    ]
    assert changed("table3-B-1") == {"model.d_k": 2, "model.d_v": 8}
    assert changed("table3-C-1") == {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}
    assert changed("table3-C-2") == {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2}
    assert changed("table3-C-3") == {"model.num_encoder_layers": 4, "model.num_decoder_layers": 4}
    assert changed("table3-C-4") == {"model.d_model": 16, "model.d_k": 4, "model.d_v": 4}
    assert changed("table3-C-7") == {"model.d_ff": 256}
    assert changed("table3-D-2") == {"model.dropout": 0.2}
    assert changed("table3-D-4") == {"training.label_smoothing": 0.2}
    assert changed("table3-E") == {"model.positions": "learned"}
    assert changed("table3-big") == {
        "model.d_model": 64,
        "model.d_ff": 256,
        "model.num_heads": 8,
        "model.dropout": 0.3,
    }


def test_a_long_budget_has_wider_rows(tmp_path: Path) -> None:
    short, long = (make_variants(Laboratory(tmp_path, budget=budget)) for budget in (600.0, 3600.0))
    assert [settings["model.d_model"] for settings in short.values()].count(32) == 17
    assert long["base"] == {**BASE, **LARGER_WIDTHS}
    assert long["B: d_k = 16"]["model.d_k"] == 4


def test_every_row_is_a_valid_model(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    for settings in make_variants(laboratory).values():
        assert laboratory.make_config(settings, 60, 1, "row").model.num_heads >= 1


def test_plan_has_a_trial_for_each_row(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"updates": 100}', encoding="utf-8")
    trials = table3.plan(Laboratory(tmp_path))
    assert [trial.settings for trial in trials] == [{"row": row.name} for row in (BASE_ROW, *ROWS)]


def make_results(factor: float, seeds: tuple[int, ...] = (1, 2, 3), bleu: float = 20.0) -> Results:
    """Losses that change by `factor` times what the paper's do."""
    return Results(
        Measurement(
            {"row": row.name},
            seed,
            {
                "loss": 2 + factor * compute_change(row) * (1 + seed / 100),
                "bleu": bleu,
                "parameters": 1e5,
                "updates": 100.0,
            },
            1.0,
        )
        for seed in seeds
        for row in (BASE_ROW, *ROWS)
    )


def test_rows_agree_by_the_sign_of_their_change() -> None:
    assert {judge_row(row, make_results(1.0)) for row in ROWS} == {"supported"}
    changing = [row for row in ROWS if abs(compute_change(row)) > table3.PRINTED]
    assert len(changing) == len(ROWS) - 2  # 16 heads, and learned positions
    assert {judge_row(row, make_results(-1.0)) for row in changing} == {"not supported"}
    assert {judge_row(row, make_results(1.0, seeds=(1,))) for row in ROWS} == {"not decided"}


def test_rows_that_are_the_same_in_the_paper_must_be_similar() -> None:
    row = ROWS[-2]

    def judge(loss: float) -> str:
        made = [
            Measurement({"row": name}, seed, {"loss": value + seed / 1e4}, 1.0)
            for seed in (1, 2, 3)
            for name, value in (("base", 2.0), (row.name, loss))
        ]
        return judge_row(row, Results(made))

    assert (judge(2.01), judge(2.1), judge(1.9)) == ("supported", "not supported", "not supported")


def test_groups() -> None:
    def list_verdicts(results: Results) -> list[str]:
        return [claim_result.verdict for claim_result in conclude(results).claim_results]

    assert list_verdicts(make_results(1.0)) == ["supported"] * 6
    assert list_verdicts(make_results(-1.0)) == [*["not supported"] * 5, "supported"]
    assert list_verdicts(make_results(1.0, seeds=(1,))) == ["not decided"] * 6
    one_differs = [
        Measurement(one.settings, one.seed, {"loss": 3.0 + one.seed / 1e4}, 1.0)
        if one.settings["row"] == "C: N = 8"
        else one
        for one in make_results(1.0).measurements
    ]
    assert list_verdicts(Results(one_differs))[2] == "not supported"


def test_nothing_is_decided_before_models_translate() -> None:
    early, late = (conclude(make_results(-1.0, bleu=bleu)) for bleu in (table3.LEARNED - 0.1, table3.LEARNED))
    assert {claim_result.verdict for claim_result in early.claim_results} == {"not decided"}
    assert "a longer budget" in early.remarks[0]
    assert "not supported" in {claim_result.verdict for claim_result in late.claim_results}
    assert len(late.remarks) == len(early.remarks) - 1


def test_table_has_the_papers_figures_before_anything_is_measured() -> None:
    conclusion = conclude(Results([]))
    assert [claim_result.claim for claim_result in conclusion.claim_results] == list(table3.EXPERIMENT.claims)
    assert {claim_result.verdict for claim_result in conclusion.claim_results} == {"not decided"}
    rows = conclusion.tables[0].rows
    assert rows[0] == ["base", "", "4.92", "not measured", "25.8", "not measured", "65", ""]
    assert rows[-1][2] == "4.33"
    measured = conclude(make_results(1.0)).tables[0].rows
    assert measured[1][1] == "yes; supported"
    assert measured[0][3].startswith(f"{math.exp(2):.2f}")


@pytest.mark.exhaustive
def test_experiment_from_plan_to_report(text_files: TextFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "ROWS", (ROWS[0], ROWS[-2]))
    report = run_experiment("table3", Laboratory(tmp_path / "new", (1,), budget=5.0, text_files=text_files))
    assert {claim_result.verdict for claim_result in report.conclusion.claim_results} == {"not decided"}
    assert len(report.conclusion.tables[0].rows) == 3
    assert all(row[-1] for row in report.conclusion.tables[0].rows)
