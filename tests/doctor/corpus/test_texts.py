import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transduce.doctor.corpus import texts as module
from transduce.doctor.corpus.reading import Searches, read_corpora
from transduce.doctor.corpus.texts import Place, Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.errors import CorpusError
from transduce.text import open_parallel_corpus

PAIRS = [("a b c", "x"), ("", "y z"), ("c", ""), ("b b", "z z y x")]


def test_words_of_some_lines_are_taken_in_their_order(read: Callable[..., Text]) -> None:
    text = read(PAIRS)
    words, counts = text.source.take(np.array([3, 0, 1]), max_words=2)
    assert words.tolist() == [1, 1, 0, 1]
    assert counts.tolist() == [2, 2, 0]
    assert text.source.num_words.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_values_are_summed_line_by_line(
    read: Callable[..., Text], vocabulary: Vocabulary, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINES_AT_A_TIME", at_a_time)
    text = read(PAIRS)
    assert vocabulary.words == ["a", "b", "c", "x", "y", "z"]
    values = np.arange(len(vocabulary)) + 1
    assert text.source.sum_over_words(values).tolist() == [6, 0, 3, 4]
    assert text.target.sum_over_words(values).tolist() == [4, 11, 0, 21]
    assert text.source.sum_over_words(values * 0.5).tolist() == [3.0, 0.0, 1.5, 2.0]
    assert text.target.sum_over_words(values > 4).tolist() == [0, 2, 0, 3]
    assert text.source.count_words(len(vocabulary)).tolist() == [1, 3, 2, 0, 0, 0]


def test_places_are_those_in_the_files(read: Callable[..., Text]) -> None:
    text = read(PAIRS, second=PAIRS[:2])
    assert text.locate(3) == Place("training", "training", "line", 4)
    assert text.locate(5) == Place("training", "second", "line", 2)
    assert text.fetch_pairs([5, 0]) == {0: PAIRS[0], 5: PAIRS[1]}


@pytest.mark.parametrize(
    ("name", "content", "unit", "number"),
    [
        ("a.tsv", "source\ttarget\nA\tB\n", "line", 2),
        ("a.tsv.gz", "A\tB\n", "line", 1),
        ("a.jsonl", '{"source": "A", "target": "B"}\n', "line", 1),
        ("a.json", '[{"source": "A", "target": "B"}]', "pair", 1),
    ],
)
def test_a_pair_is_numbered_as_its_format_allows(
    tmp_path: Path, vocabulary: Vocabulary, name: str, content: str, unit: str, number: int
) -> None:
    encoded = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(encoded) if name.endswith(".gz") else encoded)
    corpus = open_parallel_corpus(tmp_path, None, None, name, None)
    text = read_corpora("test", [(name, corpus)], vocabulary, Searches({}, {}, lambda _: 0, lambda _: 0))
    assert text.locate(0) == Place("test", name, unit, number)
    assert text.fetch_pairs([0]) == {0: ("A", "B")}


def test_a_file_that_has_changed_is_noticed(read: Callable[..., Text]) -> None:
    text = read(PAIRS)
    for path in text.parts[0].corpus.files:
        path.write_text("a\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="changed while it was read"):
        text.fetch_pairs([0, 3])
