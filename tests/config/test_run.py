import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import (
    PRESETS,
    DataConfig,
    RunConfig,
    SearchConfig,
    TransformerConfig,
    load_resolved_config,
    load_run_config,
    to_toml,
)
from transduce.config.run import (
    check_key,
    flatten,
    list_setting_keys,
    parse_value,
    read_environment_settings,
    read_toml,
    unflatten,
)
from transduce.errors import ConfigError


def test_the_tokenizer_has_the_last_word_on_the_vocabulary() -> None:
    config = RunConfig(model=TransformerConfig(d_model=64, num_heads=4))
    sized = config.with_vocabulary(777)
    assert sized.model.vocabulary == 777
    assert sized.model.model_copy(update={"vocabulary": config.model.vocabulary}) == config.model
    assert sized.model_copy(update={"model": config.model}) == config


def test_prepared_data_is_beside_the_run_unless_told_otherwise() -> None:
    assert RunConfig(output="runs/mine").cache_folder == Path("runs/.cache")
    assert RunConfig(output="runs/mine", data=DataConfig(cache="elsewhere")).cache_folder == Path("elsewhere")


def test_the_search_is_that_of_the_paper() -> None:
    search = SearchConfig()
    assert (search.beam, search.length_penalty, search.max_extra_length) == (4, 0.6, 50)


def test_every_setting_is_documented() -> None:
    for section in RunConfig.model_json_schema()["$defs"].values():
        for name, setting in section["properties"].items():
            assert setting.get("description"), name


def test_settings_load_no_torch() -> None:
    code = "import sys, transduce.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    defaults = flatten(RunConfig().model_dump())
    assert list_setting_keys().keys() == defaults.keys()
    assert flatten(unflatten(defaults)) == defaults
    for key in list_setting_keys():
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
    with pytest.raises(ConfigError, match=f"^here: unknown setting '{key}'; did you mean '{nearest}'"):
        check_key(key, "here")


def test_a_key_like_no_other_is_answered_with_the_list() -> None:
    with pytest.raises(ConfigError, match="`transduce config schema` lists all"):
        check_key("qqqqqq", "here")
    with pytest.raises(ConfigError, match=r"unknown setting 'training.lr'; \[training\] has .*learning_rate, .*"):
        check_key("training.lr", "here")


@pytest.mark.parametrize("text", ["model = 3", "[[model]]\nd_model = 3", "model = []"])
def test_a_section_is_no_value(recipe: Callable[[str], Path], text: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"recipe.toml: 'model' is a section; give one of its settings, as in "
        r"model\.\w",
    ):
        load_run_config(recipe(text))


@pytest.mark.parametrize("text", ["[training.updates]\na = 1", "[training.updates]", "training.updates.a.b = 1"])
def test_a_value_is_no_section(recipe: Callable[[str], Path], text: str) -> None:
    with pytest.raises(ConfigError, match=r"recipe.toml: training.updates = \{.*\}: must be a valid integer"):
        load_run_config(recipe(text))


@pytest.mark.parametrize("text", ["[trianing]", "[trianing]\nupdates = 3", "[output.x]\ny = 3", "[preset]"])
def test_a_section_that_does_not_exist(recipe: Callable[[str], Path], text: str) -> None:
    with pytest.raises(ConfigError, match=r"recipe.toml: (unknown setting 'trianing|(output|preset) = \{)"):
        load_run_config(recipe(text))


def test_an_empty_section_says_nothing(recipe: Callable[[str], Path]) -> None:
    assert load_run_config(recipe("[model]\n[training]"))[0].model == RunConfig().model


def test_every_setting_has_a_variable_of_its_own() -> None:
    environment = {"TRANSDUCE_" + key.replace(".", "_").upper(): "x" for key in list_setting_keys()}
    assert len(environment) == len(list_setting_keys())
    assert read_environment_settings(environment).keys() == list_setting_keys().keys()


def test_other_variables_are_not_ours() -> None:
    environment = {
        "PATH": "/bin",
        "TRANSDUCER": "x",
        "TRANSDUCE_TRACEBACK": "1",
        "TRANSDUCE_KERNELS": "off",
        "TRANSDUCE_SEARCH_BEAM": "2",
    }
    assert read_environment_settings(environment) == {"search.beam": "TRANSDUCE_SEARCH_BEAM"}
    assert load_run_config(None, environment=environment)[0].search.beam == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [("TRANSDUCE_TRAINING_UPDATE", "; did you mean TRANSDUCE_TRAINING_UPDATES?"), ("TRANSDUCE_QQQ", "")],
)
def test_a_variable_that_names_no_setting(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run_config(None, environment={name: "5"})
    assert str(caught.value) == f"environment variable {name}: unknown setting{hint}"


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
    assert unflatten(flatten(preset)) == preset


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_written_reads_back_equal(recipe: Callable[[str], Path], preset: str) -> None:
    config, origins = load_run_config(None, settings=[f"preset={preset}"])
    for text in (to_toml(config), to_toml(config, origins)):
        assert load_run_config(recipe(text))[0] == config


# Any characters but NUL, which no name of a file can have, and halves of surrogate pairs, which are no UTF-8.
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@pytest.mark.exhaustive
@settings(max_examples=30)
@given(ANY_TEXT, st.lists(ANY_TEXT, min_size=2, max_size=2, unique=True), st.floats(1e-300, 1e300), st.text())
def test_any_value_reads_back_equal(words: str, columns: list[str], rate: float, origin: str) -> None:
    data = DataConfig(pairs=words, columns=(columns[0], columns[1]))
    config = RunConfig(data=data)
    config = config.model_copy(update={"training": config.training.model_copy(update={"clip_norm": rate})})
    said = tomllib.loads(to_toml(config, {"data.pairs": origin, "output": origin}))
    assert said["data"]["pairs"] == words
    assert said["data"]["columns"] == columns
    assert said["training"]["clip_norm"] == rate


@pytest.mark.parametrize(
    "words", ['"', "'", "a\nb", "a\r\nb", "\\", "\x01\x1f\x7f\x85\u2028", "\ufeffé漢😀", "# no", '"""']
)
def test_awkward_words(recipe: Callable[[str], Path], words: str) -> None:
    config = RunConfig(output=words, data=DataConfig(folder=words))
    text = to_toml(config, {"output": words, "data.folder": f"file {words}"})
    assert load_run_config(recipe(text))[0] == config


def test_origins_stand_beside_their_values() -> None:
    config, origins = load_run_config(None, settings=["preset=tiny", "text.vocabulary=6000"])
    lines = to_toml(config, origins).split("\n")
    assert 'preset = "tiny"  # --set' in lines
    assert 'd_model = 128  # preset "tiny"' in lines
    assert "vocabulary = 6000  # text.vocabulary" in lines
    assert "max_positions = 1024" in lines


def test_several_corpora_stand_in_one_line(recipe: Callable[[str], Path]) -> None:
    text = """
        [[data.corpora]]
        source = "a.en"
        target = "a.de"
        [[data.corpora]]
        pairs = "b\\"c.tsv"
        columns = [2, 1]
        weight = 0.5
    """
    config, origins = load_run_config(path := recipe(text))
    written = to_toml(config, origins)
    first, second = (
        '{source = "a.en", target = "a.de", weight = 1.0, synthetic = false}',
        '{pairs = "b\\"c.tsv", columns = ["2", "1"], weight = 0.5, synthetic = false}',
    )
    assert f"corpora = [{first}, {second}]  # {path}" in written.split("\n")
    assert load_run_config(recipe(written))[0] == config


def test_what_has_no_value_is_left_out() -> None:
    assert "validation_source" not in to_toml(RunConfig())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"model =\n", "not valid TOML: .*line 1"),
        (b"[model]\nd_model = 3\nd_model = 4\n", "not valid TOML: .*line 3"),
        (b"[model]\n[model]", "not valid TOML: .*line 2"),
        (b"[training]\nupdates = " + b"1" * 5000, "not valid TOML: .*digits"),
        (b"a = " + b"[" * 100_000, "not valid TOML: "),
        (b'output = "\xff"', "byte 10 is not UTF-8"),
    ],
)
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_toml(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_may_not_be_read(unreadable_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"unreadable\.toml: cannot be read \(Permission denied\)"):
        read_toml(unreadable_file)


def test_a_file_below_a_file(recipe: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match=r"recipe\.toml/x: cannot be read \(Not a directory\)"):
        read_toml(recipe("") / "x")


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    """As Windows puts in front."""
    (tmp_path / "recipe.toml").write_text('preset = "tiny"', encoding="utf-8-sig")
    assert read_toml(tmp_path / "recipe.toml") == {"preset": "tiny"}


WRONG = {
    "training.updates=many": "--set: training.updates = 'many': must be a valid integer",
    "training.updates=1.0": "--set: training.updates = 1.0: must be a valid integer",
    "training.updates=true": "--set: training.updates = True: must be a valid integer",
    "training.updates=0": "--set: training.updates = 0: must be greater than or equal to 1",
    "training.updates=3000000000": "--set: training.updates = 3000000000: must be at most 2147483647",
    "training.updates=-3000000000": "--set: training.updates = -3000000000: must be greater than or equal to 1",
    "output=a\0b": "--set: output = 'a\\x00b': must be without the NUL character, which file names cannot contain",
    "data.pairs=t\udce9.tsv": "--set: data.pairs = 't\\udce9.tsv': must be UTF-8: rename the file or folder",
    'data.teacher_ensemble=["a", "t\udce9"]': "--set: data.teacher_ensemble = ['a', 't\\udce9']: must be UTF-8: "
    "rename the file or folder",
    'data.columns=["a", "b\\u0000"]': "--set: data.columns = ['a', 'b\\x00']: must be without the NUL character, "
    "which file names cannot contain",
    "search.length_penalty=1e308": "--set: search.length_penalty = 1e+308: must be less than or equal to 10",
    "model.dropout=1": "--set: model.dropout = 1: must be less than 1",
    "training.clip_norm=nan": "--set: training.clip_norm = nan: must be a finite number",
    "training.clip_norm=inf": "--set: training.clip_norm = inf: must be a finite number",
    "text.drop_copies=1": "--set: text.drop_copies = 1: must be a valid boolean",
    "model.positions=sine": "--set: model.positions = 'sine': must be 'sinusoidal', 'learned', 'relative', "
    "'rotary' or 'none'",
    "model.d_model=wide": "--set: model.d_model = 'wide': must be a valid integer",
    "model.num_heads=0": "--set: model.num_heads = 0: must be greater than or equal to 1",
    "text.vocabulary=huge": "--set: text.vocabulary = 'huge': must be a valid integer or 'fitted'",
    "text.vocabulary=true": "--set: text.vocabulary = True: must be a valid integer or 'fitted'",
    "text.vocabulary=3": "text: vocabulary = 3 must be from 264 (the 256 bytes, the special symbols and a few letters) "
    'to 1000000, or "fitted"',
    "data.columns=12": "--set: data.columns = 12: must be a list",
    "training.r_drop=1e39": "--set: training.r_drop = 1e+39: must be less than or equal to 1000",
    'data.columns=["1"]': "--set: data.columns = ['1']: must be a list with more items",
    'data.columns=["1", "2", "3"]': "--set: data.columns = ['1', '2', '3']: must be a list with fewer items",
    "data.columns=[true, 2]": "--set: data.columns = [True, 2]: must be a valid string",
    "data.corpora=a.tsv": "--set: data.corpora = 'a.tsv': must be a list",
    'data.corpora=["a.tsv"]': "--set: data.corpora = ['a.tsv']: must be a table",
    'data.corpora=[{pairs="a"}, {pairs="b", weight=0}]': "--set: data.corpora, number 2: weight = 0: must be greater "
    "than 0",
    'data.corpora=[{pairs="a", wieght=2}]': "--set: data.corpora, number 1: wieght = 2: must be left out: unknown "
    "setting",
    'data.corpora=[{pairs="a", columns=[1]}]': "--set: data.corpora, number 1: columns = [1]: must be a list "
    "with more items",
    'data.corpora=[{pairs="a"}, {source="b"}]': "data.corpora, number 2: source is given without target: give both",
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_wrong_value_is_one_line(load: Callable[..., RunConfig], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("", setting)
    assert str(caught.value) == WRONG[setting]


def test_every_wrong_value_has_its_line(load: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError) as caught:
        load("[training]\nupdates = 0\n[model]\nd_model = 1", "search.beam=0", "text.bpe_dropout=2")
    lines = str(caught.value).split("\n")
    assert len(lines) == 4
    for line, start in zip(sorted(lines), ["--set: search", "--set: text", "/", "/"], strict=True):
        assert line.startswith(start)


def test_a_value_of_a_file_names_the_file(load: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError, match=re.escape("recipe.toml: search.beam = 0: must be")):
        load("[search]\nbeam = 0")


def test_a_preset_that_does_not_exist(load: Callable[..., RunConfig]) -> None:
    with pytest.raises(
        ConfigError, match=r'^preset = "bgi" must be one of: low-resource, medium-resource, tiny, small, base, '
    ):
        load('preset = "bgi"')
    with pytest.raises(ConfigError, match=r"preset = .*: must be a valid string"):
        load("preset = ['base']")


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


def test_variables_that_contradict_each_other_are_refused_as_in_a_recipe(recipe: Recipe) -> None:
    files = {"TRANSDUCE_DATA_SOURCE": "a", "TRANSDUCE_DATA_TARGET": "b"}
    with pytest.raises(ConfigError, match="pairs and source are both given: give one of them"):
        load_run_config(None, environment={**files, "TRANSDUCE_DATA_PAIRS": "c"})
    path = recipe('[data]\npairs = "c"\ncolumns = ["en", "de"]')
    assert load_run_config(path)[0].data.columns == ("en", "de")
    config, _ = load_run_config(path, environment=files)
    assert (config.data.source, config.data.pairs, config.data.columns) == ("a", None, None)


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
    assert str(caught.value) == f"{path}: unknown setting 'model.d_modle'; did you mean 'model.d_model'?"


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
    assert data.model_dump(exclude_defaults=True, exclude={"folder"}) == left


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


def test_a_saved_configuration_is_taken_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a later version adds to a preset is not of the runs that were begun before."""
    config, _ = load_run_config(None, arguments={"preset": "low-resource", "output": "runs/mine"})
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    monkeypatch.setitem(PRESETS, "low-resource", {"training": {"clip_norm": 5.0}})
    assert load_resolved_config(path) == config
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line for line in lines if "clip_norm" not in line), encoding="utf-8")
    assert load_resolved_config(path) == config
    path.write_text("[training]\nupdates = 0\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"training\.updates"):
        load_resolved_config(path)
    path.write_text("[training]\nupdate = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"training\.update"):
        load_resolved_config(path)


def test_another_network_leaves_guided_alignment_out() -> None:
    config, _ = load_run_config(None, settings=["preset=low-resource", "model.architecture=convs2s"])
    assert config.training.guided_alignment == 0
    assert load_run_config(None, settings=["preset=low-resource"])[0].training.guided_alignment > 0
    with pytest.raises(ConfigError, match="guides a head of a Transformer, and"):
        load_run_config(None, settings=["model.architecture=convs2s", "training.guided_alignment=0.3"])


def test_r_drop_without_dropout_is_refused(load: Load) -> None:
    assert load("[training]\nr_drop = 5.0").training.r_drop == 5
    with pytest.raises(ConfigError, match=r"training\.r_drop = 5\.0 has no effect with model\.dropout = 0"):
        load("[training]\nr_drop = 5.0\n[model]\ndropout = 0.0")


def test_a_number_that_is_too_long_on_the_command_line_is_named() -> None:
    with pytest.raises(ConfigError, match=r"training\.updates"):
        load_run_config(None, settings=["training.updates=" + "1" * 5000])


def test_a_message_has_a_limited_number_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[[data.corpora]]\n" * 300, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"number 20: a corpus has no files[^\n]*\nand 280 more"):
        load_run_config(tmp_path / "a.toml")
