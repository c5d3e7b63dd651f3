"""Suggested translations: what is stored, what is refused, and that training reads it."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from transduce.config import DataConfig
from transduce.data import open_corpus
from transduce.errors import ConfigError, ParameterError, SuggestionsFullError, WriteError
from transduce.serving.suggestions import SuggestionStore


def make_store(folder: Path, max_bytes: int = 10_000) -> SuggestionStore:
    return SuggestionStore(folder, max_bytes)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    data = DataConfig(pairs=str(path))
    return list(open_corpus(data, data.training_corpora[0]))


def test_training_reads_what_was_suggested(tmp_path: Path) -> None:
    store = make_store(tmp_path / "new" / "folder")
    store.add(("en", "de"), "A dog.", "Ein Hund.")
    store.add(("en", "fr"), "A dog.", "Un chien.")
    make_store(tmp_path / "new" / "folder").add(("en", "de"), 'Tabs\tand "quotes".\n\n Sun. ', "Ä\tö.\r\n\r\nSonne.")
    assert read_pairs(tmp_path / "new" / "folder" / "en-de.jsonl") == [
        ("A dog.", "Ein Hund."),
        ('Tabs\tand "quotes".', "Ä\tö."),
        ("Sun.", "Sonne."),
    ]
    assert read_pairs(tmp_path / "new" / "folder" / "en-fr.jsonl") == [("A dog.", "Un chien.")]


@pytest.mark.parametrize(
    ("text", "translation"), [("A\nB", "C"), ("A\n\nB", "C\nD\nE"), (" ", " "), ("A", " "), ("\n", "A")]
)
def test_lines_without_a_counterpart_are_refused(tmp_path: Path, text: str, translation: str) -> None:
    with pytest.raises(ParameterError, match="Invalid request: "):
        make_store(tmp_path).add(("en", "de"), text, translation)
    assert list(tmp_path.iterdir()) == []


def test_files_have_a_limit_together(tmp_path: Path) -> None:
    store = make_store(tmp_path, 200)
    store.add(("en", "de"), "A dog.", "Ein Hund.")
    store.add(("de", "en"), "Ein Hund.", "A dog.")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SuggestionsFullError, match="operator"):
        store.add(("en", "de"), "A cat.", "Eine Katze.")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "de-en.jsonl").unlink()
    store.add(("en", "de"), "A cat.", "Eine Katze.")


def test_languages_are_no_paths(tmp_path: Path) -> None:
    make_store(tmp_path / "here").add(("../../en", "de/x"), "A dog.", "Ein Hund.")
    assert [path.name for path in tmp_path.rglob("*")] == ["here", "______en-de_x.jsonl"]


def test_many_at_a_time_lose_nothing(tmp_path: Path) -> None:
    stores = [make_store(tmp_path, 1_000_000) for _ in range(4)]  # as of four servers
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: stores[number % 4].add(("en", "de"), f"{number}", "x" * 500), range(200)))
    lines = (tmp_path / "en-de.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(int(json.loads(line)["source"]) for line in lines) == list(range(200))


def test_on_a_full_disk_the_file_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    store.add(("en", "de"), "A dog.", "Ein Hund.")
    before = (tmp_path / "en-de.jsonl").read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:10]))
    with pytest.raises(WriteError, match="No space left"):
        store.add(("en", "de"), "A cat.", "Eine Katze.")
    monkeypatch.undo()
    assert (tmp_path / "en-de.jsonl").read_bytes() == before

    def fail(descriptor: int, content: bytes) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(WriteError, match="Input/output error"):
        store.add(("en", "de"), "A cat.", "Eine Katze.")


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--suggestion-folder"):
        make_store(tmp_path / "file" / "folder")
