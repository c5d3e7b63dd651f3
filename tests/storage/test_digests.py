import json
import os
from pathlib import Path

import pytest

from transduce.storage import KnownDigests, compute_file_digest

NONSENSE = "0" * 64


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that may be remembered although it was written just now."""
    monkeypatch.setattr("transduce.storage.digests._CLOCK_TICK", 0)
    path = tmp_path / "text"
    path.write_bytes(b"as it was")
    return path


@pytest.fixture
def memory(text: Path) -> Path:
    """What is remembered of it, with a digest that cannot be its own: whoever gives it has not read the file."""
    path = text.with_name("digests.json")
    known = KnownDigests(path)
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    path.write_text(path.read_text(encoding="utf-8").replace(compute_file_digest(text), NONSENSE), encoding="utf-8")
    return path


def test_what_did_not_change_is_not_read_again(text: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KnownDigests(memory).digest(text) == NONSENSE
    monkeypatch.chdir(text.parent)
    assert KnownDigests(memory).digest(Path("text")) == NONSENSE


def test_what_changed_is_read_again_even_if_size_and_time_are_put_back(text: Path, memory: Path) -> None:
    before = text.stat()
    text.write_bytes(b"as it is!")
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (text.stat().st_size, text.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert KnownDigests(memory).digest(text) == compute_file_digest(text)


def test_another_file_in_its_place_is_read(text: Path, memory: Path) -> None:
    other = text.with_name("other")
    other.write_bytes(text.read_bytes())
    other.replace(text)
    assert KnownDigests(memory).digest(text) == compute_file_digest(text)


def test_what_was_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"more may follow")
    known = KnownDigests(tmp_path / "digests.json")
    known.digest(tmp_path / "text")
    known.save()
    assert not (tmp_path / "digests.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"files": {"a": 3}}', b'{"my": "file"}', b"\xff"])
def test_what_is_no_memory_stays_as_it_is(text: Path, memory: Path, content: bytes) -> None:
    memory.write_bytes(content)
    known = KnownDigests(memory)
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    assert memory.read_bytes() == content


def test_an_empty_file_becomes_a_memory(text: Path, memory: Path) -> None:
    memory.write_bytes(b"")
    known = KnownDigests(memory)
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    assert compute_file_digest(text) in memory.read_text(encoding="utf-8")


def test_files_that_are_gone_are_forgotten(text: Path, memory: Path) -> None:
    text.rename(text.with_name("elsewhere"))
    known = KnownDigests(memory)
    known.digest(text.with_name("elsewhere"))
    known.save()
    assert list(json.loads(memory.read_text(encoding="utf-8"))["files"]) == [str(text.with_name("elsewhere"))]


def test_nobody_minds_where_nothing_can_be_written(text: Path) -> None:
    known = KnownDigests(text / "digests.json")
    assert known.digest(text) == compute_file_digest(text)
    known.save()
    assert text.read_bytes() == b"as it was"
