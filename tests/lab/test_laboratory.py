"""Text, plans and training of a laboratory."""

import json
import math
from pathlib import Path

import pytest

from transduce.bundle import Bundle
from transduce.errors import CorpusError, DivergedError, RunError, UserError
from transduce.lab import Laboratory, TextFiles
from transduce.lab.laboratory import NUM_TEST_PAIRS, SECONDS_OF_TESTS, count_as_diverged
from transduce.lab.measurements import Measurement, Results
from transduce.lab.variants import plan_training, tabulate_variants
from transduce.training import MetricsLog
from transduce.training.model_selection.validation import compute_teacher_forced_metrics

TINY = {
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "search.max_extra_length": 2,
}


def test_text_of_a_user_is_divided_without_overlap(text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "lab", text_files=text_files)
    lines = laboratory.training_file.read_text(encoding="utf-8").splitlines()
    training = {tuple(line.split("\t")) for line in lines}
    assert len(laboratory.test_pairs) == NUM_TEST_PAIRS
    assert len(lines) == len(training) == 4400 - NUM_TEST_PAIRS
    assert not training & set(laboratory.test_pairs)
    assert ("number 8", "zahl 8") in training | set(laboratory.test_pairs)


def test_generated_text_has_no_test_pair(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    training = {tuple(line.split("\t")) for line in laboratory.training_file.read_text(encoding="utf-8").splitlines()}
    assert len(laboratory.test_pairs) == NUM_TEST_PAIRS
    assert not training & set(laboratory.test_pairs)


def test_fewer_generated_pairs_are_spread_over_the_text(tmp_path: Path) -> None:
    whole, few = Laboratory(tmp_path / "whole"), Laboratory(tmp_path / "few").with_fewer_generated_pairs(100)
    lines = whole.training_file.read_text(encoding="utf-8").splitlines()
    assert few.training_file.read_text(encoding="utf-8").splitlines() == lines[::300]
    assert few.test_pairs == whole.test_pairs
    assert [f"{source}\t{target}" for source, target in whole.training_pairs] == lines
    assert [f"{source}\t{target}" for source, target in few.training_pairs] == lines[::300]
    most = whole.with_fewer_pairs(len(lines) - 5).training_pairs
    assert (len(most), "\t".join(most[-1])) == (len(lines) - 5, lines[-2])
    assert whole.with_fewer_pairs(10**6).training_file.read_text(encoding="utf-8").splitlines() == lines


def test_text_of_a_user_is_not_shortened(text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path, text_files=text_files)
    assert laboratory.with_fewer_generated_pairs(10) is laboratory


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "b").write_text("eins\nzwei\n", encoding="utf-8")
    laboratory = Laboratory(tmp_path / "lab", text_files=TextFiles(tmp_path / "a", tmp_path / "b"))
    with pytest.raises(CorpusError, match=r"2 different pairs that are not blank: an experiment needs at least 4,000"):
        _ = laboratory.test_pairs


def test_a_decision_is_taken_once(tmp_path: Path) -> None:
    assert Laboratory(tmp_path).decide_once("updates", lambda: 300) == 300
    assert Laboratory(tmp_path).decide_once("updates", lambda: 400) == 300
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == {"updates": 300}


def test_a_plan_that_differs_from_that_of_another_run_is_refused(tmp_path: Path) -> None:
    Laboratory(tmp_path / "first").decide_once("updates", lambda: 300)
    Laboratory(tmp_path / "second").decide_once("updates", lambda: 400)
    second = Laboratory(tmp_path / "second", plan_of=tmp_path / "first")
    with pytest.raises(UserError, match=r"was begun with updates = 400, and --plan-of .* has 300: leave out"):
        second.decide_once("updates", lambda: 500)


@pytest.mark.parametrize("content", [b"", b'{"updates": 3', b"\xff", b"[]"])
def test_a_damaged_plan_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(UserError, match=r"plan\.json: is damaged: .* start over with --restart"):
        Laboratory(tmp_path).decide_once("updates", lambda: 400)


def test_updates_fit_the_budget_and_are_the_same_for_all(text_files: TextFiles, tmp_path: Path) -> None:
    short = Laboratory(tmp_path / "short", budget=1.0, text_files=text_files)
    long = Laboratory(tmp_path / "long", budget=100_000.0, text_files=text_files)
    assert short.plan_updates([TINY]) == 60
    updates = long.plan_updates([TINY, {**TINY, "model.d_model": 32}])
    assert updates > 600
    assert updates % 10 ** (int(math.log10(updates)) - 1) == 0
    assert Laboratory(tmp_path / "long", budget=1.0).plan_updates([TINY]) == updates


def test_a_share_of_the_usual_training_fits_the_budget(tmp_path: Path) -> None:
    messages: list[str] = []

    def plan(name: str, budget: float, num_seeds: int) -> float:
        laboratory = Laboratory(tmp_path / name, range(num_seeds), budget, messages.append)
        return laboratory.decide_training_share(200.0, least=0.1)

    assert plan("usual", 600.0, 3) == 1.0
    assert plan("half", 300.0, 3) == pytest.approx((100 - SECONDS_OF_TESTS) / (200 - SECONDS_OF_TESTS))
    assert plan("long", 3600.0, 1) > 10
    assert messages == []
    assert plan("short", 1.0, 3) == 0.1
    assert plan("usual", 600.0, 5) == 1.0  # it goes on with more seeds
    assert messages == [
        "10% of the usual training with 3 seeds: about 0:01:54, longer than the budget of 0:00:01",
        "100% of the usual training with 5 seeds: about 0:16:40, longer than the budget of 0:10:00",
    ]


def test_variants_are_trained_translated_and_resumed(text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "lab", (1,), text_files=text_files)
    found = laboratory.train(TINY, 60, 1)
    assert set(found) == {
        *("loss", "parameters", "tokens_per_second", "seconds"),
        *("bleu", "chrf", "exact", "length", "search_seconds"),
    }
    bundle = Bundle.open(laboratory.find_run(TINY, 60, 1) / "best")
    assert bundle.load_model().num_parameters == found["parameters"]
    prepared = laboratory.prepare(TINY)
    assert prepared.digests == bundle.description.data
    prediction = compute_teacher_forced_metrics(bundle.load_model(), bundle.load_tokenizer(), prepared.validation)
    assert prediction.loss == pytest.approx(found["loss"], rel=1e-5)
    lines = MetricsLog(laboratory.find_run(TINY, 60, 1) / "metrics.jsonl").read()
    assert prediction.accuracy == next(line["accuracy"] for line in lines if line["kind"] == "validation")
    again = laboratory.train(TINY, 60, 1)  # finished: nothing is trained
    assert {name: again[name] for name in ("loss", "bleu", "chrf", "exact", "seconds")} == {
        name: found[name] for name in ("loss", "bleu", "chrf", "exact", "seconds")
    }
    with pytest.raises(RunError, match="is not there: start the experiment anew with --restart"):
        laboratory.find_run(TINY, 60, 2)


def test_divergence_is_a_measurement(text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "lab", (1,), text_files=text_files)
    diverging = {**TINY, "training.learning_rate": 1e30}
    found = laboratory.train(diverging, 60, 1)
    assert found == count_as_diverged(500)
    assert found["loss"] == pytest.approx(math.log(499))
    assert laboratory.train(diverging, 60, 1) == found  # after a stop
    with pytest.raises(DivergedError, match="has no model, as training diverged"):
        laboratory.find_run(diverging, 60, 1)


def test_trials_are_named_by_their_variants(tmp_path: Path, text_files: TextFiles) -> None:
    laboratory = Laboratory(tmp_path, budget=1.0, text_files=text_files)
    trials = plan_training(laboratory, {"narrow": TINY, "wide": {**TINY, "model.d_ff": 32}})
    assert [trial.settings for trial in trials] == [{"variant": "narrow"}, {"variant": "wide"}]
    found = trials[0].measure(1)
    assert found["cross-entropy 1"] > found["cross-entropy 10"] > 0


def test_table_of_variants_counts_what_diverged() -> None:
    results = Results(
        [
            Measurement({"variant": "a"}, 1, {"loss": 1.0, "bleu": 20.0, "exact": 0.5}, 1.0),
            Measurement({"variant": "b"}, 1, {"diverged": 1.0}, 1.0),
        ]
    )
    assert tabulate_variants(results).rows == [
        ["a", "1.000 (one seed)", "20.0 (one seed)", "50.0% (one seed)", "0"],
        ["b", "not measured", "not measured", "not measured", "1"],
    ]
