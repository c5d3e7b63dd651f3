import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.errors import ConfigError, CorpusError
from transduce.text import ParallelCorpus, parallel_corpus, write_standard_input

Write = Callable[[str, bytes | str], Path]


@pytest.fixture
def two_files(tmp_path: Path, write: Write) -> Callable[[bytes | str, bytes | str], ParallelCorpus]:
    def make(source: bytes | str, target: bytes | str) -> ParallelCorpus:
        write("a.en", source)
        write("a.de", target)
        return parallel_corpus(tmp_path, "a.en", "a.de", None, None)

    return make


def test_two_files_line_for_line(two_files: Callable[..., ParallelCorpus], tmp_path: Path) -> None:
    corpus = two_files("a\n\nc", "A\r\nB\r\n\r\n")
    assert corpus.files == (tmp_path / "a.en", tmp_path / "a.de")
    assert list(corpus) == list(corpus) == [("a", "A"), ("", "B"), ("c", "")]
    assert corpus.check() == 3


def test_two_iterations_at_once_do_not_disturb_each_other(two_files: Callable[..., ParallelCorpus]) -> None:
    corpus = two_files("a\nb\n", "A\nB\n")
    first, second = iter(corpus), iter(corpus)
    assert [next(first), next(second), next(first), next(second)] == [("a", "A"), ("a", "A"), ("b", "B"), ("b", "B")]


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (0, 1), (1, 0), (20_000, 19_999)])
def test_unequal_files_are_an_error_with_both_counts(
    two_files: Callable[..., ParallelCorpus], source: int, target: int
) -> None:
    corpus = two_files("a\n" * source, "A\n" * target)
    with pytest.raises(CorpusError, match=rf"a\.en has {source} lines and .*a\.de has {target}: they must"):
        corpus.check()
    with pytest.raises(CorpusError, match="line for line"):
        list(corpus)


def test_empty_files_are_an_error(two_files: Callable[..., ParallelCorpus], tmp_path: Path, write: Write) -> None:
    with pytest.raises(CorpusError, match=r"a\.en and .*a\.de: empty"):
        two_files("", "").check()
    write("a.tsv.gz", gzip.compress(b""))
    with pytest.raises(CorpusError, match=r"a\.tsv\.gz: empty"):
        parallel_corpus(tmp_path, None, None, "a.tsv.gz", None).check()


def test_an_error_in_either_file_names_it(two_files: Callable[..., ParallelCorpus]) -> None:
    with pytest.raises(CorpusError, match=r"a\.de, line 2, "):
        two_files("a\nb\n", b"A\n\xff\n").check()


@pytest.mark.parametrize("name", ["none", "folder"])
def test_missing_files_are_found_before_anything_is_read(tmp_path: Path, write: Write, name: str) -> None:
    (tmp_path / "folder").mkdir()
    write("a.en", "a\n")
    for arguments in (("a.en", name, None), (name, "a.en", None), (None, None, name)):
        with pytest.raises(CorpusError, match=rf"{name}(:| is a)"):
            parallel_corpus(tmp_path, *arguments, None)


def test_the_ending_of_a_file_of_pairs_says_its_format(tmp_path: Path, write: Write) -> None:
    for name in ("pairs", "pairs.csv", "pairs.gz", ".gz", "tsv"):
        write(name, "a\tb\n")
        with pytest.raises(CorpusError, match=r"must end in \.tsv, \.json, \.jsonl or \.ndjson"):
            parallel_corpus(tmp_path, None, None, name, None)
    with pytest.raises(ConfigError, match="give source and target, or pairs"):
        parallel_corpus(tmp_path, None, None, None, None)


def test_memory_does_not_grow_with_the_corpus(two_files: Callable[..., ParallelCorpus]) -> None:
    line = "a sentence of some forty characters, as it were\n"
    corpus = two_files(line * 5_000, line * 5_000)
    tracemalloc.start()
    assert corpus.check() == 5_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000 < 5_000 * len(line)


def test_standard_input_is_kept_as_it_is(tmp_path: Path, write: Write) -> None:
    content = b"a\tb\r\n\xff\t\x00" * 100_000
    with write("piped", content).open("rb") as stream:
        write_standard_input(stream, tmp_path / "spooled.tsv")
    assert (tmp_path / "spooled.tsv").read_bytes() == content
