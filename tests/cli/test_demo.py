import json
from pathlib import Path
from typing import Any

import pytest

from transduce.demo import demonstration


@pytest.fixture(autouse=True)
def fewer_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "NUM_TRAINING_PAIRS", 2000)


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


def test_another_text_in_its_place_stays(transduce: Any, workspace: Path, contents: Any) -> None:
    (workspace / "demo" / "data").mkdir(parents=True)
    (workspace / "demo" / "data" / "text.tsv").write_text("mine", encoding="utf-8")
    before = contents(workspace)
    answer = transduce("demo", "--output", "demo", "--updates", "2")
    assert answer.exit_code == 2
    assert "demo/data/text.tsv: is not the text of this demonstration: remove it, or choose" in answer.messages
    assert contents(workspace) == before


def test_nothing_is_written_where_something_else_is(transduce: Any, workspace: Path, contents: Any) -> None:
    before = contents(workspace)
    answer = transduce("demo", "--output", ".")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "choose another output" in answer.messages
    assert contents(workspace) == before
