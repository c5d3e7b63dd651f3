from typing import Any

import pytest
from pydantic import ValidationError

from transduce.config import DataConfig, TextConfig

A_FILE = {"source": "a", "target": "b"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "a"}, "source is given without target: give both"),
        ({"target": "b"}, "target is given without source: give both"),
        ({**A_FILE, "pairs": "c"}, "pairs and source are both given: give one of them"),
        ({"validation_source": "a"}, "validation_source is given without validation_target"),
        ({"validation_target": "a"}, "validation_target is given without validation_source"),
        (
            {"validation_source": "a", "validation_target": "b", "validation_pairs": "c"},
            "validation_pairs and validation_source are both given",
        ),
        ({"validation_pairs": "-"}, "validation_pairs cannot be read from standard input"),
        ({"held_out": 0}, "greater than or equal to 1"),
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
