"""A student is trained on what its teacher says, and validated by what people wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle
from transduce.config import RunConfig
from transduce.data import open_corpus, prepare
from transduce.training import train
from transduce.training.synthetic.distillation import replace_targets
from transduce.translation import Translator


def read(path: str | None) -> list[tuple[str, str]]:
    lines = Path(str(path)).read_text(encoding="utf-8").splitlines()
    return [(pair["source"], pair["target"]) for pair in map(json.loads, lines)]


@pytest.fixture
def config(make_config: Callable[..., RunConfig], copier: Any, tmp_path: Path) -> RunConfig:
    return make_config(
        data__teacher=str(copier.result.folder),
        data__validation_pairs=None,
        data__held_out=6,
        text__drop_copies=False,
        data__cache=str(tmp_path / "cache"),
        training__updates=8,
    )


def test_targets_are_the_translations_of_the_teacher(config: RunConfig, copier: Any, tmp_path: Path) -> None:
    data = replace_targets(config, tmp_path, lambda _: None)
    (corpus,) = data.training_corpora
    sources, targets = map(list, zip(*read(corpus.pairs), strict=True))
    assert targets == Translator.load(copier.result.folder / "best").translate(sources)
    assert not corpus.tag


def test_translations_are_targets_where_the_sides_of_the_files_are_exchanged(config: RunConfig, tmp_path: Path) -> None:
    exchanged = config.model_copy(update={"data": config.data.model_copy(update={"swap_sides": True})})
    data = replace_targets(exchanged, tmp_path, lambda _: None)
    (corpus,) = data.training_corpora
    assert list(open_corpus(data, corpus)) == read(corpus.pairs)


def test_validation_is_that_of_a_run_without_teacher(config: RunConfig, tmp_path: Path) -> None:
    plain = config.data.model_copy(update={"teacher": None})
    expected = prepare(plain, config.text, tmp_path / "plain", report=lambda _: None).validation
    data = replace_targets(config, tmp_path, lambda _: None)
    prepared = prepare(data, config.text, tmp_path / "distilled", report=lambda _: None)
    assert prepared.validation == expected
    sources = {source for source, _ in read(data.training_corpora[0].pairs)}
    assert not sources & {source for source, _ in expected}


def test_given_validation_text_is_kept(config: RunConfig, corpus: Path, tmp_path: Path) -> None:
    given = config.model_copy(update={"data": config.data.model_copy(update={"validation_pairs": "validation.tsv"})})
    data = replace_targets(given, tmp_path, lambda _: None)
    assert (data.validation_pairs, data.validation_columns) == ("validation.tsv", None)


def test_a_run_with_a_teacher_goes_on_like_any_other(config: RunConfig) -> None:
    result = train(config)
    assert Bundle.open(result.folder / "best").description.languages.source == "en"
    assert train(config).updates == result.updates
