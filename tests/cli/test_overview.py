import json
from pathlib import Path
from typing import Any

import pytest

from transduce.config import RunConfig, TransformerConfig, load_run_config


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
    settings = TransformerConfig.model_validate(found["model"]).own_settings()
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


SETTINGS = ["training.updates=7", 'data.source=odd "name" \\ # and\ttab', "text.bpe_dropout=0.1", "search.beam=2"]


@pytest.mark.parametrize("recipe", [[], ["tiny.toml"]])
def test_what_is_shown_is_a_recipe_for_the_same(transduce: Any, workspace: Path, recipe: list[str]) -> None:
    given = [setting for setting in SETTINGS if recipe or not setting.startswith("data.source")]
    answer = transduce("config", "show", *recipe, *(f"--set={setting}" for setting in given))
    assert (answer.exit_code, answer.messages) == (0, "")
    (workspace / "shown.toml").write_bytes(answer.output)
    expected, _ = load_run_config(Path(recipe[0]) if recipe else None, settings=given)
    assert load_run_config(workspace / "shown.toml")[0] == expected


def test_origins_are_comments(transduce: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_SEARCH_BEAM", "2")
    lines = transduce("config", "show", "tiny.toml", "--set", "preset=big", "--set", "training.updates=7").lines
    assert {
        'output = "runs/tiny"  # name of the recipe',
        'preset = "big"  # --set',
        "updates = 7  # --set",
        'keep_checkpoints = 20  # preset "big"',
        "warmup = 2  # tiny.toml",
        "beam = 2  # environment variable TRANSDUCE_SEARCH_BEAM",
        "adam_beta1 = 0.9",
    } <= set(lines)


def test_what_comes_from_the_bundle_of_a_fine_tuning_says_so(transduce: Any, workspace: Path, run_folder: Path) -> None:
    lines = transduce("config", "show", "--set", f"training.start_from={run_folder}").lines
    origin = "  # training.start_from"
    expected = {"d_model = 32", 'source_language = "en"', "max_extra_length = 8"}
    assert {f"{setting}{origin}" for setting in expected} <= set(lines)


def test_the_schema_describes_every_setting(transduce: Any) -> None:
    answer = transduce("config", "schema")
    schema = json.loads(answer.output)
    assert (answer.exit_code, answer.messages) == (0, "")
    assert set(schema["properties"]) == set(RunConfig.model_fields)
    for section in schema["$defs"].values():
        for setting in section["properties"].values():
            assert setting["description"].strip()
            assert {"type", "anyOf", "enum", "$ref"} & set(setting)
            assert setting.get("default") is not None or setting.get("type") or "anyOf" in setting


def test_a_schema_refuses_what_is_unknown(transduce: Any) -> None:
    schema = json.loads(transduce("config", "schema").output)
    assert all(section["additionalProperties"] is False for section in [schema, *schema["$defs"].values()])


def test_a_vocabulary_that_is_not_known_yet_is_said_to_be_assumed(transduce: Any, workspace: Path) -> None:
    (workspace / "fitted.toml").write_text('preset = "tiny"\n[text]\nvocabulary = "fitted"\n', encoding="utf-8")
    assert "fitted to the text; here as with 37,000 (--vocabulary)" in transduce("info", "fitted.toml").output.decode()
    answer = transduce("info", "fitted.toml", "--vocabulary", "8000").output.decode()
    assert "fitted to" not in answer
