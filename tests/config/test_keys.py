from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from transduce.config import PRESETS, RunConfig, load_run_config
from transduce.config.keys import check_key, environment_settings, flatten, known_keys, nest, parse_value
from transduce.errors import ConfigError


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    defaults = flatten(RunConfig().model_dump())
    assert known_keys().keys() == defaults.keys()
    assert flatten(nest(defaults)) == defaults
    for key in known_keys():
        check_key(key, "test")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("model.d_modle", "model.d_model"),
        ("updates", "training.updates"),
        ("training.dropout", "model.dropout"),
        ("trainig.updates", "training.updates"),
        ("ouput", "output"),
        ("training.batch_size", "training.batch_tokens"),
        ("training.accumulate", "training.accumulation"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"^here: there is no setting '{key}'; did you mean '{nearest}'"):
        check_key(key, "here")


def test_a_key_like_no_other_is_answered_with_the_list() -> None:
    with pytest.raises(ConfigError, match="`transduce config schema` lists all"):
        check_key("qqqqqq", "here")
    with pytest.raises(ConfigError, match=r"there is no setting 'training.lr'; \[training\] has .*learning_rate, .*"):
        check_key("training.lr", "here")


@pytest.mark.parametrize("text", ["model = 3", "[[model]]\nd_model = 3", "model = []"])
def test_a_section_is_no_value(recipe: Callable[[str], Path], text: str) -> None:
    with pytest.raises(ConfigError, match=r"recipe.toml: 'model' is a section; give a setting of it, as in model\.\w"):
        load_run_config(recipe(text))


@pytest.mark.parametrize("text", ["[training.updates]\na = 1", "[training.updates]", "training.updates.a.b = 1"])
def test_a_value_is_no_section(recipe: Callable[[str], Path], text: str) -> None:
    with pytest.raises(ConfigError, match=r"recipe.toml: training.updates = \{.*\}: must be a valid integer"):
        load_run_config(recipe(text))


@pytest.mark.parametrize("text", ["[trianing]", "[trianing]\nupdates = 3", "[output.x]\ny = 3", "[preset]"])
def test_a_section_that_does_not_exist(recipe: Callable[[str], Path], text: str) -> None:
    with pytest.raises(ConfigError, match=r"recipe.toml: (there is no setting 'trianing|(output|preset) = \{)"):
        load_run_config(recipe(text))


def test_an_empty_section_says_nothing(recipe: Callable[[str], Path]) -> None:
    assert load_run_config(recipe("[model]\n[training]"))[0].model == RunConfig().model


def test_every_setting_has_a_variable_of_its_own() -> None:
    environment = {"TRANSDUCE_" + key.replace(".", "_").upper(): "x" for key in known_keys()}
    assert len(environment) == len(known_keys())
    assert environment_settings(environment).keys() == known_keys().keys()


def test_other_variables_are_not_ours() -> None:
    environment = {"PATH": "/bin", "TRANSDUCER": "x", "TRANSDUCE_TRACEBACK": "1", "TRANSDUCE_SEARCH_BEAM": "2"}
    assert environment_settings(environment) == {"search.beam": "TRANSDUCE_SEARCH_BEAM"}
    assert load_run_config(None, environment=environment)[0].search.beam == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [("TRANSDUCE_TRAINING_UPDATE", "; did you mean TRANSDUCE_TRAINING_UPDATES?"), ("TRANSDUCE_QQQ", "")],
)
def test_a_variable_that_names_no_setting(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run_config(None, environment={name: "5"})
    assert str(caught.value) == f"environment variable {name}: there is no such setting{hint}"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("training.updates", "2_000", 2000),
        ("training.learning_rate", "5e-4", 5e-4),
        ("text.drop_copies", "false", False),
        ("text.vocabulary", "fitted", "fitted"),
        ("text.vocabulary", "6000", 6000),
        ("model.positions", "learned", "learned"),
        ("model.positions", '"learned"', "learned"),
        ("data.columns", '["2", "1"]', ["2", "1"]),
        ("data.source", "2024", "2024"),
        ("data.source", "true", "true"),
        ("data.source", "'a b'", "a b"),
        ("data.source", '"', '"'),
        ("data.source", "", ""),
        ("output", "C:\\runs", "C:\\runs"),
        ("training.updates", "many", "many"),
        ("training.updates", "20\nseed = 3", "20\nseed = 3"),
        ("data.columns", '[\n"2",\n"1"]', ["2", "1"]),
    ],
)
def test_a_word_needs_no_quotes(key: str, text: str, value: object) -> None:
    parsed = parse_value(key, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_sections_flatten_and_nest(preset: Mapping[str, Any]) -> None:
    assert nest(flatten(preset)) == preset
