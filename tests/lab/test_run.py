"""An experiment is measured once, whatever happens in between."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from transduce.errors import BusyError, DivergedError, OutputError, UserError
from transduce.lab import Laboratory, MeasurementLog, TextFiles, run_experiment
from transduce.lab import experiments as package
from transduce.storage import lock_folder


def read_measured(folder: Path) -> list[tuple[object, int]]:
    found = MeasurementLog(folder / "measurements.jsonl").read().measurements
    return [(one.settings["width"], one.seed) for one in found]


def test_every_trial_is_measured_with_every_seed(experiment: str, tmp_path: Path) -> None:
    messages: list[str] = []
    report = run_experiment(experiment, Laboratory(tmp_path / "new", (1, 2), report=messages.append))
    assert read_measured(tmp_path / "new") == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert [claim_result.verdict for claim_result in report.conclusion.claim_results] == ["supported"]
    assert messages[0].startswith("1 of 4: width = 1, seed 1; about 0:10:00 left")
    assert {path.name for path in (tmp_path / "new").iterdir()} >= {"report.html", "report.md", "measurements.jsonl"}


def test_a_stopped_experiment_goes_on(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1,)))
    path = tmp_path / "measurements.jsonl"
    before = path.read_bytes()
    path.write_bytes(before[:-10])  # killed while the last line was written
    messages: list[str] = []
    run_experiment(experiment, Laboratory(tmp_path, (1, 2), report=messages.append))
    assert read_measured(tmp_path) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert messages[0].startswith("1 of 3: width = 2, seed 1")


def test_a_finished_experiment_measures_nothing(experiment: str, tmp_path: Path) -> None:
    first = run_experiment(experiment, Laboratory(tmp_path, (1, 2)))
    messages: list[str] = []
    again = run_experiment(experiment, Laboratory(tmp_path, (1, 2), report=messages.append))
    assert messages == []
    assert again.conclusion == first.conclusion


def test_restart_begins_anew(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1, 2)))
    (tmp_path / "runs").mkdir()
    run_experiment(experiment, Laboratory(tmp_path, (3,)), restart=True)
    assert read_measured(tmp_path) == [(1, 3), (2, 3)]
    assert not (tmp_path / "runs").exists()


def test_another_budget_is_refused(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1,), budget=600.0))
    before = (tmp_path / "measurements.jsonl").read_bytes()
    with pytest.raises(UserError, match="was begun with budget = '10m', and this is '5m'"):
        run_experiment(experiment, Laboratory(tmp_path, (1,), budget=300.0))
    assert (tmp_path / "measurements.jsonl").read_bytes() == before


def test_another_experiment_in_the_folder_is_refused(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1,)))
    monkeypatch.setitem(package.EXPERIMENTS, "others", "others")
    monkeypatch.undo()
    with pytest.raises(UserError, match="was begun with name = 'widths'"):
        run_experiment("scaling", Laboratory(tmp_path, (1,)))


def test_foreign_files_are_left_alone(experiment: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds something other than an experiment"):
        run_experiment(experiment, Laboratory(tmp_path, (1,)))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_restart_leaves_foreign_files_alone(experiment: str, tmp_path: Path) -> None:
    (tmp_path / "measurements.jsonl").write_text('{"mine": 1}\n', encoding="utf-8")
    (tmp_path / "data").mkdir()
    with pytest.raises(OutputError, match="holds something other than an experiment"):
        run_experiment(experiment, Laboratory(tmp_path, (1,)), restart=True)
    assert (tmp_path / "data").is_dir()


def test_a_text_that_has_changed_is_refused(experiment: str, text_files: TextFiles, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    run_experiment(experiment, Laboratory(folder, (1,), text_files=text_files))
    text_files.target.write_text(
        text_files.target.read_text(encoding="utf-8").replace("zahl 8\n", "Zahl 8\n"), encoding="utf-8"
    )
    with pytest.raises(UserError, match=r"was begun with text = '.*SHA-256 .*give the same"):
        run_experiment(experiment, Laboratory(folder, (1, 2), text_files=text_files))
    run_experiment(experiment, Laboratory(folder, (2,), text_files=text_files), restart=True)
    assert read_measured(folder) == [(1, 2), (2, 2)]


def test_a_trial_on_a_diverged_run_is_measured_as_such(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(width: int, seed: int) -> dict[str, float]:
        raise DivergedError(f"width {width} and seed {seed} have no model")

    monkeypatch.setattr("tests.lab.conftest.measure", diverge)
    run_experiment(experiment, Laboratory(tmp_path, (1,)))
    assert [one.values for one in MeasurementLog(tmp_path / "measurements.jsonl").read().measurements] == [
        {"diverged": 1.0},
        {"diverged": 1.0},
    ]


def test_two_processes_do_not_share_a_folder(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1,)))
    with lock_folder(tmp_path, tmp_path / ".lock"), pytest.raises(BusyError):
        run_experiment(experiment, Laboratory(tmp_path, (1, 2)))


def test_an_unknown_experiment_is_named_with_all_that_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'scalling' is not an experiment; these exist: .*scaling"):
        run_experiment("scalling", Laboratory(tmp_path / "new", (1,)))
    assert not (tmp_path / "new").exists()


def test_another_run_has_the_same_plan(experiment: str, tmp_path: Path) -> None:
    first = Laboratory(tmp_path / "first", (1,))
    run_experiment(experiment, first)
    assert first.decide_once("updates", lambda: 300) == 300
    second = Laboratory(tmp_path / "second", (2,), plan_of=first.folder)
    report = run_experiment(experiment, second)
    assert second.decide_once("updates", lambda: 400) == 300
    assert second.decide_once("share", lambda: 0.5) == 0.5
    assert Laboratory(second.folder, (2,)).decide_once("updates", lambda: 500) == 300
    assert dict(report.facts)["command"].endswith(f" --plan-of {first.folder}")
    assert dict(run_experiment(experiment, second).facts)["updates"] == "300"


def test_a_plan_for_another_budget_is_refused(experiment: str, tmp_path: Path) -> None:
    first = Laboratory(tmp_path / "first", (1,), budget=300.0)
    with pytest.raises(UserError, match=r"has no plan.json"):
        run_experiment(experiment, Laboratory(tmp_path / "second", (2,), plan_of=first.folder))
    run_experiment(experiment, first)
    first.decide_once("updates", lambda: 300)
    with pytest.raises(UserError, match="was begun with budget = '5m', and this is '10m'"):
        run_experiment(experiment, Laboratory(tmp_path / "second", (2,), plan_of=first.folder))
    assert not (tmp_path / "second").exists()


def test_a_run_takes_over_no_plan_from_itself(experiment: str, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "first", (1,))
    run_experiment(experiment, laboratory)
    laboratory.decide_once("updates", lambda: 300)
    same = Laboratory(tmp_path / "first", (1,), plan_of=tmp_path / "." / "first" / ".." / "first")
    with pytest.raises(UserError, match="is the folder of this run itself"):
        run_experiment(experiment, same, restart=True)
    assert laboratory.decide_once("updates", lambda: 400) == 300


def test_a_text_is_known_by_its_content(experiment: str, text_files: TextFiles, tmp_path: Path) -> None:
    first = Laboratory(tmp_path / "first", (1,), text_files=text_files)
    run_experiment(experiment, first)
    first.decide_once("updates", lambda: 300)
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    moved = TextFiles(elsewhere / "text.source", elsewhere / "text.target")
    shutil.move(text_files.source, moved.source)
    shutil.move(text_files.target, moved.target)
    run_experiment(experiment, Laboratory(first.folder, (1, 2), text_files=moved))
    assert read_measured(first.folder) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    second = Laboratory(tmp_path / "second", (3,), text_files=moved, plan_of=first.folder)
    facts = dict(run_experiment(experiment, second).facts)
    assert f"--source '{moved.source}' --target '{moved.target}'" in facts["command"]
    with pytest.raises(UserError, match="was begun with text = "):
        run_experiment(experiment, Laboratory(first.folder, (1, 2)))


def test_a_report_says_what_was_measured_when(experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dict(run_experiment(experiment, Laboratory(tmp_path, (1,))).facts)
    assert not any("from measurement" in name for name in first)
    machine = {"torch": "99.0", "threads": first["threads"]}
    monkeypatch.setattr("transduce.lab.run._describe_machine", lambda: machine)
    facts = dict(run_experiment(experiment, Laboratory(tmp_path, (1, 2))).facts)
    later = {name: value for name, value in facts.items() if "from measurement" in name}
    assert facts.items() >= first.items() - {("measurements", first["measurements"])}
    assert later == {
        "command, from measurement 3": "transduce lab run widths --budget 10m --seeds 2 --first-seed 1",
        "torch, from measurement 3": "99.0",
    }
    before = (tmp_path / "measurements.jsonl").read_bytes()
    monkeypatch.setattr("transduce.lab.run._describe_machine", lambda: machine | {"torch": "99.1"})
    run_experiment(experiment, Laboratory(tmp_path, (1, 2)))  # nothing is left to measure
    assert (tmp_path / "measurements.jsonl").read_bytes() == before


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_a_text_whose_name_is_not_utf_8_is_reported(experiment: str, text_files: TextFiles, tmp_path: Path) -> None:
    named = TextFiles(tmp_path / os.fsdecode(b"caf\xe9"), text_files.target)
    shutil.move(text_files.source, named.source)
    facts = dict(run_experiment(experiment, Laboratory(tmp_path / "lab", (1,), text_files=named)).facts)
    assert "caf? and " in facts["text"]
    assert "caf?" in (tmp_path / "lab" / "report.md").read_text(encoding="utf-8")
