import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from transduce.bundle import atomic_folder, written_folder
from transduce.bundle.atomic_folder import recover_folders, remove_folder, standing_folder
from transduce.errors import BusyError, OutputError, TransduceError


def _write(folder: Path, text: str, failure: type[BaseException] | None = None) -> None:
    with written_folder(folder, marker="marker") as temporary:
        (temporary / "marker").write_text(text, encoding="utf-8")
        if failure:
            raise failure
        (temporary / "inner").mkdir()
        (temporary / "inner" / "file").write_text(text, encoding="utf-8")


def _contents(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def _run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_last_one_written_is_there_and_nothing_else(tmp_path: Path, times: int) -> None:
    for time in range(times):
        _write(tmp_path / "a" / "folder", str(time))
    assert (tmp_path / "a" / "folder" / "inner" / "file").read_text() == str(times - 1)
    assert _contents(tmp_path) == {"a", "a/folder", "a/folder/marker", "a/folder/inner", "a/folder/inner/file"}


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, OSError])
def test_an_exception_leaves_everything_as_it_was(tmp_path: Path, failure: type[BaseException]) -> None:
    _write(tmp_path / "folder", "old")
    before = _contents(tmp_path)
    with pytest.raises((failure, TransduceError)):
        _write(tmp_path / "folder", "new", failure)
    assert _contents(tmp_path) == before
    assert (tmp_path / "folder" / "marker").read_text() == "old"


def test_a_failure_to_write_says_so(tmp_path: Path) -> None:
    expected = re.escape(f"{tmp_path / 'folder'}: could not be written and is as it was before: ")
    with (
        pytest.raises(TransduceError, match=expected + r".*No space left"),
        written_folder(tmp_path / "folder", "marker"),
    ):
        raise OSError(28, "No space left on device")
    assert not _contents(tmp_path)


def test_the_new_folder_appears_only_at_the_end(tmp_path: Path) -> None:
    with written_folder(tmp_path / "folder", "marker") as temporary:
        assert temporary.parent == tmp_path
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder").is_dir()


KILLED_WHILE_WRITING = """
import os, sys
from pathlib import Path
from transduce.bundle import atomic_folder, written_folder
with written_folder(Path(sys.argv[1]), "marker") as temporary:
    (temporary / "marker").write_text("new")
    os.kill(os.getpid(), 9)
"""

KILLED_BETWEEN_RENAMES = """
import os, sys
from pathlib import Path
from transduce.bundle import atomic_folder, written_folder
def rename(self, target, rename=Path.rename):
    rename(self, target)
    os.kill(os.getpid(), 9)
Path.rename = rename
with written_folder(Path(sys.argv[1]), "marker") as temporary:
    (temporary / "marker").write_text("new")
"""


@pytest.mark.parametrize("code", [KILLED_WHILE_WRITING, KILLED_BETWEEN_RENAMES])
def test_a_kill_loses_nothing_and_whoever_comes_next_cleans_up(tmp_path: Path, code: str) -> None:
    one = tmp_path / "one"
    _write(one / "folder", "old")
    before = _contents(one)
    assert _run(code, one / "folder").returncode == -signal.SIGKILL
    assert (one / "folder").exists() == (code == KILLED_WHILE_WRITING)
    assert (standing_folder(one / "folder") / "inner" / "file").read_text() == "old"
    other = shutil.copytree(one, tmp_path / "other")
    third = shutil.copytree(one, tmp_path / "third")

    _write(one / "folder", "newest")
    assert _contents(one) == before
    assert (one / "folder" / "marker").read_text() == "newest"

    recover_folders(other, "folder")
    assert _contents(other) == before | {".folder.lock"}
    assert (other / "folder" / "marker").read_text() == "old"

    with pytest.raises(RuntimeError):
        _write(third / "folder", "new", RuntimeError)
    assert _contents(third) == before
    assert (third / "folder" / "marker").read_text() == "old"


def test_where_nothing_stands_nothing_is_found(tmp_path: Path) -> None:
    assert standing_folder(tmp_path / "folder") == tmp_path / "folder"


def test_what_was_being_removed_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "folder", "text")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # so far it comes
        remove_folder(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == [f"folder.transduce-removed-{os.getpid()}"]
    recover_folders(tmp_path, "folder")
    assert not _contents(tmp_path)


WRITING = """
import sys
import threading
from pathlib import Path
from transduce.bundle import atomic_folder, written_folder
with written_folder(Path(sys.argv[1]), "marker") as temporary:
    (temporary / "marker").write_text("slow")
    print(flush=True)
    sys.stdin.read()
"""


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_folder, "PATIENCE", 0.0)
    folder = tmp_path / "folder"
    with subprocess.Popen([sys.executable, "-c", WRITING, folder], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(BusyError, match=rf"folder: is in use by process {other.pid} on .*; wait") as busy:
            _write(folder, "fast")
        assert busy.value.exit_code == 2
        _write(tmp_path / "other", "unhindered")
        other.communicate()
    assert other.returncode == 0
    assert (folder / "marker").read_text() == "slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "other"]


def test_what_another_process_is_about_to_finish_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with subprocess.Popen([sys.executable, "-c", WRITING, folder], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        ending = threading.Timer(0.2, other.communicate)
        ending.start()
        _write(folder, "later")
        ending.join()
    assert (folder / "marker").read_text() == "later"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_failed_rename_brings_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "folder", "old")
    rename = Path.rename

    def fail_for_the_new(self: Path, target: Path) -> Path:
        if ".transduce-tmp-" in self.name:
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(TransduceError, match="is as it was before"):
        _write(tmp_path / "folder", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "marker").read_text() == "old"


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files and no marker"):
        _write(tmp_path, "new")
    assert _contents(tmp_path) == {"thesis.txt"}


def test_a_file_that_has_the_name_of_the_lock_stays(tmp_path: Path) -> None:
    (tmp_path / ".folder.lock").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"\.folder\.lock: is in the place of a lock"):
        _write(tmp_path / "folder", "new")
    assert (tmp_path / ".folder.lock").read_text() == "mine"


def test_what_comes_to_be_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def write() -> None:
        with written_folder(tmp_path / "folder", "marker") as temporary:
            (temporary / "marker").touch()
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "thesis.txt").write_text("years of work", encoding="utf-8")

    with pytest.raises(OutputError, match="holds other files"):
        write()
    assert _contents(tmp_path) == {"folder", "folder/thesis.txt"}


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("text", encoding="utf-8")
    with pytest.raises(OutputError, match="is no folder"):
        _write(tmp_path / "folder", "new")
    assert (tmp_path / "folder").read_text() == "text"


def test_an_empty_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    _write(tmp_path / "folder", "new")
    assert (tmp_path / "folder" / "marker").read_text() == "new"


def test_other_names_are_no_leftovers(tmp_path: Path) -> None:
    kept = [
        "folder",
        "folder.old",
        "folder.old-1",
        "folder.tmp-2024",
        "folder.transduce-old-",
        "folder.transduce-old-1x",
    ]
    kept += ["other.transduce-old-1", "xfolder.transduce-tmp-1"]
    for name in [*kept, "folder.transduce-tmp-1", "folder.transduce-old-1", "folder.transduce-removed-1"]:
        (tmp_path / name).mkdir()
    recover_folders(tmp_path, "folder")
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


def test_removing_a_folder(tmp_path: Path) -> None:
    _write(tmp_path / "folder", "text")
    remove_folder(tmp_path / "folder")
    assert not _contents(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_umask_decides_who_may_read(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        _write(tmp_path / "folder", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask
