import math
from typing import Any

import pytest
from pydantic import ValidationError

from transduce.config import DataConfig, TextConfig

A_FILE = {"source": "a", "target": "b"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "a"}, "source is given without target: give both"),
        ({"pairs": "p", "source": "a"}, "pairs and source are both given"),
        ({"pairs": "p", "target": "a"}, "pairs and target are both given"),
        ({"target": "b"}, "target is given without source: give both"),
        ({**A_FILE, "pairs": "c"}, "pairs and source are both given: give one of them"),
        ({"validation_source": "a"}, "validation_source is given without validation_target"),
        ({"validation_target": "a"}, "validation_target is given without validation_source"),
        (
            {"validation_source": "a", "validation_target": "b", "validation_pairs": "c"},
            "validation_pairs and validation_source are both given",
        ),
        ({"validation_pairs": "-"}, "validation_pairs cannot be read from standard input"),
        ({"columns": ["2", "2"]}, "^1 .*\\n.*columns: source and target are both '2': give two different ones"),
        ({"validation_columns": ["a", "a"]}, "validation_columns: source and target are both 'a'"),
        ({"corpora": [{"pairs": "a", "columns": [1, 1]}]}, "columns: source and target are both '1'"),
        ({**A_FILE, "columns": ["en", "de"]}, "^1 .*\\n.*columns are those of pairs, and source is given: leave them"),
        (
            {"validation_source": "a", "validation_target": "b", "validation_columns": ["en", "de"]},
            "validation_columns are those of validation_pairs, and validation_source is given",
        ),
        ({"corpora": [{**A_FILE, "columns": ["en", "de"]}]}, "columns are those of pairs, and source is given"),
        ({"held_out": 0}, "greater than or equal to 1"),
        ({**A_FILE, "corpora": [{"pairs": "c"}]}, "corpora and source are both given: give one of them"),
        ({"pairs": "-", "corpora": []}, "corpora and pairs are both given: give one of them"),
        ({"corpora": [{"source": "a"}]}, "source is given without target: give both"),
        ({"corpora": [{"weight": 2.0}]}, "a corpus has no files: give source and target, or pairs"),
        ({"corpora": [{"pairs": "-"}]}, "one of several corpora cannot be read from standard input"),
        ({"corpora": [{"pairs": "a", "weight": 0.0}]}, "greater than 0"),
        ({"corpora": [{"pairs": "a", "weight": math.inf}]}, "finite number"),
        ({"corpora": [{"pairs": "a", "weight": 1000.5}]}, "less than or equal to 1000"),
    ],
)
def test_files_that_contradict_each_other(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DataConfig(**given)


@pytest.mark.parametrize(
    "given",
    [{}, A_FILE, {"pairs": "-"}, {"pairs": "c", "validation_pairs": "d"}, {**A_FILE, "validation_pairs": "d"}],
    ids=str,
)
def test_files_that_go_together(given: dict[str, Any]) -> None:
    assert DataConfig(**given).model_dump(include=given.keys()) == given


def test_columns_are_two_words_in_a_list() -> None:
    assert DataConfig.model_validate({"columns": ["en", "de"]}).columns == ("en", "de")


def test_one_corpus_and_several_are_asked_for_alike() -> None:
    (one,) = DataConfig(**A_FILE).training_corpora
    assert (one.name, one.source, one.target, one.pairs, one.weight) == ("a b", "a", "b", None, 1.0)
    assert [corpus.pairs for corpus in DataConfig(pairs="-").training_corpora] == ["-"]
    data = DataConfig.model_validate({"corpora": [A_FILE, {"pairs": "c.tsv", "weight": 2, "columns": [3, 1]}]})
    assert [(corpus.name, corpus.weight) for corpus in data.training_corpora] == [("a b", 1.0), ("c.tsv", 2.0)]
    assert data.training_corpora[1].columns == ("3", "1")
    assert DataConfig().training_corpora == DataConfig(corpora=()).training_corpora == ()


@pytest.mark.parametrize("vocabulary", [263, 0, -1, 1_000_001])
def test_a_vocabulary_has_room_for_bytes_and_an_end(vocabulary: int) -> None:
    with pytest.raises(ValidationError, match=rf"vocabulary = {vocabulary} must be from 264 .* to 1000000"):
        TextConfig(vocabulary=vocabulary)


@pytest.mark.parametrize("vocabulary", [264, 1_000_000, "fitted"])
def test_a_vocabulary_that_may_be(vocabulary: int | str) -> None:
    assert TextConfig.model_validate({"vocabulary": vocabulary}).vocabulary == vocabulary


def test_merges_are_skipped_where_there_are_merges() -> None:
    assert TextConfig(bpe_dropout=0.1).bpe_dropout == 0.1
    with pytest.raises(ValidationError, match=r'bpe_dropout = 0.1 needs algorithm = "bpe"'):
        TextConfig(bpe_dropout=0.1, algorithm="unigram")


def test_columns_may_be_written_as_numbers() -> None:
    assert DataConfig(pairs="a.tsv", columns=[2, 1]).columns == ("2", "1")  # type: ignore[arg-type, list-item]
