import json
from pathlib import Path
from typing import Any

import pytest

from transduce.config import TransformerConfig


def test_a_preset_has_the_papers_size(transduce: Any) -> None:
    answer = transduce("info", "base", "--vocabulary", "37000", "--json")
    found = json.loads(answer.output)
    assert (answer.exit_code, answer.messages) == (0, "")
    assert b'"parameters": 63082496' in answer.output
    assert (found["kind"], found["float32_bytes"]) == ("preset", 4 * 63_082_496)
    assert [37_000, 512] in found["shapes"].values()


def test_the_text_says_the_same(transduce: Any) -> None:
    answer = transduce("info", "table3-C-4")
    found = json.loads(transduce("info", "table3-C-4", "--json").output)
    assert f"{found['parameters']:,}" in answer.lines[1]
    for name, shape in found["shapes"].items():
        assert any(line.split() == [*" x ".join(map(str, shape)).split(), name] for line in answer.lines)
    settings = TransformerConfig.model_validate(found["model"]).select_own_settings()
    others = {"kernel_width", "max_relative_distance"}  # of another network, and of other positions
    assert settings.keys() == found["model"].keys() - others
    for name, value in settings.items():
        assert [name, str(value)] in [line.split() for line in answer.lines]


@pytest.mark.parametrize(("kind", "place"), [("recipe", ""), ("run", ""), ("bundle", "best"), ("bundle", "last")])
def test_what_is_described_is_recognised(
    transduce: Any, workspace: Path, run_folder: Path, kind: str, place: str
) -> None:
    subject = workspace / "tiny.toml" if kind == "recipe" else run_folder / place
    found = json.loads(transduce("info", subject, "--json").output)
    assert (found["kind"], found["subject"]) == (kind, str(subject))
    assert found["model"]["vocabulary"] == 300
    assert ("settings" in found, "bundle" in found) == (kind != "bundle", kind != "recipe")
    assert transduce("info", subject).lines[0].split() == [kind, str(subject)]


def test_a_vocabulary_that_is_not_known_yet_is_said_to_be_assumed(transduce: Any, workspace: Path) -> None:
    (workspace / "fitted.toml").write_text('preset = "tiny"\n[text]\nvocabulary = "fitted"\n', encoding="utf-8")
    assert "fitted to the text; here as with 37,000 (--vocabulary)" in transduce("info", "fitted.toml").output.decode()
    answer = transduce("info", "fitted.toml", "--vocabulary", "8000").output.decode()
    assert "fitted to" not in answer
