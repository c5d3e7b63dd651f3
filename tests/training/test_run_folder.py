import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, find_bundle, is_bundle
from transduce.config import DataConfig, RunConfig
from transduce.errors import BusyError, RunError
from transduce.storage import lock_folder
from transduce.training import RunFolder, average_run, train
from transduce.training.run_folder import MAY_DIFFER, compute_settings_digest

MakeConfig = Callable[..., RunConfig]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def used(make_config: MakeConfig) -> Path:
    """A run of two updates."""
    return train(make_config(training__updates=2)).folder


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"training__seed": 2}, "training.seed: was 1, now 2"),
        ({"model__dropout": 0.3}, "model.dropout: was 0.2, now 0.3"),
        ({"model__d_model": 32}, "model.d_model: was 16, now 32"),
        ({"training__batch_tokens": 99}, "training.batch_tokens: was 160, now 99"),
        ({"training__best_by": "loss"}, "training.best_by: was 'bleu', now 'loss'"),
        ({"text__max_pieces": 99}, "text.max_pieces: was 256, now 99"),
        ({"search__beam": 3}, "search.beam: was 2, now 3"),
    ],
)
def test_other_settings_are_another_run(
    make_config: MakeConfig, used: Path, changes: dict[str, Any], named: str
) -> None:
    before = files(used)
    with pytest.raises(RunError) as refused:
        train(make_config(**{"training__updates": 2, **changes}))
    assert named in str(refused.value)
    assert "--restart" in str(refused.value)
    assert files(used) == before


def test_every_difference_is_named(make_config: MakeConfig, used: Path) -> None:
    with pytest.raises(RunError, match=r"model.dropout(?s:.*)training.seed"):
        train(make_config(training__updates=2, training__seed=3, model__dropout=0.0))


def cut(text: str) -> str:
    return text[: len(text) // 2]


def change_a_digit(text: str) -> str:
    return text.replace("d_model = 16", "d_model = 17")


@pytest.mark.exhaustive
@pytest.mark.parametrize("harm", [lambda _: "", cut, change_a_digit], ids=["empty", "cut", "digit"])
def test_a_damaged_configuration_does_not_cost_the_run(
    make_config: MakeConfig, used: Path, watcher: Any, harm: Callable[[str], str]
) -> None:
    file = used / "config.toml"
    whole = file.read_text(encoding="utf-8")
    file.write_text(harm(whole), encoding="utf-8")
    before = files(used)
    with pytest.raises(RunError, match=r"config\.toml: is damaged, and no checkpoint was made with the given settings"):
        train(make_config(training__updates=2, model__d_ff=64))
    assert files(used) == before
    told = watcher()
    assert train(make_config(training__updates=2), told).updates == 2
    assert [text for text in told.said if text.startswith(f"{file}: is damaged, and is rewritten")]
    assert file.read_text(encoding="utf-8") == whole


def test_a_setting_that_is_as_usual_is_not_one_of_the_run(make_config: MakeConfig) -> None:
    one, more = make_config(), make_config(training__updates=99, search__batch_tokens=7)
    assert (
        compute_settings_digest(one)
        == compute_settings_digest(more)
        != compute_settings_digest(make_config(training__seed=9))
    )
    linear = make_config(training__schedule="linear"), make_config(training__schedule="linear", training__updates=99)
    assert compute_settings_digest(linear[0]) != compute_settings_digest(linear[1])
    epochs = make_config(training__schedule="linear", training__epochs=2.0)
    known = epochs.model_copy(update={"training": epochs.training.model_copy(update={"updates": 32})})
    assert compute_settings_digest(epochs) == compute_settings_digest(known)
    assert compute_settings_digest(epochs) != compute_settings_digest(
        make_config(training__schedule="linear", training__epochs=3.0)
    )


def test_why_a_linear_schedule_keeps_its_updates_is_said(make_config: MakeConfig, tmp_path: Path) -> None:
    settings = {"training__schedule": "linear", "training__learning_rate": 0.001}
    folder = RunFolder(Path(make_config(**settings).output))
    folder.begin(make_config(**settings), restart=False)
    folder.metrics.append("data", 0, {})
    for name, value in (("updates", 99), ("epochs", 3.0)):
        with pytest.raises(RunError, match="learning rate of every update depends on the length of the run") as refused:
            folder.check(make_config(**settings, **{f"training__{name}": value}), restart=False)
        assert f"training.{name}: was" in str(refused.value)
    with pytest.raises(RunError) as refused:
        folder.check(make_config(**settings, training__seed=99), restart=False)
    assert "depends on the length" not in str(refused.value)


@pytest.mark.exhaustive
def test_some_settings_may_change(make_config: MakeConfig, used: Path, corpus: Path, tmp_path: Path) -> None:
    baseline = shutil.copytree(used / "last", tmp_path / "baseline")
    changes = {
        "data__folder": str(corpus.parent / "." / corpus.name),
        "data__cache": str(tmp_path / "other cache"),
        "data__examine": False,
        "data__translation_workers": 2,
        "training__device": "cpu:0",
        "training__sharding": "fsdp",
        "training__rank_timeout": "5m",
        "training__updates": 3,
        "training__patience": 9,
        "training__log_every": 2,
        "training__validate_every": 2,
        "training__checkpoint_every": 2,
        "training__keep_checkpoints": 2,
        "training__tensorboard": True,
        "training__baseline": str(baseline),
        "training__fit_no_repeat_ngram": True,
        "training__scorecard_sentences": 1,
        "search__batch_tokens": 100,
    }
    assert train(make_config(**changes)).updates == 3
    timed = {"training.epochs", "training.time_limit"}  # see test_updater.py
    assert {key.replace("__", ".") for key in changes} | {"output", "model.vocabulary"} | timed == MAY_DIFFER


@pytest.mark.exhaustive
def test_a_run_may_be_moved(make_config: MakeConfig, used: Path) -> None:
    used.rename(used.with_name("elsewhere"))
    assert train(make_config("elsewhere", training__updates=3)).updates == 3


def test_the_same_text_may_lie_elsewhere(make_config: MakeConfig, used: Path, corpus: Path, tmp_path: Path) -> None:
    for name in ("train.tsv", "validation.tsv"):
        shutil.copy(corpus / name, tmp_path / f"other-{name}")
    folder = os.path.relpath(tmp_path / "..", corpus)
    settings = {
        "training__updates": 3,
        "data__pairs": f"{folder}/{tmp_path.name}/other-train.tsv",
        "data__validation_pairs": f"{folder}/{tmp_path.name}/other-validation.tsv",
    }
    before = files(used)
    with (tmp_path / "other-train.tsv").open("a", encoding="utf-8") as text:
        text.write("one more\tmore one\n")
    with pytest.raises(RunError, match="was trained on other data"):
        train(make_config(**settings))
    assert files(used) == before
    shutil.copy(corpus / "train.tsv", tmp_path / "other-train.tsv")
    assert train(make_config(**settings)).updates == 3
    assert "other-train.tsv" in (used / "config.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"validation_pairs": None}, "data.validation_pairs: was 'validation.tsv', now None"),
        ({"held_out": 30}, "data.held_out: was 1000, now 30"),
        ({"columns": ("2", "1")}, r"data.columns: was None, now \('2', '1'\)"),
        ({"pairs": None, "corpora": [{"pairs": "a.tsv", "weight": 2}]}, "data.corpora: was None"),
    ],
)
def test_what_the_text_is_for_may_not_change(make_config: MakeConfig, change: dict[str, Any], named: str) -> None:
    config = make_config()
    other = config.model_copy(update={"data": DataConfig.model_validate({**config.data.model_dump(), **change})})
    check_is_another_run(config, other, named)


def test_paths_of_several_corpora_may_change_and_their_weights_may_not(make_config: MakeConfig) -> None:
    def make(path: str, weight: float) -> RunConfig:
        config = make_config()
        corpora = [{"pairs": path, "weight": weight}, {"source": f"{path}.en", "target": f"{path}.de"}]
        data = DataConfig.model_validate({**config.data.model_dump(), "pairs": None, "corpora": corpora})
        return config.model_copy(update={"data": data})

    check_is_another_run(make("a.tsv", 1.0), make("b.tsv", 2.0), "data.corpora: was")
    RunFolder(Path(make("a.tsv", 1.0).output)).check(make("b.tsv", 1.0), restart=False)
    assert compute_settings_digest(make("a.tsv", 1.0)) == compute_settings_digest(make("b.tsv", 1.0))


def check_is_another_run(config: RunConfig, other: RunConfig, named: str) -> None:
    folder = RunFolder(Path(config.output))
    folder.begin(config, restart=False)
    folder.metrics.append("data", 0, {})
    with pytest.raises(RunError, match=named):
        folder.check(other, restart=False)
    assert compute_settings_digest(config) != compute_settings_digest(other)


@pytest.mark.exhaustive
def test_a_configuration_made_in_python_goes_on(make_config: MakeConfig, used: Path) -> None:
    # Nobody has told it the size of the vocabulary.
    config = make_config(training__updates=3).with_vocabulary(37_000)
    assert train(config).updates == 3


@pytest.mark.parametrize("name", ["link", "link/run"])
def test_a_link_to_nothing_is_refused(make_config: MakeConfig, tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    with pytest.raises(RunError, match=r"link: is a link to .*missing, which is not a folder: create it"):
        train(make_config(name))
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("restart", [False, True])
def test_foreign_files_are_left_alone(make_config: MakeConfig, restart: bool) -> None:
    config = make_config()
    folder = Path(config.output)
    (folder / "best").mkdir(parents=True)
    (folder / "best" / "thesis.txt").write_text("irreplaceable", encoding="utf-8")
    with pytest.raises(RunError, match=r"not empty \(it contains best\) and is not a run"):
        train(config, restart=restart)
    assert files(folder) == {"best/thesis.txt": b"irreplaceable"}


@pytest.mark.parametrize("restart", [False, True])
def test_a_project_that_has_a_config_file_too_is_no_run(make_config: MakeConfig, restart: bool) -> None:
    config = make_config()
    folder = Path(config.output)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "resnet.pt").write_bytes(b"days of work")
    (folder / "config.toml").write_text('title = "my site"', encoding="utf-8")
    before = files(folder)
    with pytest.raises(RunError, match=r"not empty \(it contains checkpoints\) and is not a run"):
        train(config, restart=restart)
    assert files(folder) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("cache", ["cache", "prepared/here"])
def test_the_cache_may_lie_within(make_config: MakeConfig, cache: str) -> None:
    folder = Path(make_config().output)
    config = make_config(data__cache=str(folder / cache), training__updates=1)
    (folder / cache).mkdir(parents=True)  # as a process leaves it that is killed while it prepares
    assert train(config).updates == 1
    assert train(config, restart=True).updates == 1


@pytest.mark.exhaustive
def test_a_run_in_the_working_directory_has_its_default_cache_within(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / ".cache").mkdir(parents=True)  # as a process leaves it that is killed while it prepares
    monkeypatch.chdir(tmp_path / "here")
    config = make_config(data__cache=None, training__updates=1).model_copy(update={"output": "."})
    assert train(config).updates == 1


def test_a_file_is_no_folder(make_config: MakeConfig) -> None:
    config = make_config()
    Path(config.output).write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="is a file"):
        train(config)


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_in_the_way_of_the_runs_own_files_is_found_before_it_trains(
    make_config: MakeConfig, used: Path, watcher: Any, restart: bool
) -> None:
    config = make_config(training__updates=9)
    for name in ("best", "last", "checkpoints", "config.toml", "metrics.jsonl"):
        place, aside = used / name, used.with_name("aside")
        if place.exists():
            place.rename(aside)
        kind = "file" if name in {"best", "last", "checkpoints"} else "folder"
        place.touch() if kind == "file" else place.mkdir()
        before, told = files(used), watcher()
        with pytest.raises(RunError, match=f"{re.escape(str(place))}: is a {kind}, and the run writes a|not empty"):
            train(config, told, restart=restart)
        assert files(used) == before
        assert told.updates == []
        place.unlink() if kind == "file" else place.rmdir()
        if aside.exists():
            aside.rename(place)


def test_a_name_that_is_too_long_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(RunError, match=r"x: cannot be (read|written) \(File name too long\): .*choose another output"):
        train(make_config("x" * 256))


def test_restart_replaces_a_model_elsewhere_that_a_link_leads_to(
    make_config: MakeConfig, used: Path, tmp_path: Path
) -> None:
    (used / "best").rename(tmp_path / "elsewhere")
    (used / "best").symlink_to(tmp_path / "elsewhere")
    assert train(make_config(training__updates=1, training__seed=2), restart=True).updates == 1
    assert (used / "best").is_symlink()
    assert is_bundle(tmp_path / "elsewhere")
    assert sorted(path.name for path in tmp_path.iterdir() if "transduce-" in path.name) == []


def test_an_empty_folder_will_do(make_config: MakeConfig) -> None:
    config = make_config(training__updates=1)
    Path(config.output).mkdir()
    assert train(config).updates == 1


@pytest.mark.exhaustive
def test_restart_forgets_the_run_and_nothing_else(
    make_config: MakeConfig, used: Path, metrics_of: Callable[..., list[dict[str, Any]]], watcher: Any
) -> None:
    mine = {"notes.txt", "checkpoints/notes.txt", "tensorboard/notes.txt", "best.old-1/bundle.json"}
    for name in mine:
        (used / name).parent.mkdir(exist_ok=True)
        (used / name).write_text("mine", encoding="utf-8")
    shutil.copytree(used / "checkpoints" / "000000002", used / "checkpoints" / "000000003.passed-over-1")
    told = watcher()
    config = make_config(training__updates=1, training__seed=2)
    train(config, told, restart=True)
    assert told.updates == [1]
    assert {name for name, content in files(used).items() if content == b"mine"} == mine
    assert sorted(path.name for path in (used / "checkpoints").iterdir()) == ["000000001", "notes.txt"]
    assert [line["update"] for line in metrics_of(used)] == [0, 1, 1]
    # and the new run can go on
    assert train(config).updates == 1


@pytest.mark.exhaustive
def test_one_at_a_time(make_config: MakeConfig, used: Path, tmp_path: Path) -> None:
    before = files(used)
    link = tmp_path / "by another name"
    link.symlink_to(used)
    with RunFolder(used).lock():
        for name in ("run", link.name):
            for restart in (False, True):
                with pytest.raises(BusyError, match=rf"{name}: is in use by process {os.getpid()} on ") as busy:
                    train(make_config(name, training__updates=3), restart=restart)
                assert busy.value.exit_code == 2
    assert files(used) == before
    assert train(make_config(training__updates=3)).updates == 3


def test_the_place_of_a_folder_is_kept_before_there_is_one(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config("new/run", training__updates=1)
    folder = RunFolder(Path(config.output))
    with folder.lock(), pytest.raises(BusyError):
        train(config)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), folder.lock():
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    assert train(config).updates == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunError, match=r"cannot be written \(Not a directory\)"),
        RunFolder(tmp_path / "file" / "a").lock(),
    ):
        pytest.fail("there is no such folder")


def test_a_lock_that_a_killed_process_left_locks_nobody_out(make_config: MakeConfig) -> None:
    config = make_config(training__updates=1)
    Path(config.output).mkdir()
    (Path(config.output) / ".lock").write_text("process 7 on earth", encoding="utf-8")
    assert train(config).updates == 1
    assert not (Path(config.output) / ".lock").exists()


def test_what_a_killed_process_left_is_put_right(used: Path) -> None:
    expected = files(used)
    (used / "best").rename(used / "best.transduce-old-7")
    (used / "last.transduce-tmp-7").mkdir()
    (used / ".best.lock").touch()
    (used / "checkpoints" / "000000002").rename(used / "checkpoints" / "000000002.transduce-old-7")
    (used / "checkpoints" / "000000001.transduce-removed-7").mkdir()
    (used / "checkpoints" / ".000000002.lock").touch()
    with lock_folder(used / "last", used / ".last.lock"):
        RunFolder(used).recover()
        assert (used / ".last.lock").exists()
    assert files(used) == expected
    assert not list(used.rglob("*-7"))


@pytest.mark.exhaustive
def test_files_of_somebodys_own_in_a_model_are_kept(make_config: MakeConfig, used: Path, watcher: Any) -> None:
    for place in ("best", "last"):
        (used / place / "notes.txt").write_text("mine", encoding="utf-8")
    told = watcher()
    train(make_config(training__updates=4, training__validate_every=4), told)
    assert any(
        "last: contains notes.txt, which is not a bundle file; the folder was moved to" in text for text in told.said
    )
    assert (used / "last.kept-1" / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert not (used / "last" / "notes.txt").exists()
    train(make_config(training__updates=1, training__seed=2), restart=True)
    assert {path.parent.name for path in used.rglob("notes.txt")} <= {"last.kept-1", "best.kept-1", "best"}
    assert len(list(used.glob("best*/notes.txt"))) == 1


@pytest.mark.exhaustive
def test_what_a_killed_process_left_unfinished_is_removed(make_config: MakeConfig, used: Path) -> None:
    for name in ("config.toml", "metrics.jsonl", "report.html"):
        (used / f"{name}.transduce-tmp-0123456789ab").touch()
    (used / "report.html.tmp").write_text("mine", encoding="utf-8")
    train(make_config(training__updates=3))
    assert not list(used.glob("*transduce-tmp*"))
    assert (used / "report.html.tmp").read_text(encoding="utf-8") == "mine"


def test_a_run_begins_where_one_was_killed_at_its_very_beginning(make_config: MakeConfig) -> None:
    config = make_config(training__updates=1)
    Path(config.output).mkdir()
    (Path(config.output) / "config.toml.transduce-tmp-0123456789ab").touch()
    assert train(config).updates == 1


def test_a_model_is_found_while_it_is_set_aside(used: Path) -> None:
    (used / "best").rename(used / "best.transduce-old-7")
    assert find_bundle(used) == used / "best.transduce-old-7"
    assert Bundle.open(used / "best").folder == used / "best.transduce-old-7"
    (used / "last").rename(used / "last.transduce-old-7")
    assert average_run(used, 1, used.with_name("averaged")) == [2]


def test_what_a_run_consists_of(used: Path) -> None:
    folder = RunFolder(used)
    there = {path.name for path in used.iterdir()} | {folder.report.name}
    places = (folder.config_file, folder.checkpoints, folder.best, folder.last, folder.report, folder.metrics.path)
    assert there == {place.name for place in places}


def test_a_file_that_tells_machines_whether_they_share_the_folder_is_not_foreign(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "new")
    folder.path.mkdir()
    token, other = folder.path / f".shared-{'0a' * 16}", folder.path / f".shared-{'0a' * 15}"
    token.touch()
    folder.check(make_config(), restart=False)
    other.touch()
    with pytest.raises(RunError, match="is not empty"):
        folder.check(make_config(), restart=False)
    folder.recover()
    assert list(folder.path.iterdir()) == [other]
