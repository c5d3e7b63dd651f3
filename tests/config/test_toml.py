import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import PRESETS, DataConfig, RunConfig, load_run_config, to_toml
from transduce.config.toml import read_toml
from transduce.errors import ConfigError


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_written_reads_back_equal(recipe: Callable[[str], Path], preset: str) -> None:
    config, origins = load_run_config(None, settings=[f"preset={preset}"])
    for text in (to_toml(config), to_toml(config, origins)):
        assert load_run_config(recipe(text))[0] == config


@settings(max_examples=30)
@given(st.text(), st.lists(st.text(), min_size=2, max_size=2, unique=True), st.floats(1e-300, 1e300), st.text())
def test_any_value_reads_back_equal(words: str, columns: list[str], rate: float, origin: str) -> None:
    data = DataConfig(source=words, target="b", columns=(columns[0], columns[1]))
    config = RunConfig(data=data)
    config = config.model_copy(update={"training": config.training.model_copy(update={"clip_norm": rate})})
    said = tomllib.loads(to_toml(config, {"data.source": origin, "output": origin}))
    assert said["data"]["source"] == words
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
        '{source = "a.en", target = "a.de", weight = 1.0}',
        '{pairs = "b\\"c.tsv", columns = ["2", "1"], weight = 0.5}',
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
