"""One readable line for every value that is wrong, and none for what merely follows from it."""

import re
from collections.abc import Callable

import pytest

from transduce.config import RunConfig
from transduce.errors import ConfigError

WRONG = {
    "training.updates=many": "--set: training.updates = 'many': must be a valid integer",
    "training.updates=1.0": "--set: training.updates = 1.0: must be a valid integer",
    "training.updates=true": "--set: training.updates = True: must be a valid integer",
    "training.updates=0": "--set: training.updates = 0: must be greater than or equal to 1",
    "training.updates=3000000000": "--set: training.updates = 3000000000: must be at most 2147483647",
    "output=a\0b": "--set: output = 'a\\x00b': must be without the character NUL, which no name can have",
    "data.pairs=t\udce9.tsv": "--set: data.pairs = 't\\udce9.tsv': must be UTF-8: rename the file or folder",
    "search.length_penalty=1e308": "--set: search.length_penalty = 1e+308: must be less than or equal to 10",
    "model.dropout=1": "--set: model.dropout = 1: must be less than 1",
    "training.clip_norm=nan": "--set: training.clip_norm = nan: must be a finite number",
    "training.clip_norm=inf": "--set: training.clip_norm = inf: must be a finite number",
    "text.drop_copies=1": "--set: text.drop_copies = 1: must be a valid boolean",
    "model.positions=sine": "--set: model.positions = 'sine': must be 'sinusoidal', 'learned' or 'none'",
    "model.d_model=wide": "--set: model.d_model = 'wide': must be a valid integer",
    "model.num_heads=0": "--set: model.num_heads = 0: must be greater than or equal to 1",
    "text.vocabulary=huge": "--set: text.vocabulary = 'huge': must be a valid integer or 'fitted'",
    "text.vocabulary=true": "--set: text.vocabulary = True: must be a valid integer or 'fitted'",
    "text.vocabulary=3": "text: vocabulary = 3 must be from 264 (the 256 bytes, the special symbols and a few letters) "
    'to 1000000, or "fitted"',
    "data.columns=12": "--set: data.columns = 12: must be a list",
    'data.columns=["1"]': "--set: data.columns = ['1']: must be longer",
    'data.columns=["1", "2", "3"]': "--set: data.columns = ['1', '2', '3']: must be shorter",
    "data.columns=[true, 2]": "--set: data.columns = [True, 2]: must be a valid string",
    "data.corpora=a.tsv": "--set: data.corpora = 'a.tsv': must be a list",
    'data.corpora=["a.tsv"]': "--set: data.corpora = ['a.tsv']: must be a table",
    'data.corpora=[{pairs="a"}, {pairs="b", weight=0}]': "--set: data.corpora, number 2: weight = 0: must be greater "
    "than 0",
    'data.corpora=[{pairs="a", wieght=2}]': "--set: data.corpora, number 1: wieght = 2: must be left out, as there is "
    "no such setting",
    'data.corpora=[{pairs="a", columns=[1]}]': "--set: data.corpora, number 1: columns = [1]: must be longer",
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
