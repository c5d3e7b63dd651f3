import gzip
from pathlib import Path

import pytest

from transduce.errors import CorpusError
from transduce.evaluation import Sentence, read_sentences


def test_lines_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"Ein Hund.\n\nZwei.\n"))
    (tmp_path / "b").write_text("One dog.\n\nTwo.\n", encoding="utf-8")
    assert read_sentences(tmp_path / "b", None) == [Sentence("One dog."), Sentence(""), Sentence("Two.")]
    assert read_sentences(tmp_path / "b", tmp_path / "a.gz") == [
        Sentence("One dog.", "Ein Hund."),
        Sentence("", ""),
        Sentence("Two.", "Zwei."),
    ]


@pytest.mark.parametrize(
    ("source", "reference", "words"),
    [("", None, "empty"), ("", "", "empty"), ("a\nb\n", "a\n", "has 2 lines"), ("a\n", "a\nb\n", "has 2")],
)
def test_text_that_does_not_match_is_refused(tmp_path: Path, source: str, reference: str | None, words: str) -> None:
    (tmp_path / "source").write_text(source, encoding="utf-8")
    (tmp_path / "reference").write_text(reference or "", encoding="utf-8")
    with pytest.raises(CorpusError, match=words):
        read_sentences(tmp_path / "source", None if reference is None else tmp_path / "reference")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="nowhere"):
        read_sentences(tmp_path / "nowhere", None)
