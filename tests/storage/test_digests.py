import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from transduce.storage import DigestCache, compute_file_digest

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
    cache = DigestCache(path)
    assert cache.digest(text) == compute_file_digest(text)
    cache.save()
    path.write_text(path.read_text(encoding="utf-8").replace(compute_file_digest(text), NONSENSE), encoding="utf-8")
    return path


def test_what_did_not_change_is_not_read_again(text: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DigestCache(memory).digest(text) == NONSENSE
    monkeypatch.chdir(text.parent)
    assert DigestCache(memory).digest(Path("text")) == NONSENSE


def test_what_changed_is_read_again_even_if_size_and_time_are_put_back(text: Path, memory: Path) -> None:
    before = text.stat()
    text.write_bytes(b"as it is!")
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (text.stat().st_size, text.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert DigestCache(memory).digest(text) == compute_file_digest(text)


def test_another_file_in_its_place_is_read(text: Path, memory: Path) -> None:
    other = text.with_name("other")
    other.write_bytes(text.read_bytes())
    other.replace(text)
    assert DigestCache(memory).digest(text) == compute_file_digest(text)


def test_what_was_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"more may follow")
    cache = DigestCache(tmp_path / "digests.json")
    cache.digest(tmp_path / "text")
    cache.save()
    assert not (tmp_path / "digests.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"files": {"a": 3}}', b'{"my": "file"}', b"\xff"])
def test_what_is_no_memory_stays_as_it_is(text: Path, memory: Path, content: bytes) -> None:
    memory.write_bytes(content)
    cache = DigestCache(memory)
    assert cache.digest(text) == compute_file_digest(text)
    cache.save()
    assert memory.read_bytes() == content


def test_an_empty_file_becomes_a_memory(text: Path, memory: Path) -> None:
    memory.write_bytes(b"")
    cache = DigestCache(memory)
    assert cache.digest(text) == compute_file_digest(text)
    cache.save()
    assert compute_file_digest(text) in memory.read_text(encoding="utf-8")


def test_files_that_are_gone_are_forgotten(text: Path, memory: Path) -> None:
    text.rename(text.with_name("elsewhere"))
    cache = DigestCache(memory)
    cache.digest(text.with_name("elsewhere"))
    cache.save()
    assert list(json.loads(memory.read_text(encoding="utf-8"))["files"]) == [str(text.with_name("elsewhere"))]


def test_of_files_in_a_folder_that_may_not_be_read_nothing_is_kept(
    text: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(memory.read_text(encoding="utf-8"))
    hidden = str(text.parent / "of somebody else" / "train.en")
    content["files"][hidden] = next(iter(content["files"].values()))
    memory.write_text(json.dumps(content), encoding="utf-8")
    stat = os.stat

    def deny(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path) == hidden:
            raise PermissionError(errno.EACCES, "Permission denied", hidden)
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", deny)
    cache = DigestCache(memory)
    text.write_bytes(b"another text")
    os.utime(text, (1, 1))
    monkeypatch.setattr("transduce.storage.digests._CLOCK_TICK", -(2**62))
    cache.digest(text)
    cache.save()
    assert list(json.loads(memory.read_text(encoding="utf-8"))["files"]) == [str(text)]


def test_nobody_minds_where_nothing_can_be_written(text: Path) -> None:
    cache = DigestCache(text / "digests.json")
    assert cache.digest(text) == compute_file_digest(text)
    cache.save()
    assert text.read_bytes() == b"as it was"
