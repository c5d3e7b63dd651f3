import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from transduce.storage import create_folder_atomically, scratch_folder


def test_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with create_folder_atomically(path) as folder:
        (folder / "file").write_bytes(b"content")
        assert not path.exists()
    assert (path / "file").read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failure_leaves_nothing_not_even_parents(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with create_folder_atomically(tmp_path / "a" / "b" / "folder") as folder:
            (folder / "file").write_bytes(b"content")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_before_the_block_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = FileLock.acquire

    def acquire_and_interrupt(self: FileLock, timeout: float | None = None) -> None:
        acquire(self, timeout)
        raise KeyboardInterrupt

    monkeypatch.setattr(FileLock, "acquire", acquire_and_interrupt)
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path / "a" / "b", "name"):
        pass
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
    with create_folder_atomically(path) as slow:
        (slow / "file").write_bytes(b"slow")
        with create_folder_atomically(path) as fast:
            (fast / "file").write_bytes(b"fast")
    assert (path / "file").read_bytes() == b"fast"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, sys
from pathlib import Path
from transduce.storage import create_folder_atomically
with create_folder_atomically(Path(sys.argv[1])) as folder:
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


def test_files_that_only_have_the_name_of_a_lock_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.0123456789ab.partial.lock").write_text("mine", encoding="utf-8")
    (tmp_path / "list.0123456789ab.partial.lock").touch()
    (tmp_path / "list.0123456789ab.partial").write_text("mine", encoding="utf-8")
    (tmp_path / "link.0123456789ab.partial.lock").symlink_to("list.0123456789ab.partial.lock")
    before = set(tmp_path.iterdir())
    with scratch_folder(tmp_path, "scratch"):
        pass
    assert set(tmp_path.iterdir()) == before


def test_a_failure_to_write_says_where(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="No space left") as full, create_folder_atomically(path) as folder:
        raise OSError(28, "No space left on device")
    assert full.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as missing, create_folder_atomically(path) as folder:
        (folder / "missing").read_bytes()
    assert missing.value.filename.endswith("missing")
