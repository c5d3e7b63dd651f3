"""Equal conditions for all networks, and a verdict for every claim."""

from pathlib import Path

import pytest

from transduce.bundle.weights import count_parameters
from transduce.errors import DivergedError, RunError
from transduce.lab import Laboratory, Results, TextFiles, run_experiment
from transduce.lab.experiments import rivals
from transduce.lab.experiments.rivals import (
    RIVALS,
    SAME_TIME,
    SAME_UPDATES,
    SHORT_TIME,
    choose_rate,
    conclude,
    make_variants,
    measure_same_time,
)
from transduce.lab.laboratory import SETTINGS, count_as_diverged
from transduce.lab.measurements import Measurement, Value
from transduce.translation import Translator

TINY: dict[str, Value] = {
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "search.max_extra_length": 2,
}


@pytest.mark.parametrize("budget", [600.0, 3600.0])
def test_networks_have_equally_many_parameters(budget: float, text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path, budget=budget, text_files=text_files)
    variants = make_variants(laboratory)
    assert list(variants) == ["transformer", *RIVALS]
    counts = []
    for name, settings in variants.items():
        config = laboratory.make_config(settings, 60, 1, "run")
        vocabulary = int({**SETTINGS, **settings}["text.vocabulary"])
        counts.append(count_parameters(config.with_vocabulary(vocabulary).model))
        assert config.model.architecture == name
    assert max(counts) <= 1.05 * counts[0]
    assert min(counts) >= 0.95 * counts[0]


def test_a_long_budget_has_larger_networks(text_files: TextFiles, tmp_path: Path) -> None:
    long = make_variants(Laboratory(tmp_path, budget=1800.0, text_files=text_files))["transformer"]
    assert (long["model.d_model"], long["training.batch_tokens"], long["text.vocabulary"]) == (128, 1024, 4000)
    assert long["model.num_heads"] == SETTINGS["model.num_heads"]
    assert make_variants(Laboratory(tmp_path, budget=600.0))["transformer"]["model.d_model"] == 64


def test_best_learning_rate_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[float, int]] = []

    def train(_: Laboratory, settings: dict[str, Value], updates: int, __: int) -> dict[str, float]:
        rate = float(settings["training.learning_rate"])
        tried.append((rate, updates))
        return count_as_diverged(500) if rate > 0.01 else {"loss": abs(rate - 0.006)}

    monkeypatch.setattr(Laboratory, "train", train)
    for _ in range(2):
        found = choose_rate(Laboratory(tmp_path), "recurrent", TINY, 300)
        assert found == {**TINY, "training.learning_rate": 0.006}
    assert tried == [(0.0015, 100), (0.003, 100), (0.006, 100), (0.012, 100)]


def test_plan_compares_by_updates_and_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.json").write_text('{"updates": 100}', encoding="utf-8")
    monkeypatch.setattr(rivals, "choose_rate", lambda _, __, settings, ___: settings)
    trials = rivals.plan(Laboratory(tmp_path))
    assert [tuple(trial.settings.values()) for trial in trials] == [
        *((compared, name) for compared in (SAME_UPDATES, SAME_TIME) for name in ("transformer", *RIVALS)),
        (SHORT_TIME, "transformer"),
    ]


def test_same_time_has_updates_by_measured_speed(
    text_files: TextFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laboratory = Laboratory(tmp_path / "lab", (1,), text_files=text_files)
    seconds = {"fast": 2.0, "slow": 8.0}
    monkeypatch.setattr(Laboratory, "find_run", lambda _, settings, *__: settings["name"])
    monkeypatch.setattr(rivals, "_read_seconds", lambda name: seconds[name])
    monkeypatch.setattr(rivals, "measure", lambda _, settings, updates, __: {settings["name"]: float(updates)})
    fast: dict[str, Value] = {"name": "fast"}
    slow: dict[str, Value] = {"name": "slow"}
    assert measure_same_time(laboratory, "recurrent", slow, fast, 200, 1) == {"slow": 50}
    assert measure_same_time(laboratory, "bytenet", fast, slow, 200, 1) == {"fast": 800}
    assert measure_same_time(laboratory, "transformer", fast, fast, 200, 1) == {"fast": 200}
    seconds["slow"] = 2.0  # the number of the first seed is that of the others
    assert measure_same_time(laboratory, "recurrent", slow, fast, 200, 2) == {"slow": 50}


def test_the_same_time_as_a_run_that_diverged_is_not_measured(
    text_files: TextFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laboratory = Laboratory(tmp_path / "lab", (1,), text_files=text_files)
    with pytest.raises(RunError, match="start the experiment anew with --restart"):
        measure_same_time(laboratory, "recurrent", TINY, TINY, 60, 1)

    def fail(*_: object) -> Path:
        raise DivergedError("has no model, as training diverged")

    monkeypatch.setattr(Laboratory, "find_run", fail)
    assert measure_same_time(laboratory, "recurrent", TINY, TINY, 60, 1) == {}


def test_search_is_timed_and_the_same_in_both_programs(text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "lab", (1,), text_files=text_files)
    values = rivals.measure(laboratory, TINY, 60, 1)
    assert values["sentences_per_second"] > 0
    assert values["own_sentences_per_second"] > 0
    assert (values["updates"], values["learning_rate"]) == (60, SETTINGS["training.learning_rate"])
    bundle = laboratory.find_run(TINY, 60, 1) / "best"
    assert Translator.load(bundle, device="cpu", precision="float32").translate(["number 8"], beam=4)


def make_results(
    bleu: float,
    *,
    short: float = 0.0,
    speed: float = 100.0,
    convolutions: float = 0.0,
    seeds: tuple[int, ...] = (1, 2, 3),
) -> Results:
    """The Transformer's BLEU is higher by `bleu`, after a third of the time by `short`, and its speed by `speed`.

    ConvS2S is faster than the other rivals by `convolutions`.
    """
    made = []
    for seed in seeds:
        for compared in (SAME_UPDATES, SAME_TIME, SHORT_TIME):
            for name in ("transformer", *RIVALS):
                is_rival = name != "transformer"
                if compared == SHORT_TIME and is_rival:
                    continue
                gain = 0.0 if is_rival else short if compared == SHORT_TIME else bleu
                values = {
                    "loss": 2.0,
                    "bleu": 20 + (name == "convs2s") + gain * (1 + seed / 100),
                    "chrf": 40.0,
                    "exact": 0.1,
                    "parameters": 1000.0,
                    "tokens_per_second": 1000
                    + seed
                    + (0.0 if is_rival else speed)
                    + (name == "convs2s") * convolutions,
                    "update 1": 50.0,
                    "seconds 1": 2.0,
                    "cross-entropy 1": 3.0,
                    "update 2": 100.0,
                    "seconds 2": 4.0,
                    "cross-entropy 2": 2.25 if is_rival else 2.0,
                    "update 3": 150.0,
                    "seconds 3": 6.0,
                    "cross-entropy 3": 2.0,
                    "update 4": 200.0,
                    "seconds 4": 8.0,
                    "cross-entropy 4": 1.75,
                }
                made.append(Measurement({"compared": compared, "variant": name}, seed, values, 1.0))
    return Results(made)


def list_verdicts(results: Results) -> list[str]:
    return [claim_result.verdict for claim_result in conclude(results).claim_results]


def test_verdicts_are_against_every_rival() -> None:
    assert list_verdicts(make_results(2.0, short=1.5)) == ["supported"] * 4
    assert list_verdicts(make_results(0.5, short=0.2, speed=-100.0)) == ["not supported"] * 4  # ConvS2S has 1 more
    assert list_verdicts(make_results(2.0, short=0.2))[2] == "not supported"
    assert list_verdicts(make_results(2.0, convolutions=200.0))[3] == "not supported"
    assert list_verdicts(make_results(2.0, short=1.5, seeds=(1,))) == ["not decided"] * 4
    assert "convs2s: 1.04 (0.99 to 1.09)" in conclude(make_results(2.0)).claim_results[0].measured


def test_it_says_how_far_the_networks_were_trained() -> None:
    (remark,) = (one for one in conclude(make_results(2.0)).remarks if "training loss still fell" in one)
    assert "transformer by 0.25, recurrent by 0.25" in remark


def test_nothing_is_decided_before_it_is_measured() -> None:
    conclusion = conclude(Results([]))
    assert [claim_result.claim for claim_result in conclusion.claim_results] == list(rivals.EXPERIMENT.claims)
    assert {claim_result.verdict for claim_result in conclusion.claim_results} == {"not decided"}
    complete = make_results(2.0).measurements
    for number in range(1, len(complete), 4):
        conclude(Results(complete[:number]))


@pytest.mark.exhaustive
def test_experiment_from_plan_to_report(text_files: TextFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "choose_size", lambda _: TINY)
    report = run_experiment("rivals", Laboratory(tmp_path / "new", (1,), budget=5.0, text_files=text_files))
    assert {claim_result.verdict for claim_result in report.conclusion.claim_results} == {"not decided"}
    assert all("(one seed)" in claim_result.measured for claim_result in report.conclusion.claim_results)
    assert [len(table.rows) for table in report.conclusion.tables] == [4, 4, 1, 9]
