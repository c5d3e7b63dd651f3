"""How much text a run has is counted as training will have it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.config import DataConfig, TextConfig
from transduce.data import corpus_size
from transduce.data.corpus_size import STANDARD_INPUT, measure_training_text
from transduce.errors import CorpusError

Measure = Callable[..., tuple[int, int]]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    def make(text: TextConfig | None = None, **data: Any) -> tuple[int, int]:
        return measure_training_text(DataConfig(folder=str(tmp_path), **data), text or TextConfig())

    return make


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path.name


def make_pairs(count: int, start: int = 0) -> list[tuple[str, str]]:
    return [(f"source {number}", f"target {number:06}") for number in range(start, start + count)]


def test_different_pairs_that_are_no_copies_count(measure: Measure, tmp_path: Path) -> None:
    pairs = [*make_pairs(10), *make_pairs(4), ("same", "same"), ("", "without source")]
    name = write_pairs(tmp_path / "a.tsv", pairs)
    assert measure(pairs=name) == (10, 130)
    assert measure(TextConfig(drop_duplicates=False, drop_copies=False), pairs=name) == (15, 14 * 13 + 4)


def test_a_pair_that_is_much_too_long_does_not_count(measure: Measure, tmp_path: Path) -> None:
    name = write_pairs(tmp_path / "a.tsv", [*make_pairs(10), ("word " * 300, "word " * 301)])
    assert measure(pairs=name) == (10, 130)


def test_pairs_count_by_the_weight_of_their_corpus(measure: Measure, tmp_path: Path) -> None:
    first = write_pairs(tmp_path / "a.tsv", make_pairs(10))
    second = write_pairs(tmp_path / "b.tsv", make_pairs(25, start=5))  # of which the first has five
    corpora = [{"pairs": first, "weight": 3.0}, {"pairs": second, "weight": 0.5}]
    assert measure(corpora=corpora) == (30 + 10, 13 * 40)
    assert measure(corpora=[corpora[0], {**corpora[0], "tag": ">>x<<"}]) == (60, 13 * 60)


def test_monolingual_text_counts_like_the_pairs_it_will_become(measure: Measure, tmp_path: Path) -> None:
    name = write_pairs(tmp_path / "a.tsv", make_pairs(10))
    (tmp_path / "more").write_text("one\ntwo\n\none\n", encoding="utf-8")
    given = {"pairs": name, "source_language": "en", "target_language": "de", "monolingual_target": "more"}
    assert measure(**given, monolingual_weight=2.0) == (10 + 4, 130 + 12)
    assert measure(**given, monolingual_source="more") == (10 + 2, 130 + 6)  # the same lines are not counted again


def test_of_many_pairs_the_number_is_estimated(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_size, "MAX_DIGESTS", 1000)
    name = write_pairs(tmp_path / "a.tsv", make_pairs(8_000) * 2)
    num_pairs, num_characters = measure(pairs=name)
    assert num_pairs != 8_000
    assert num_pairs == pytest.approx(8_000, rel=0.15)  # three standard errors of a sample of 500
    assert num_characters == pytest.approx(13 * num_pairs, abs=13)
    assert measure(pairs=name) == (num_pairs, num_characters), "the same in every process"
    # A small corpus with a high weight, which is read when the sample becomes smaller, is not counted by differences.
    for size in (985, 995, 1000):
        few = [
            write_pairs(tmp_path / f"{size}.tsv", make_pairs(size)),
            write_pairs(tmp_path / "b.tsv", make_pairs(30, 9000)),
        ]
        found, _ = measure(corpora=[{"pairs": few[0]}, {"pairs": few[1], "weight": 50.0}])
        assert size < found < size + 50 * 60


def test_standard_input_is_not_read(measure: Measure) -> None:
    assert measure(pairs="-") == STANDARD_INPUT
    assert measure() == (0, 0)


def test_files_that_are_missing_or_differ_in_length_are_refused(measure: Measure, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="nowhere"):
        measure(pairs="nowhere.tsv")
    (tmp_path / "source").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "target").write_text("a\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="2"):
        measure(source="source", target="target")
