from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.config import PRESETS, RunConfig, load_run_config
from transduce.errors import ConfigError

Load = Callable[..., RunConfig]
Recipe = Callable[[str], Path]

LAYERS: list[dict[str, Any]] = [
    {"automatic": {"training.warmup": 1}},
    {"recipe": "[training]\nwarmup = 2"},
    {"environment": {"TRANSDUCE_TRAINING_WARMUP": "3"}},
    {"arguments": {"training.warmup": 4}},
    {"settings": ["training.warmup=5"]},
    {"settings": ["training.warmup=5", "training.warmup=6"]},
]


@pytest.mark.parametrize("top", range(len(LAYERS)))
def test_the_later_layer_wins(recipe: Recipe, top: int) -> None:
    given: dict[str, Any] = {}
    for layer in LAYERS[: top + 1]:
        given |= layer
    path = recipe(given.pop("recipe")) if "recipe" in given else None
    config, origins = load_run_config(path, **given)
    assert config.training.warmup == top + 1
    names = ["size of the corpus", str(path), "environment variable TRANSDUCE_TRAINING_WARMUP", "command line", "--set"]
    assert origins["training.warmup"] == names[min(top, 4)]


def test_a_preset_lies_between_defaults_and_file(load: Load, recipe: Recipe) -> None:
    assert load().model.d_model == 512
    assert load('preset = "tiny"').model.d_model == 128
    config = load('preset = "tiny"\n[model]\nd_model = 64')
    assert (config.model.d_model, config.model.d_ff, config.model.max_positions) == (
        64,
        PRESETS["tiny"]["model"]["d_ff"],
        1024,
    )
    _, origins = load_run_config(recipe('preset = "tiny"\n[model]\nd_model = 64'))
    assert origins["model.d_ff"] == 'preset "tiny"'
    assert origins["model.d_model"].endswith("recipe.toml")
    assert "model.max_positions" not in origins


def test_the_last_layer_that_names_a_preset_decides_it(recipe: Recipe) -> None:
    path = recipe('preset = "tiny"')
    automatic = {"preset": "big"}
    assert load_run_config(None, automatic=automatic)[0].model.d_model == 1024
    assert load_run_config(path, automatic=automatic)[0].model.d_model == 128
    assert load_run_config(path, automatic=automatic, settings=["preset=small"])[0].model.d_model == 256


def test_a_run_is_named_after_its_recipe_unless_it_has_a_name(load: Load, recipe: Recipe) -> None:
    assert load_run_config(None)[0].output == "runs/unnamed"
    assert load().output == "runs/recipe"
    assert load('output = "elsewhere"').output == "elsewhere"
    assert load_run_config(recipe(""), arguments={"output": "there"})[0].output == "there"


def test_the_vocabulary_of_the_tokenizer_is_that_of_the_network(load: Load, recipe: Recipe) -> None:
    assert load().model.vocabulary == load().text.vocabulary == 37_000
    assert load("[text]\nvocabulary = 6000").model.vocabulary == 6000
    assert load("[text]\nvocabulary = 6000\n[model]\nvocabulary = 6000").model.vocabulary == 6000
    _, origins = load_run_config(recipe("[text]\nvocabulary = 6000"))
    assert origins["model.vocabulary"] == "text.vocabulary"


@pytest.mark.parametrize(
    "text", ["[text]\nvocabulary = 6000\n[model]\nvocabulary = 5000", "[model]\nvocabulary = 5000"]
)
def test_two_sizes_of_one_vocabulary_contradict_each_other(load: Load, text: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.vocabulary = 5000 differs from text\.vocabulary = (6000|37000)"):
        load(text)


@pytest.mark.parametrize("text", ['vocabulary = "fitted"', 'tokenizer = "made.model"', 'tokenizer="m"\nvocabulary=300'])
def test_a_vocabulary_that_shows_later_may_be_written_down(load: Load, text: str) -> None:
    """So a run's resolved copy can be read back, whatever its tokenizer turned out to be."""
    assert load(f"[text]\n{text}\n[model]\nvocabulary = 5000").model.vocabulary == 5000


@pytest.mark.parametrize("setting", ["training.updates", "", "updates 5"])
def test_a_setting_is_key_and_value(load: Load, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"--set {setting}: must be key=value"):
        load("", setting)


def test_a_value_may_hold_an_equals_sign(load: Load) -> None:
    assert load("", "output=runs/a=b").output == "runs/a=b"


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such file"):
        load_run_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_run_config(tmp_path)


def test_a_setting_that_does_not_exist_names_where_it_stands_and_the_nearest(recipe: Recipe) -> None:
    path = recipe("[model]\nd_modle = 3")
    with pytest.raises(ConfigError) as caught:
        load_run_config(path)
    assert str(caught.value) == f"{path}: there is no setting 'model.d_modle'; did you mean 'model.d_model'?"


def test_the_papers_schedule_takes_back_the_peak_of_a_preset(load: Load) -> None:
    config = load("", "preset=tiny", "training.schedule=paper")
    assert config.training.learning_rate is None


@pytest.mark.parametrize(
    ("text", "setting", "left"),
    [
        ('pairs = "a.tsv"', ("data.source=s", "data.target=t"), {"source": "s", "target": "t"}),
        ('source = "s"\ntarget = "t"', ("data.pairs=a.tsv",), {"pairs": "a.tsv"}),
        ('corpora = [{pairs = "a.tsv"}]', ("data.pairs=b.tsv",), {"pairs": "b.tsv"}),
        (
            'pairs = "a.tsv"\nvalidation_pairs = "v.tsv"',
            ("data.validation_source=s", "data.validation_target=t"),
            {"pairs": "a.tsv", "validation_source": "s", "validation_target": "t"},
        ),
    ],
)
def test_files_take_the_place_of_others_given_below(
    load: Load, text: str, setting: tuple[str, ...], left: dict[str, str]
) -> None:
    data = load(f"[data]\n{text}", *setting).data
    assert {name: value for name, value in data if value and name not in {"folder", "held_out"}} == left


def test_files_given_twice_in_one_place_contradict_each_other(load: Load) -> None:
    with pytest.raises(ConfigError, match="pairs and source are both given"):
        load('[data]\npairs = "a.tsv"\nsource = "s"\ntarget = "t"')


def test_updates_and_epochs_are_given_instead_of_each_other(load: Load) -> None:
    automatic = {"training.epochs": 3.0}
    assert load_run_config(None, automatic=automatic)[0].training.epochs == 3.0
    config, _ = load_run_config(None, automatic=automatic, settings=["training.updates=7"])
    assert (config.training.updates, config.training.epochs) == (7, None)
    config = load('preset = "tiny"\n[training]\nupdates = 7')
    assert (config.training.updates, config.training.epochs) == (7, None)
    config = load('preset = "tiny"\n[training]\nepochs = 2.5')
    assert config.training.epochs == 2.5
