"""When a run ends, its best model is compared with a baseline, and its behaviour is measured; the report shows both."""

import re
import shlex
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, Languages, save_bundle
from transduce.config import RunConfig, load_run_config
from transduce.errors import BundleError, ConfigError
from transduce.evaluation import TestSet, compare_systems, translate_test_set
from transduce.training import MetricsLog, TrainingResult, train
from transduce.training.model_selection.final_measurements import (
    SELECTION_NOTE,
    check_baseline,
    describe_comparison,
    find_baseline,
    tabulate_differences,
    tabulate_models,
)
from transduce.translation import Translator

Make = Callable[..., RunConfig]


@pytest.fixture
def tune(copier: Any, tmp_path: Path) -> Make:
    """A run that starts from the model that copies, and goes on with its text for a moment."""

    def make(name: str = "tuned", **changes: Any) -> RunConfig:
        given = {
            "output": str(tmp_path / name),
            "data.folder": copier.config.data.folder,
            "data.pairs": "train.tsv",
            "data.validation_pairs": "validation.tsv",
            "text.drop_copies": False,
            "training.start_from": str(copier.result.folder),
            "training.updates": 2,
            "training.batch_tokens": 500,
            "training.schedule": "inverse_square_root",
            "training.learning_rate": 1e-3,
            "training.warmup": 1,
            "training.device": "cpu",
            "training.precision": "float32",
            "training.scorecard_sentences": 0,
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
        return load_run_config(None, arguments=given)[0]

    return make


@pytest.fixture
def report_of() -> Callable[[TrainingResult], str]:
    return lambda result: (result.folder / "report.html").read_text(encoding="utf-8")


def logged(result: TrainingResult, kind: str) -> list[dict[str, Any]]:
    return [line for line in MetricsLog(result.folder / "metrics.jsonl").read() if line["kind"] == kind]


def test_the_best_model_is_compared_with_the_one_that_it_started_from(
    tune: Make, copier: Any, watcher: Any, report_of: Any
) -> None:
    told = watcher()
    # So high a rate spoils the model.
    config = tune(training__learning_rate=0.3)
    result = train(config, told)
    (line,) = logged(result, "comparison")
    assert result.comparison == line
    baseline, own = line["systems"]
    assert (baseline["system"], own["system"]) == (str(copier.result.folder), str(result.folder))
    assert {score["verdict"] for score in own["scores"].values()} == {"worse"}
    assert own["scores"]["bleu"]["difference_high"] < 0
    assert own["scores"]["chrf"]["p"] < 0.05

    # The figures are those of the same translations, compared by themselves.
    pairs = [text.split("\t") for text in (Path(config.data.folder) / "validation.tsv").read_text("utf-8").splitlines()]
    test_set = TestSet("validation", [source for source, _ in pairs], [[target for _, target in pairs]])
    outputs = [
        translate_test_set(Translator.load(folder, device="cpu"), str(folder), test_set)
        for folder in (copier.result.folder, result.folder)
    ]
    expected = compare_systems(test_set, outputs, ("bleu", "chrf")).as_json()
    assert expected["systems"] == line["systems"]
    assert [*expected["notes"], SELECTION_NOTE] == line["notes"]

    said = "\n".join(told.said)
    assert all(sentence in said for sentence in describe_comparison(line))
    page = report_of(result)
    section = page[page.index("<h2>Comparison") : page.index("<h2>Behaviour")]
    for table in (tabulate_differences(line), tabulate_models(line)):
        assert all(f">{cell}<" in section for row in table.rows for cell in row)
    assert "chosen by its scores on these sentences" in section


def test_a_finished_run_is_not_compared_again(tune: Make, metrics_of: Callable[[Path], list[Any]]) -> None:
    result = train(tune())
    before = metrics_of(result.folder)
    assert train(tune()).comparison == result.comparison
    assert metrics_of(result.folder) == before


def test_an_end_that_was_killed_is_made_up_for(tune: Make, watcher: Any, killed: Any) -> None:
    with pytest.raises(killed):
        train(tune(), watcher(end_at="comparing the best model"))
    told = watcher()
    result = train(tune(), told)
    assert "nothing to do: training ended after update 2" in told.said
    assert len(logged(result, "comparison")) == 1


def test_a_baseline_that_has_gone_is_named_and_the_run_ends_well(
    tune: Make, copier: Any, watcher: Any, tmp_path: Path
) -> None:
    class Remover(watcher):  # type: ignore[misc]
        def report_progress(self, progress: Any) -> None:
            shutil.rmtree(tmp_path / "start", ignore_errors=True)

    shutil.copytree(copier.result.folder / "best", tmp_path / "start")
    told = Remover()
    result = train(tune(training__start_from=str(tmp_path / "start")), told)
    assert result.comparison is None
    assert any(text.startswith(f"not compared with {tmp_path / 'start'}: ") for text in told.said)


def test_a_model_that_was_replaced_is_not_what_the_run_started_from(
    tune: Make, copier: Any, watcher: Any, tmp_path: Path
) -> None:
    start, other = tmp_path / "start", train(tune("other")).folder / "best"

    class Replacer(watcher):  # type: ignore[misc]
        def report_progress(self, progress: Any) -> None:
            shutil.rmtree(start)
            shutil.copytree(other, start)

    shutil.copytree(copier.result.folder / "best", start)
    told = Replacer()
    assert train(tune(training__start_from=f"{start}/", training__updates=1), told).comparison is None
    assert f"not compared with {start}: it has other weights now than when the run began" in told.said


def test_any_model_of_the_same_languages_may_be_the_baseline(make_config: Make, tmp_path: Path) -> None:
    first = train(make_config("first", training__updates=2))
    assert first.comparison is None
    second = train(make_config("second", training__updates=2, training__seed=2, training__baseline=str(first.folder)))
    assert second.comparison is not None
    assert [one["system"] for one in second.comparison["systems"]] == [str(first.folder), str(second.folder)]
    other = train(make_config("other", training__updates=2, training__seed=3))
    again = train(make_config("second", training__updates=2, training__seed=2, training__baseline=str(other.folder)))
    assert again.comparison is not None
    assert again.comparison["systems"][0]["system"] == str(other.folder)
    bundle = Bundle.open(first.folder / "best")
    description = bundle.description.model_copy(update={"languages": Languages(source="xx", target="en")})
    save_bundle(tmp_path / "reverse", bundle.load_model(), bundle.load_tokenizer(), description)
    with pytest.raises(ConfigError, match=r"training\.baseline = .*translates xx to en; give a model of the same"):
        train(make_config("third", training__baseline=str(tmp_path / "reverse")))
    variants = description.model_copy(update={"languages": Languages(source="en_US", target="XX")})
    save_bundle(tmp_path / "variants", bundle.load_model(), bundle.load_tokenizer(), variants)
    check_baseline(make_config("third", training__baseline=str(tmp_path / "variants")))
    with pytest.raises(BundleError, match="nowhere"):
        check_baseline(make_config(training__baseline=str(tmp_path / "nowhere")))
    own = make_config("own")
    with pytest.raises(ConfigError, match="is in the folder of the run, whose model would be compared with itself"):
        check_baseline(make_config("own", training__baseline=f"{own.output}/best"))
    assert not (tmp_path / "third").exists()


def test_a_tag_that_the_baseline_does_not_know_is_no_text_to_it(tune: Make, copier: Any) -> None:
    held_out = {"data.validation_pairs": None, "data.held_out": 12}
    plain = train(tune("plain", **held_out))
    corpora = [{"pairs": "train.tsv", "tag": ">>in<<"}]
    tagged = train(tune("tagged", **held_out, **{"data.pairs": None, "data.corpora": corpora}))
    assert plain.comparison is not None
    assert tagged.comparison is not None
    first, second = (result.comparison["systems"][0] for result in (plain, tagged))
    assert first["system"] == second["system"] == str(copier.result.folder)
    assert {name: score["value"] for name, score in first["scores"].items()} == {
        name: score["value"] for name, score in second["scores"].items()
    }
    assert first["scores"]["chrf"]["value"] > 90


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"training.start_from": "start"}, "start"),
        ({"training.start_from": "start", "training.start_vocabulary": "new"}, None),
        ({"data.teacher": "teacher", "training.start_from": "start"}, "teacher"),
        ({"training.baseline": "given", "data.teacher": "teacher"}, "given"),
        ({"data.monolingual_source": "more.en"}, "runs/mine-forward"),
        ({"data.monolingual_source": "more.en", "data.monolingual_source_model": "model"}, "model"),
        ({"data.monolingual_target": "more.de", "data.monolingual_target_model": "reverse"}, None),
    ],
)
def test_the_baseline_of_a_run(settings: dict[str, Any], expected: str | None) -> None:
    config, _ = load_run_config(None, arguments={"output": "runs/mine", "data.pairs": "a.tsv", **settings})
    assert find_baseline(config) == (None if expected is None else Path(expected))


def test_the_report_shows_the_behaviour_of_the_best_model(tune: Make, watcher: Any, report_of: Any) -> None:
    told = watcher()
    result = train(tune(training__scorecard_sentences=5), told)
    (line,) = logged(result, "scorecard")
    assert line["sentences"] == 5
    assert {"all caps", "numbers", "translated"} <= {one["name"] for one in line["behaviours"]}
    assert any(text.startswith("behaviour on unusual input") for text in told.said)
    page = report_of(result)
    section = page[page.index("<h2>Behaviour") : page.index("<h2>Curves")]
    for one in line["behaviours"]:
        assert f">{one['name']}</th>" in section
        assert f">{one['score']:.1f}</td>" in section
    assert f"transduce scorecard {result.folder}" in section
    # Nothing of it is a curve, and a run that goes on for longer measures it anew.
    train(tune(training__scorecard_sentences=5, training__updates=3))
    assert [line["update"] for line in logged(result, "scorecard")] == [2, 3]


def test_suggested_commands_are_quoted_for_a_shell(tune: Make, watcher: Any, report_of: Any) -> None:
    told = watcher()
    result = train(tune("ünï päth", training__scorecard_sentences=5), told)
    (said,) = (text for text in told.said if "transduce scorecard" in text)
    command = said[said.index("transduce") : said.index(" shows examples")]
    assert shlex.split(command) == ["transduce", "scorecard", str(result.folder)]
    commands = [shlex.split(unescape(one)) for one in re.findall("<code>(transduce .*?)</code>", report_of(result))]
    named = {command[1]: command[2] for command in commands if len(command) > 2}
    assert named == {"evaluate": str(result.folder), "scorecard": str(result.folder)}


def test_without_a_scorecard_the_report_says_how_to_make_it(tune: Make, report_of: Any) -> None:
    result = train(tune())
    assert not logged(result, "scorecard")
    page = report_of(result)
    assert f"Not measured yet; <code>transduce scorecard {result.folder}</code>" in page
