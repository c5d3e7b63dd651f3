"""A student is trained and compared with its teacher by one command."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle

TEXT = ["--source", "train.source", "--target", "train.target"]
SMALL = ["--set", "training.updates=6", "--set", "training.epochs=1", "--set", "training.batch_tokens=400"]


def test_the_student_has_the_teachers_words_and_fewer_layers(transduce: Any, workspace: Path, run_folder: Path) -> None:
    answer = transduce("distill", run_folder, *TEXT, "--output", "student", *SMALL)
    assert answer.exit_code == 0, answer.messages
    teacher, student = Bundle.open(run_folder / "best"), Bundle.open(workspace / "student" / "best")
    assert student.load_tokenizer().files == teacher.load_tokenizer().files
    assert student.description.model.d_model == teacher.description.model.d_model
    assert student.description.model.num_decoder_layers == min(2, teacher.description.model.num_decoder_layers)
    assert student.description.model.dropout == 0.1
    assert student.description.training["start_from"] == str(run_folder)
    assert student.description.languages.source == "en"
    assert answer.lines[0].split() == ["model", "parameters", "sentences/s"]
    assert [line.split()[0] for line in answer.lines[1:3]] == [str(run_folder), "student"]
    assert [line.split()[0] for line in answer.lines[4:]] == ["metric", "BLEU", "chrF"]
    assert "its 95 % interval" in answer.lines[4]
    page = (workspace / "student" / "report.html").read_text(encoding="utf-8")
    for name in (str(run_folder), "student"):
        assert f">{name} (95 %)</th>" in page
    # Called again, it has nothing to train, and says the same.
    again = transduce("distill", run_folder, *TEXT, "--output", "student", *SMALL)
    assert again.lines == answer.lines


def test_the_student_of_an_ensemble_is_compared_with_it(transduce: Any, workspace: Path, run_folder: Path) -> None:
    other = run_folder / "last"
    answer = transduce("distill", run_folder, "--ensemble", other, *TEXT, "--output", "student", *SMALL)
    assert answer.exit_code == 0, answer.messages
    assert answer.lines[1].startswith(f"{run_folder}, {other}")
    teacher = Bundle.open(run_folder / "best").load_model().num_parameters
    assert f"{2 * teacher:,}" in answer.lines[1]
    config = (workspace / "student" / "config.toml").read_text(encoding="utf-8")
    assert f'teacher_ensemble = ["{other}"]' in config


def test_a_student_of_other_sizes_begins_without_the_teachers_weights(
    transduce: Any, workspace: Path, run_folder: Path
) -> None:
    answer = transduce("distill", run_folder, *TEXT, "--output", "student", *SMALL, "--set", "model.d_ff=24")
    assert answer.exit_code == 0, answer.messages
    student = Bundle.open(workspace / "student" / "best").description
    assert student.model.d_ff == 24
    assert "start_from" not in student.training


def test_a_preset_is_a_student_too(transduce: Any, workspace: Path, run_folder: Path) -> None:
    answer = transduce(
        "distill", run_folder, *TEXT, "--output", "student", "--student", "tiny", *SMALL, "--set", "model.d_ff=64"
    )
    assert answer.exit_code == 0, answer.messages
    model = Bundle.open(workspace / "student" / "best").description.model
    assert (model.d_model, model.d_ff) == (128, 64)


def test_a_student_can_have_the_teachers_network_and_learn_from_the_targets_too(
    transduce: Any, workspace: Path, run_folder: Path
) -> None:
    answer = transduce(
        "distill", run_folder, *TEXT, "--output", "student", "--student", "same", "--keep-targets", *SMALL
    )
    assert answer.exit_code == 0, answer.messages
    teacher, student = (Bundle.open(folder / "best").description for folder in (run_folder, workspace / "student"))
    assert student.model == teacher.model
    assert "start_from" not in student.training
    assert "keep_targets = true" in (workspace / "student" / "config.toml").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_a_folder_that_is_not_utf_8_is_refused_before_anything_is_translated(
    transduce: Any, workspace: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for name in ("train.source", "train.target"):
        shutil.copy(name, folder)
    monkeypatch.chdir(folder)
    answer = transduce("distill", run_folder, *TEXT, "--output", "student", *SMALL)
    assert answer.exit_code == 2
    assert "is not UTF-8, as the path of synthetic text must be: rename the folder" in answer.messages
    assert not list(folder.rglob("*.jsonl"))


def test_mistakes_are_named(transduce: Any, workspace: Path, run_folder: Path) -> None:
    for arguments, named in (
        (("distill", "nothing", *TEXT, "--output", "student"), "nothing"),
        (("distill", run_folder, "--pairs", "-", "--output", "student"), "give a file"),
        (
            ("distill", run_folder, *TEXT, "--output", "student", "--student", "huge"),
            "huge: must be shallow, same, or a preset",
        ),
        (("distill", run_folder, *TEXT, "--output", "student", "--ensemble", run_folder), "is given twice"),
        (("distill", run_folder, *TEXT, "--output", "student", "--time", "soon"), "--time"),
    ):
        answer = transduce(*arguments)
        assert (answer.exit_code, answer.output) == (2, b"")
        assert named in answer.messages
