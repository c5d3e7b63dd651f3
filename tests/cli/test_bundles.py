import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from transduce.bundle import find_bundle
from transduce.interop import ctranslate2 as ctranslate2_format


def test_the_average_is_a_bundle(transduce: Any, run_folder: Path, workspace: Path) -> None:
    answer = transduce("average", run_folder, "--last", "2", "--output", "averaged")
    assert (answer.exit_code, answer.output) == (0, b"")
    assert answer.messages == "averaged: the average of the checkpoints of updates 80, 160\n"
    weights = [
        load_file(run_folder / "checkpoints" / name / "weights.safetensors") for name in ("000000080", "000000160")
    ]
    averaged = load_file(workspace / "averaged" / "weights.safetensors")
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, (weights[0][name] + weights[1][name]) / 2)
    described = json.loads(transduce("info", "averaged", "--json").output)["bundle"]
    assert (described["scores"], described["training"]["averaged_checkpoints"]) == ([], 2)
    assert transduce("translate", "averaged", standard_input=b"ba\n").exit_code == 0


@pytest.mark.parametrize(("last", "named"), [("3", "holds 2 checkpoints, but --last is 3"), ("0", "--last 0")])
def test_there_must_be_as_many(
    transduce: Any, run_folder: Path, workspace: Path, contents: Any, last: str, named: str
) -> None:
    before = contents(workspace)
    answer = transduce("average", run_folder, "--last", last, "--output", "averaged")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages
    assert contents(workspace) == before


@pytest.fixture(scope="session")
def exported(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's model as a CTranslate2 folder; not to be changed."""
    pytest.importorskip("ctranslate2")
    from transduce.bundle import Bundle, find_bundle
    from transduce.interop import export_bundle

    folder = tmp_path_factory.mktemp("exported") / "ct2"
    export_bundle(Bundle.open(find_bundle(run_folder)), "ctranslate2", folder, num_sentences=2)
    return folder


def test_export_shows_the_proof_on_standard_error(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    pytest.importorskip("ctranslate2")
    answer = transduce(
        "export", run_folder, "--to", "ctranslate2", "--output", "out", "--precision", "float16",
        "--probe", "valid.source", "--reference", "valid.target",
    )  # fmt: skip
    assert (answer.exit_code, answer.output) == (0, b"")
    for words in ("10 of 10 lines of valid.source", "against the references", "out written in", "weights in float16"):
        assert words in answer.messages
    assert json.loads((workspace / "out" / "parity.json").read_text(encoding="utf-8"))["sentences"] == 10


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_names_need_not_be_utf_8(exported: Path, run_folder: Path, workspace: Path, transduce: Callable) -> None:
    model, foreign, probe = (os.fsdecode(name) for name in (b"caf\xe9", b"foreign-\xe9", b"probe-\xe9"))
    shutil.copytree(find_bundle(run_folder), workspace / model)
    (workspace / "valid.source").rename(workspace / probe)
    given = ["--to", "transduce", "--output", f"{model}-int8", "--probe", probe]
    answer = transduce("export", model, *given)
    assert answer.exit_code == 0, answer.messages
    assert transduce("translate", f"{model}-int8", "--ensemble", model, standard_input=b"ba\n").exit_code == 0
    answer = transduce("export", model, "--to", "ctranslate2", "--output", foreign)
    assert answer.exit_code == 2
    assert "is not UTF-8, as paths for CTranslate2 must be: choose another name" in answer.messages
    shutil.copytree(exported, workspace / foreign)
    answer = transduce("translate", foreign, "--engine", "ctranslate2")
    assert answer.exit_code == 2
    assert "is not UTF-8, as paths for CTranslate2 must be: choose another name" in answer.messages
    answer = transduce("import", exported, "--output", model, "--force", "--probe", probe)
    assert answer.exit_code == 0, answer.messages


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "pdf"], 'Invalid value "pdf" for --to. Choose from: "ctranslate2"'),
        (["--to", "ctranslate2", "--precision", "int2"], "precision = 'int2': ctranslate2 has float32"),
        (["--to", "ctranslate2", "--probe", "missing"], "missing"),
        (["--to", "argos"], "cannot be expressed in the format argos"),
    ],
)
def test_mistakes_of_export_are_said(
    run_folder: Path, workspace: Path, transduce: Callable, arguments: list[str], words: str
) -> None:
    answer = transduce("export", run_folder, "--output", "out", *arguments)
    assert answer.exit_code == 2
    assert words in answer.messages
    assert not (workspace / "out").exists()


def test_a_failed_proof_fails_the_command(
    run_folder: Path, workspace: Path, transduce: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctranslate2_format, "EPSILON", 0.1)
    arguments = ["--to", "ctranslate2", "--output", "out", "--probe", "valid.source"]
    before = sorted(workspace.iterdir())
    answer = transduce("export", run_folder, *arguments)
    assert answer.exit_code == 1
    assert "does not compute the same as the model" in answer.messages
    assert "worst is sentence" in answer.messages
    assert sorted(workspace.iterdir()) == before


def test_translate_and_evaluate_by_ctranslate2(
    run_folder: Path, exported: Path, workspace: Path, transduce: Callable
) -> None:
    text = (workspace / "valid.source").read_bytes() + b"\nku do\n"
    options = ("--beam", "1", "--precision", "float32")
    native = transduce("translate", run_folder, *options, standard_input=text)
    other = transduce("translate", exported, "--engine", "ctranslate2", *options, standard_input=text)
    assert other.exit_code == 0
    assert other.lines == native.lines
    assert len(set(other.lines)) > 5
    files = ("--source", "valid.source", "--reference", "valid.target", "--beam", "1", "--json")
    scores = [
        json.loads(transduce("evaluate", model, *files, *engine).output)["scores"]
        for model, *engine in ((run_folder,), (exported, "--engine", "ctranslate2"))
    ]
    assert scores[0] == scores[1]


def test_a_bundle_is_exported_for_the_occasion(run_folder: Path, transduce: Callable) -> None:
    answer = transduce("translate", run_folder, "--engine", "ctranslate2", standard_input=b"ku do\n")
    assert answer.exit_code == 0
    assert "temporarily" in answer.messages
    assert len(answer.lines) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json"], "--json: needs the native engine"),
        (["--protect", "--protect-numbers"], "--protect, --protect-numbers: needs the native engine"),
        (["--require", "ku"], "--require"),
        (["--samples", "2"], "--samples 2"),
        (["--diversity", "1"], "--diversity"),
        (["--repetition-penalty", "2"], "--repetition-penalty"),
        (["--precision", "int8"], "was exported in float32"),
        (["--device", "mps"], "device = 'mps'"),
    ],
)
def test_what_an_engine_does_not_have_is_refused(
    exported: Path, transduce: Callable, options: list[str], words: str
) -> None:
    answer = transduce("translate", exported, "--engine", "ctranslate2", *options, standard_input=b"ku do\n")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert words in answer.messages


def test_an_exported_folder_says_which_engine_it_is_for(exported: Path, transduce: Callable) -> None:
    answer = transduce("translate", exported, standard_input=b"ku do\n")
    assert answer.exit_code == 2
    assert "was exported to ctranslate2: use --engine ctranslate2" in answer.messages


def test_what_was_exported_comes_back(exported: Path, run_folder: Path, workspace: Path, transduce: Callable) -> None:
    arguments = ["--output", "back", "--probe", "valid.source", "--source-language", "xx"]
    answer = transduce("import", exported, *arguments)
    assert (answer.exit_code, answer.output) == (0, b"")
    for words in ("a model of the format ctranslate2", "10 of 10 lines of valid.source", "back written in"):
        assert words in answer.messages
    best = run_folder / "best"
    for name in ("weights.safetensors", "tokenizer.model"):
        assert (workspace / "back" / name).read_bytes() == (best / name).read_bytes()
    ours, theirs = (transduce("translate", model, standard_input=b"ba do\n") for model in ("back", best))
    assert (ours.exit_code, ours.output) == (0, theirs.output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["train.source"], "is not a model that can be imported"),
        (["train.source", "--source-language", "x\udce9"], "is no language code"),
    ],
)
def test_mistakes_of_import_are_said(workspace: Path, transduce: Callable, arguments: list[str], words: str) -> None:
    answer = transduce("import", *arguments, "--output", "back")
    assert answer.exit_code == 2
    assert words in answer.messages
    assert not (workspace / "back").exists()
