import json
from pathlib import Path
from typing import Any

import pytest

from transduce.config import RunConfig, load_run_config

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
