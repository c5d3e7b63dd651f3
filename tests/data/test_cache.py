import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.data.cache import KnownDigests, complete_folder, compute_file_digest, scratch_folder


def test_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with complete_folder(path) as folder:
        (folder / "file").write_bytes(b"content")
        assert not path.exists()
    assert (path / "file").read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failure_leaves_nothing_not_even_parents(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with complete_folder(tmp_path / "a" / "b" / "folder") as folder:
            (folder / "file").write_bytes(b"content")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_parents_in_use_stay(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "a" / "b", "scratch"):
        (tmp_path / "a" / "other").touch()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "other"]


def test_parents_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with scratch_folder(tmp_path / "cache", "scratch"):
        pass
    assert (tmp_path / "cache").is_dir()


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with complete_folder(path) as slow:
        (slow / "file").write_bytes(b"slow")
        with complete_folder(path) as fast:
            (fast / "file").write_bytes(b"fast")
    assert (path / "file").read_bytes() == b"fast"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, sys
from pathlib import Path
from transduce.data.cache import complete_folder
with complete_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.exhaustive
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    left = set(tmp_path.iterdir())
    assert len(left) == 2
    (tmp_path / "mine.partial").mkdir()
    with scratch_folder(tmp_path, "first") as first, scratch_folder(tmp_path, "second") as second:
        assert first.is_dir()
        assert second.is_dir()
        assert not left & set(tmp_path.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.partial"]


def test_a_failure_to_write_says_where(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="No space left") as full, complete_folder(path) as folder:
        raise OSError(28, "No space left on device")
    assert full.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as missing, complete_folder(path) as folder:
        (folder / "missing").read_bytes()
    assert missing.value.filename.endswith("missing")


NONSENSE = "0" * 64


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that may be remembered although it was written just now."""
    monkeypatch.setattr("transduce.data.cache._CLOCK_TICK", 0)
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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"files": {"a": 3}}', b"\xff"])
def test_a_memory_that_is_damaged_is_none(text: Path, memory: Path, content: bytes) -> None:
    memory.write_bytes(content)
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
