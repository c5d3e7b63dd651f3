import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import find_bundle


def documents(page: Path) -> list[dict[str, Any]]:
    """What is embedded in a page."""
    found = re.search(
        r'<script type="application/json" id="documents">(.*?)</script>', page.read_text("utf-8"), re.DOTALL
    )
    assert found is not None
    embedded = json.loads(found[1])
    assert isinstance(embedded, list)
    return embedded


def test_a_page_holds_everything(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    answer = transduce(
        "inspect", run_folder, "ku do le", "--reference", "uk od el", "--beam", "2", "--output", "page.html"
    )
    assert (answer.exit_code, answer.output) == (0, b"")
    assert "model: 6 of 6 heads pruned" in answer.messages
    assert "page.html written in" in answer.messages
    (document,) = documents(workspace / "page.html")
    translated = transduce(
        "translate", run_folder, "--beam", "2", "--precision", "float32", standard_input=b"ku do le\n"
    )
    assert document["target"]["text"] == translated.lines[0]
    assert document["reference"]["text"] == "uk od el"
    assert document["model"]["name"] == "model"
    assert document["model"]["source_language"] == "en"
    assert document["search"]["beam"] == 2
    assert len(document["pruned_heads"]) == len(document["arithmetic"]) == 6
    assert document["continuations"]
    assert not list(workspace.glob("*.tmp"))


def test_quick_leaves_out_what_takes_long(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    answer = transduce("inspect", run_folder, "ku do", "--quick", "--output", "page.html")
    assert answer.exit_code == 0
    (document,) = documents(workspace / "page.html")
    assert document["pruned_heads"] == document["continuations"] == []
    assert document["attention"] is not None
    assert document["arithmetic"]


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_a_model_whose_name_is_not_utf_8(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    name = os.fsdecode(b"caf\xe9")
    shutil.copytree(find_bundle(run_folder), workspace / name)
    answer = transduce("inspect", name, "ku do", "--quick", "--output", "page.html")
    assert answer.exit_code == 0, answer.messages
    assert documents(workspace / "page.html")[0]["model"]["name"] == r"caf\udce9"


def test_models_are_compared(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    last = run_folder / "last"
    options = ("--quick", "--compare", last, "--compare", run_folder, "--output", "page.html")
    answer = transduce("inspect", run_folder, "ku do", *options)
    assert answer.exit_code == 0
    found = documents(workspace / "page.html")
    assert [document["source"]["text"] for document in found] == ["ku do"] * 3
    assert found[0]["target"] == found[2]["target"]


def test_a_head_that_is_named_comes_first(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    options = ("--quick", "--head", "decoder.1.2", "--head", "encoder_decoder.1.1", "--output", "page.html")
    assert transduce("inspect", run_folder, "ku do", *options).exit_code == 0
    first, second, *_ = documents(workspace / "page.html")[0]["arithmetic"]
    assert (first["attention"], first["layer"], first["head"]) == ("decoder", 0, 1)
    assert (second["attention"], second["layer"], second["head"]) == ("encoder_decoder", 0, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["  "], "text: is blank"),
        (["ku do", "--beam", "17"], "beam: Input should be less than or equal to 16"),
        (["ku do", "--head", "1.2"], "head = '1.2': must be ATTENTION.LAYER.HEAD"),
        (["ku do", "--head", "encoder.2.1"], "head encoder.2.1 (from 1): this model has 1 layers"),
        (["ku do", "--compare", "nowhere"], "nowhere: there is no such folder"),
        (["ku do", "--device", "warp drive"], "warp drive"),
    ],
)
def test_mistakes_are_said(
    run_folder: Path, workspace: Path, transduce: Callable, arguments: list[str], words: str
) -> None:
    answer = transduce("inspect", run_folder, *arguments, "--quick", "--output", "page.html")
    assert answer.exit_code == 2
    assert words in answer.messages
    assert not (workspace / "page.html").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nowhere/page.html", "nowhere/page.html: must be a file in a folder that exists: make nowhere"),
        (".", ".: is a folder, which is not replaced: give the name of a file"),
    ],
)
def test_a_page_needs_a_place(
    run_folder: Path, workspace: Path, transduce: Callable, output: str, message: str
) -> None:
    answer = transduce("inspect", run_folder, "ku do", "--output", output)
    assert answer.exit_code == 2
    assert message in answer.messages


def test_an_older_page_stays_if_there_is_no_new_one(run_folder: Path, workspace: Path, transduce: Callable) -> None:
    page = workspace / "page.html"
    assert transduce("inspect", find_bundle(run_folder), "ku do", "--quick", "--output", page).exit_code == 0
    before = page.read_bytes()
    assert transduce("inspect", run_folder, "", "--output", page).exit_code == 2
    assert page.read_bytes() == before
    assert transduce("inspect", find_bundle(run_folder), "ku", "--quick", "--output", page).exit_code == 0
    (document,) = documents(page)
    assert document["source"]["text"] == "ku"
