"""The variants are what their papers describe, and a verdict for every claim."""

from pathlib import Path

import pytest

from transduce.config import TransformerConfig
from transduce.lab import Laboratory, Results, TextFiles, run_experiment
from transduce.lab.experiments import since_then
from transduce.lab.experiments.since_then import CHANGES, DEFAULT, TOGETHER, conclude, make_variants
from transduce.lab.laboratory import SETTINGS
from transduce.lab.measurements import Measurement, Value
from transduce.lab.variants import LARGER

TINY: dict[str, Value] = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2}


def make_config(settings: dict[str, Value]) -> TransformerConfig:
    given = {**SETTINGS, **settings}
    model = {name.removeprefix("model."): value for name, value in given.items() if name.startswith("model.")}
    return TransformerConfig.model_validate({**model, "vocabulary": given["text.vocabulary"]})


@pytest.mark.parametrize("size", [{}, LARGER])
def test_variants_have_nearly_as_many_parameters(size: dict[str, Value]) -> None:
    variants = make_variants(size)
    wanted = make_config(variants[DEFAULT]).num_parameters
    for settings in variants.values():
        assert make_config(settings).num_parameters == pytest.approx(wanted, rel=0.02)


def test_each_change_is_one_of_those_that_are_made_together() -> None:
    alone = {setting for name in ("RMS normalisation", "pre-norm", "gated feed-forward") for setting in CHANGES[name]}
    assert alone | {"model.positions"} == set(CHANGES[TOGETHER])
    assert make_variants({})[DEFAULT] == {}


def test_plan_has_a_trial_for_each_variant(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"updates": 100}', encoding="utf-8")
    trials = since_then.plan(Laboratory(tmp_path))
    assert [trial.settings for trial in trials] == [{"variant": name} for name in (DEFAULT, *CHANGES)]


def make_results(*, loss: float, bleu: float, speed: float, seeds: tuple[int, ...] = (1, 2, 3)) -> Results:
    """Each change adds these to the loss of 2, the BLEU of 20 and the speed of 1000."""
    made = []
    for seed in seeds:
        for name in (DEFAULT, *CHANGES):
            factor = (name != DEFAULT) * (1 + seed / 1000)
            values = {
                "loss": 2 + factor * loss,
                "bleu": 20 + factor * bleu,
                "chrf": 40.0,
                "exact": 0.5,
                "parameters": 1000.0,
                "tokens_per_second": 1000 + factor * speed,
                "update 1": 50.0,
                "seconds 1": 2.0,
                "cross-entropy 1": 3.0,
            }
            made.append(Measurement({"variant": name}, seed, values, 1.0))
    return Results(made)


def list_verdicts(results: Results) -> list[str]:
    return [claim_result.verdict for claim_result in conclude(results).claim_results]


def test_verdicts() -> None:
    better = list_verdicts(make_results(loss=-0.1, bleu=1.0, speed=50.0))
    rms = [claim == since_then.SIMILAR_QUALITY for claim in since_then.EXPERIMENT.claims]
    assert better == ["not supported" if similar else "supported" for similar in rms]
    worse = list_verdicts(make_results(loss=0.1, bleu=-1.0, speed=-50.0))
    assert worse == ["not supported"] * len(rms)
    same = list_verdicts(make_results(loss=0.001, bleu=0.0, speed=0.0))
    assert same[rms.index(True)] == "supported"
    assert set(list_verdicts(make_results(loss=-0.1, bleu=1.0, speed=50.0, seeds=(1,)))) == {"not decided"}


def test_nothing_is_decided_before_it_is_measured() -> None:
    conclusion = conclude(Results([]))
    assert [claim_result.claim for claim_result in conclusion.claim_results] == list(since_then.EXPERIMENT.claims)
    assert {claim_result.verdict for claim_result in conclusion.claim_results} == {"not decided"}
    for number in range(1, 5):
        conclude(Results(make_results(loss=0.1, bleu=0.0, speed=0.0).measurements[:number]))


@pytest.mark.exhaustive
def test_experiment_from_plan_to_report(text_files: TextFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(since_then, "choose_size", lambda _: TINY)
    report = run_experiment("since-then", Laboratory(tmp_path / "new", (1,), budget=5.0, text_files=text_files))
    assert {claim_result.verdict for claim_result in report.conclusion.claim_results} == {"not decided"}
    assert all("(one seed)" in claim_result.measured for claim_result in report.conclusion.claim_results)
    assert len(report.conclusion.tables[0].rows) == 1 + len(CHANGES)
