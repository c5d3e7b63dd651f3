import shutil
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.translation_options import EngineFlags
from transduce.kernels.native import library as library_module


def test_the_native_engine_takes_the_usual_precision_and_another_its_own() -> None:
    assert EngineFlags().choose_precision() == "float32"
    assert EngineFlags().choose_precision("auto") == "auto"
    assert EngineFlags(engine="onnx").choose_precision() == "auto"


def test_a_precision_that_is_given_is_taken() -> None:
    assert EngineFlags(precision="bfloat16").choose_precision("auto") == "bfloat16"
    assert EngineFlags("ctranslate2", "int8").choose_precision() == "int8"


@pytest.fixture
def missing_kernels(monkeypatch: pytest.MonkeyPatch) -> str:
    """Lets the compiled kernels be missing, and returns how the message about that begins."""
    monkeypatch.setattr(library_module, "load_levels", dict)
    monkeypatch.setattr(library_module, "_has_vectors", lambda: True)
    return "the compiled kernels are "


def test_missing_kernels_are_reported_once_for_all_systems(
    transduce: Any, workspace: Path, run_folder: Path, missing_kernels: str
) -> None:
    shutil.copytree(run_folder / "best", workspace / "copy")
    test_set = ("--source", "valid.source", "--reference", "valid.target", "--device", "cpu")
    answer = transduce("evaluate", run_folder, "copy", *test_set)
    assert (answer.exit_code, answer.messages.count(missing_kernels)) == (0, 1)
    shutil.copyfile("valid.target", "text")
    answer = transduce("evaluate", "text", *test_set)
    assert (answer.exit_code, answer.messages.count(missing_kernels)) == (0, 0)


def test_missing_kernels_are_reported_only_where_the_model_would_use_them(
    transduce: Any, workspace: Path, run_folder: Path, missing_kernels: str
) -> None:
    settings = ["--set=model.architecture=recurrent", "--set=training.updates=2"]
    assert transduce("train", "tiny.toml", *settings, "--output", "recurrent").exit_code == 0
    (workspace / "document.txt").write_text("ba do", encoding="utf-8")

    def is_reported(*arguments: object) -> bool:
        answer = transduce(*arguments, "--device", "cpu", standard_input=b"ba do\n")
        assert answer.exit_code == 0
        return missing_kernels in answer.messages

    assert is_reported("translate", run_folder)
    assert is_reported("translate-file", run_folder, "document.txt", "translation.txt")
    assert not is_reported("translate", run_folder, "--precision", "bfloat16")
    assert not is_reported("translate", "recurrent")
    assert not is_reported("translate-file", "recurrent", "document.txt", "other.txt")


def test_a_missing_model_is_reported_without_missing_kernels(
    transduce: Any, workspace: Path, missing_kernels: str
) -> None:
    answer = transduce("translate", "nothing", "--device", "cpu")
    assert answer.exit_code == 2
    assert "nothing: there is no such folder" in answer.messages
    assert missing_kernels not in answer.messages
