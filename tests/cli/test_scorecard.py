import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, find_bundle, read_scorecard
from transduce.evaluation.scorecard import BEHAVIOURS

TEXT = ("--source", "valid.source", "--reference", "valid.target")


@pytest.fixture
def model(workspace: Path, run_folder: Path) -> Path:
    """A bundle that may be written to, away from its run."""
    shutil.copytree(find_bundle(run_folder), workspace / "model")
    return workspace / "model"


def test_scores_are_printed_and_kept(transduce: Any, model: Path) -> None:
    answer = transduce("scorecard", model, *TEXT)
    assert answer.exit_code == 0, answer.messages
    head, *lines = answer.lines
    assert re.split("  +", head) == ["behaviour", "option that helps", "score", "with it", "cases", "chrF lost"]
    names = [behaviour.name for behaviour in BEHAVIOURS]
    printed = [next(name for name in names if line.startswith(f"{name} ")) for line in lines]
    assert printed == [name for name in names if name in printed]
    skipped = [line.split(": ")[0] for line in answer.messages.splitlines() if ": not measured: " in line]
    assert sorted(printed + skipped) == sorted(names)
    assert "no capitals: not measured: the text has no capital letters" in answer.messages
    assert "of valid.source, in " in answer.messages

    found = read_scorecard(Bundle.open(model))
    assert found is not None
    assert [one.name for one in found.behaviours] == printed
    for line, one in zip(lines, found.behaviours, strict=True):
        shown = (one.option or "", one.score, one.score_with_option, float(one.num_cases), one.lost_chrf)
        expected = [value if isinstance(value, str) else f"{value:.1f}" for value in shown if value not in {"", None}]
        cells = re.split("  +", line)[1:]
        cells[-2 if one.lost_chrf is not None else -1] += ".0"
        assert cells == expected
    assert found.behaviours[0].lost_chrf is not None
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "## Behaviour\n" in card
    assert "| all caps |" in card


def test_protection_is_tried_where_addresses_are_lost(transduce: Any, model: Path) -> None:
    found = json.loads(transduce("scorecard", model, *TEXT, "--json", "--print-only").output)
    addresses = next(one for one in found["behaviours"] if one["name"] == "addresses")
    assert addresses["score"] < 100
    assert (addresses["option"], addresses["score_with_option"]) == ("--protect", 100)
    for example in addresses["examples"]:
        translated = transduce("translate", model, standard_input=f"{example['text']}\n".encode())
        assert translated.lines == [example["translation"]]
        kept = transduce("translate", model, "--protect", standard_input=f"{example['text']}\n".encode())
        assert example["problem"].removeprefix("lost: ") in kept.lines[0]


def test_json_has_examples_and_the_bundle_no_sentences(transduce: Any, model: Path) -> None:
    found = json.loads(transduce("scorecard", model, *TEXT, "--json", "--sentences", "5", "--seed", "7").output)
    assert {"model": str(model), "text": "valid.source", "sentences": 5, "seed": 7}.items() <= found.items()
    examples = [example for one in found["behaviours"] for example in one["examples"]]
    assert examples
    stored = (model / "scorecard.json").read_text("utf-8") + (model / "README.md").read_text("utf-8")
    assert not [example for example in examples if len(example["text"]) > 5 and example["text"] in stored]


def test_without_files_it_is_the_validation_text(transduce: Any, workspace: Path, run_folder: Path) -> None:
    answer = transduce("scorecard", run_folder, "--json", "--print-only")
    found = json.loads(answer.output)
    assert found["text"] == "the validation text"
    assert found["sentences"] == 10
    # The same text and the same model: the same scores.
    given = json.loads(transduce("scorecard", run_folder / "best", *TEXT, "--json", "--print-only").output)
    assert found["behaviours"] == given["behaviours"]


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_the_name_of_the_text_need_not_be_utf_8(transduce: Any, model: Path, workspace: Path) -> None:
    name = os.fsdecode(b"caf\xe9.source")
    (workspace / "valid.source").rename(workspace / name)
    answer = transduce("scorecard", model, "--source", name, "--output", "page.html")
    assert answer.exit_code == 0, answer.messages
    assert answer.lines
    found = read_scorecard(Bundle.open(model))
    assert found is not None
    assert found.text == r"caf\udce9.source"
    assert r"sentences of caf\udce9.source." in (model / "README.md").read_text(encoding="utf-8")


def test_print_only_leaves_the_bundle_as_it_is(transduce: Any, model: Path, contents: Any) -> None:
    before = contents(model)
    assert transduce("scorecard", model, *TEXT, "--print-only").exit_code == 0
    assert contents(model) == before


def test_a_page_is_written_and_renewed(transduce: Any, model: Path, workspace: Path) -> None:
    for _ in range(2):
        answer = transduce("scorecard", model, *TEXT, "--output", "page.html")
        assert answer.exit_code == 0, answer.messages
    page = (workspace / "page.html").read_text(encoding="utf-8")
    assert "<title>model: scorecard</title>" in page
    assert "all caps" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model"], "model: is not in the folder of a run"),
        (["model", "--reference", "valid.target"], "--reference valid.target: has translations of no source"),
        (["model", *TEXT, "--sentences", "0"], "--sentences 0: must be at least 1"),
        (["model", "--source", "nowhere"], "nowhere"),
        (["model", "--source", "valid.source", "--reference", "train.target"], "valid.source has 10 lines"),
        (["nowhere", *TEXT], "nowhere: there is no such folder"),
    ],
)
def test_mistakes_are_explained(transduce: Any, model: Path, contents: Any, arguments: list[str], words: str) -> None:
    before = contents(model)
    answer = transduce("scorecard", *arguments)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert words in answer.messages
    assert contents(model) == before


def test_the_validation_text_of_a_run_whose_folder_is_a_link_is_beside_the_link(
    transduce: Any, workspace: Path, run_folder: Path
) -> None:
    (workspace / "elsewhere").mkdir()
    shutil.move(run_folder, workspace / "elsewhere" / "run")
    run_folder.symlink_to(workspace / "elsewhere" / "run")
    answer = transduce("scorecard", run_folder, "--print-only", "--sentences", "2")
    assert answer.exit_code == 0, answer.messages


def test_a_run_whose_data_was_deleted_needs_text(transduce: Any, workspace: Path, run_folder: Path) -> None:
    shutil.copytree(run_folder, workspace / "runs" / "copy")
    answer = transduce("scorecard", "runs/copy")
    assert answer.exit_code == 2
    assert "no longer has the validation text of this model: give --source" in answer.messages
