import re
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.doctor.corpus.reading import LineSearch, PairSearch, Searches, open_unequal_corpus, read_corpora
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.errors import CorpusError
from transduce.text import ParallelCorpus, open_parallel_corpus

SEARCHES = Searches(
    lines={
        "digit": LineSearch(re.compile(r"\d")),
        "long": LineSearch(re.compile(r"\d"), lambda line: len(line) > 2),
    },
    pairs={"bang": PairSearch(re.compile("!"), lambda source, target: source.count("!") != target.count("!"))},
    classify_ending=lambda line: len(line) % 256,
    classify_case=lambda line: line.count("!"),
)


def open_two(folder: Path, source: str, target: str) -> ParallelCorpus:
    (folder / "s").write_text(source, encoding="utf-8")
    (folder / "t").write_text(target, encoding="utf-8")
    return open_parallel_corpus(folder, "s", "t", None, None)


def test_everything_is_known_after_one_pass(tmp_path: Path, vocabulary: Vocabulary) -> None:
    corpus = open_two(tmp_path, "a 1\nb!\n\n1 1\n", "x\n!y\n7!\n2\n")
    text = read_corpora("training", [("s t", corpus)], vocabulary, SEARCHES)
    assert len(text) == 4
    assert text.source.num_characters.tolist() == text.source.endings.tolist() == [3, 2, 0, 3]
    assert text.target.cases.tolist() == [0, 1, 1, 0]
    assert text.source.found["digit"].tolist() == text.source.found["long"].tolist() == [0, 3]
    assert text.target.found["digit"].tolist() == [2, 3]
    assert text.target.found["long"].tolist() == []
    assert text.different["bang"].tolist() == [2]
    assert text.source.starts.tolist() == [0, 2, 3, 3, 5]
    assert text.parts[0].num_lines == (4, 4)


def test_equal_lines_have_equal_hashes_on_both_sides(tmp_path: Path, vocabulary: Vocabulary) -> None:
    text = read_corpora("training", [("s t", open_two(tmp_path, "a\nb\na\n", "b\nA\na\n"))], vocabulary, SEARCHES)
    digests = [*text.source.digests.tolist(), *text.target.digests.tolist()]
    assert digests[0] == digests[2] == digests[5]
    assert digests[1] == digests[3]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(("source", "target", "num_lines"), [("a\nb\nc\n", "x\n", (3, 1)), ("a\n", "x\n\n", (1, 2))])
def test_a_file_that_is_too_short_is_read_on(
    tmp_path: Path, vocabulary: Vocabulary, source: str, target: str, num_lines: tuple[int, int]
) -> None:
    corpus = open_two(tmp_path, source, target)
    with pytest.raises(CorpusError, match="line for line"):
        list(corpus)
    text = read_corpora("training", [("s t", open_unequal_corpus(corpus))], vocabulary, SEARCHES)
    assert (len(text), text.parts[0].num_lines) == (max(num_lines), num_lines)


def test_corpora_follow_each_other(read: Callable[..., Text]) -> None:
    text = read([("a", "b")] * 12_000, second=[("c 1", "d")])
    assert [(part.start, part.end) for part in text.parts] == [(0, 12_000), (12_000, 12_001)]
    assert text.source.words[-2:].tolist() == [2, 3]


def test_what_cannot_be_read_is_an_error(tmp_path: Path, vocabulary: Vocabulary) -> None:
    corpus = open_two(tmp_path, "", "")
    with pytest.raises(CorpusError, match="s t: empty"):
        read_corpora("training", [("s t", corpus)], vocabulary, SEARCHES)
    (tmp_path / "s").write_bytes(b"a\n\xff\n")
    with pytest.raises(CorpusError, match="line 2, byte 1 of the line: the byte 0xff is not UTF-8"):
        read_corpora("training", [("s t", open_unequal_corpus(corpus))], vocabulary, SEARCHES)
