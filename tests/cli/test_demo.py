import errno
import json
from pathlib import Path
from typing import Any

import pytest

from transduce import demo as demonstration


@pytest.fixture(autouse=True)
def fewer_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "NUM_TRAINING_PAIRS", 2000)


@pytest.mark.exhaustive
def test_the_demonstration_makes_a_bundle(transduce: Any, workspace: Path) -> None:
    answer = transduce("demo", "--output", "demo", "--updates", "20", "--json")
    assert answer.exit_code == 0
    found = json.loads(answer.output)
    assert 0 <= found["exact_match"] <= 1
    assert found["seconds"] > 0
    assert found["bundle"] == "demo/best"
    assert json.loads(transduce("info", found["bundle"], "--json").output)["model"]["vocabulary"] == 500
    assert len(transduce("translate", found["bundle"], standard_input=b"seven\n\n").lines) == 2
    again = transduce("demo", "--output", "demo", "--updates", "20")
    assert "nothing to do" in again.messages
    assert again.lines[-1].startswith(f"exact matches: {found['exact_match']:.1%} of {found['num_tested']:,} inputs")
    assert again.lines[-1].endswith("bundle: demo/best")


def test_the_text_lies_in_the_folder_and_nothing_beside_it(transduce: Any, workspace: Path, contents: Any) -> None:
    (workspace / "demo-text.tsv").write_text("mine", encoding="utf-8")
    before = contents(workspace)
    arguments = ("demo", "--output", "demo", "--updates", "2")
    assert transduce(*arguments).exit_code == 0
    assert (workspace / "demo" / "data" / "text.tsv").read_text(encoding="utf-8").count("\t") == 2000
    after = contents(workspace)
    assert {name: after[name] for name in after if Path(name).parts[0] not in {"demo", ".cache"}} == before
    assert transduce(*arguments, "--restart").exit_code == 0


def test_a_run_that_is_no_demonstration_stays(transduce: Any, workspace: Path, contents: Any) -> None:
    assert transduce("train", "tiny.toml", "--set", "training.updates=2").exit_code == 0
    before = contents(workspace)
    for restart in ([], ["--restart"]):
        answer = transduce("demo", "--output", "runs/tiny", *restart)
        assert (answer.exit_code, answer.output) == (2, b"")
        assert "runs/tiny: its config.toml is not that of a demonstration" in answer.messages
        assert "--restart" not in answer.messages
    (workspace / "runs" / "tiny" / "config.toml").write_text("damaged", encoding="utf-8")
    assert transduce("demo", "--output", "runs/tiny", "--restart").exit_code == 2
    after = contents(workspace) | {"runs/tiny/config.toml": before["runs/tiny/config.toml"]}
    assert after == before


def test_a_full_disk_leaves_no_folders_behind(
    transduce: Any, workspace: Path, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = contents(workspace)
    monkeypatch.setattr("os.fsync", fail)
    answer = transduce("demo", "--output", "new/demo", "--updates", "2")
    assert answer.exit_code == 1
    assert "new/demo/data/text.tsv: could not be written; nothing was changed" in answer.messages
    assert contents(workspace) == before


def test_another_text_in_its_place_stays(transduce: Any, workspace: Path, contents: Any) -> None:
    (workspace / "demo" / "data").mkdir(parents=True)
    (workspace / "demo" / "data" / "text.tsv").write_text("mine", encoding="utf-8")
    before = contents(workspace)
    answer = transduce("demo", "--output", "demo", "--updates", "2")
    assert answer.exit_code == 2
    assert "demo/data/text.tsv: differs from the text of this demonstration: remove it, or choose" in answer.messages
    assert contents(workspace) == before


def test_nothing_is_written_where_something_else_is(transduce: Any, workspace: Path, contents: Any) -> None:
    before = contents(workspace)
    answer = transduce("demo", "--output", ".")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "choose another output" in answer.messages
    assert contents(workspace) == before
