import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Timer
from uuid import UUID

import pytest
from safetensors import SafetensorError

from transduce.errors import BusyError, OutputError, TransduceError, WriteError
from transduce.storage import (
    OwnFileKind,
    check_output_file,
    check_writable,
    make_write_error,
    recover_folders,
    remove_folder,
    replace_file,
    replace_folder,
    resolve_folder,
    write_output_file,
    writing,
)


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    with replace_file(path) as beside:
        beside.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_is_half_written_goes(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")

    def half_write() -> None:
        with replace_file(path) as beside:
            beside.write_text("ne", encoding="utf-8")
            raise error

    with pytest.raises(type(error)):
        half_write()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_stands_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError), replace_file(tmp_path / "file") as beside:  # noqa: PT011 - which one, the system decides
        beside.write_bytes(b"")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_file_of_the_user_has_the_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("file.tmp", "file.transduce-tmp-000000000000"):
        (tmp_path / name).write_text("mine", encoding="utf-8")
    with replace_file(tmp_path / "file") as one, replace_file(tmp_path / "file") as other:
        assert one != other
    # Not even if chance were to choose it.
    monkeypatch.setattr(import_module("transduce.storage.writing"), "uuid4", lambda: UUID(int=0))
    with pytest.raises(FileExistsError), replace_file(tmp_path / "file") as beside:
        beside.write_bytes(b"")
    assert {path.name for path in tmp_path.iterdir() if path.read_bytes() == b"mine"} == {
        *("file.tmp", "file.transduce-tmp-000000000000")
    }


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for place in (tmp_path / "other" / "there", tmp_path / "other" / "new"):
        link = tmp_path / f"to {place.name}"
        link.symlink_to(place)
        with replace_file(link) as beside:
            assert beside.parent == place.parent  # on another disk, it could not be renamed
            beside.write_text("new", encoding="utf-8")
        assert link.readlink() == place
        assert place.read_text(encoding="utf-8") == "new"


def test_permissions_are_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with replace_file(path) as beside:
        beside.write_text("new", encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_file_that_is_protected_against_writing_is_replaced_and_stays_protected(tmp_path: Path) -> None:
    path = tmp_path / "protected.json"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o400)
    with replace_file(path) as beside:
        assert beside.stat().st_mode & 0o777 == 0o600  # whoever is not root could not write to it otherwise
        beside.write_text("new", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_mode & 0o777 == 0o400


def test_permissions_of_a_folder_are_handed_on(tmp_path: Path) -> None:
    _write(tmp_path / "folder", "old")
    (tmp_path / "folder").chmod(0o700)
    with replace_folder(tmp_path / "folder", "marker") as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o700
        (temporary / "marker").touch()
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name == "nt", reason="nothing is flushed on Windows")
@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_only_that_a_file_system_cannot_flush_folders_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    flushed = os.fsync

    def flush_files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        flushed(descriptor)

    monkeypatch.setattr(os, "fsync", flush_files_only)
    if number == errno.EIO:
        with pytest.raises(WriteError):
            _write(tmp_path / "folder", "new")
    else:
        _write(tmp_path / "folder", "new")
        assert (tmp_path / "folder" / "marker").read_text() == "new"


def test_a_name_of_any_length_that_a_file_may_have(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    with replace_file(path) as beside:
        beside.write_text("new", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replace_file(pipe) as place:
        place.write_bytes(b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


OLD, NEW = b"<mark> old", b"<mark> new"


KIND = OwnFileKind("page", ("<other mark>", "<mark>"))


def write(path: Path, *, force: bool = False) -> None:
    KIND.write(path, NEW.decode(), force=force)


@pytest.mark.parametrize("before", [None, b"", OLD])
def test_what_is_new_empty_or_of_its_own_kind_is_written(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)
    write(path)
    assert path.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("through", [False, True])
def test_anything_else_is_replaced_only_if_forced(tmp_path: Path, *, through: bool) -> None:
    real = tmp_path / "real"
    real.write_text("mine", encoding="utf-8")
    path = real
    if through:
        path = tmp_path / "link"
        path.symlink_to(real)
    with pytest.raises(OutputError, match=r"is not a page: .* --force"):
        write(path)
    assert real.read_text(encoding="utf-8") == "mine"
    write(path, force=True)
    assert real.read_bytes() == NEW
    assert path.is_symlink() == through


def test_the_mark_counts_near_the_beginning_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a long letter" * 1000 + OLD)
    assert not KIND.contains(tmp_path / "file")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path, *, force: bool) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        write(tmp_path, force=force)


def test_a_disk_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"  # only root makes real ones
    path.write_bytes(OLD)
    monkeypatch.setattr(Path, "is_block_device", lambda one: one == path)
    with pytest.raises(OutputError, match="is a block device"):
        write(path, force=True)
    assert path.read_bytes() == OLD


def test_links_that_name_each_other_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(OutputError, match="one: cannot be written"):
        check_output_file(one, KIND.contains, "page", force=False)


def test_a_file_needs_a_folder_that_exists(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"page: must be a file in a folder that exists: make .*none, or choose"):
        check_output_file(tmp_path / "none" / "page", KIND.contains, "page", force=True)
    (tmp_path / "link").symlink_to(tmp_path / "none" / "page")
    with pytest.raises(OutputError, match=r"link: must be a file in a folder that exists"):
        check_output_file(tmp_path / "link", KIND.contains, "page", force=True)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "link"]


def test_a_file_that_nothing_tells_from_others_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(OutputError, match=r"file: exists already: .*--force"):
        check_output_file(path, None, "translation", force=False)
    check_output_file(path, None, "translation", force=True)
    path.write_bytes(b"")
    check_output_file(path, None, "translation", force=False)


def test_a_file_above_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        OutputError,
        match=r"cannot be written \(Not a directory\): make it writable, or choose "
        r"another",
    ):
        check_writable(tmp_path / "file" / "below" / "it")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everything")
def test_what_is_read_only_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o444)
    with pytest.raises(OutputError, match="is read-only"):
        write(path, force=True)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(OutputError, match="Permission denied"):
            check_writable(tmp_path / "new")
    finally:
        tmp_path.chmod(0o755)


def test_nothing_is_left_of_looking(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_device_says_so() -> None:
    with pytest.raises(
        WriteError,
        match=r"/dev/full: could not be written; .*No space left on device; free some "
        r"space",
    ):
        write(Path("/dev/full"))


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    size = 1 << 20  # more than a pipe holds

    def leave(path: Path) -> bool:
        pytest.fail(f"{path} was read")

    Timer(0.2, os.close, [reader]).start()
    with pytest.raises(BrokenPipeError):
        write_output_file(pipe, b"x" * size, leave, "page", force=False)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (lambda: OSError(errno.ENOSPC, "No space left on device"), "No space left on device; free some space"),
        (lambda: SafetensorError("I/O error: full (os error 28)"), "No space left on device; free some space"),
        (lambda: OSError(errno.EROFS, "Read-only"), "Read-only file system; make it writable"),
        (lambda: SafetensorError("unknown"), "unknown; make it writable"),
    ],
)
def test_a_failure_says_file_reason_and_remedy(error: Callable[[], Exception], words: str) -> None:
    assert str(make_write_error(Path("page"), error())).startswith(
        f"page: could not be written; nothing was changed: {words}"
    )


def _write(folder: Path, text: str, failure: type[BaseException] | None = None) -> None:
    with replace_folder(folder, marker="marker") as temporary:
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
    expected = re.escape(f"{tmp_path / 'folder'}: could not be written; nothing was changed: ")
    with (
        pytest.raises(TransduceError, match=expected + r".*No space left"),
        replace_folder(tmp_path / "folder", "marker"),
    ):
        raise OSError(28, "No space left on device")
    assert not _contents(tmp_path)


def test_the_new_folder_appears_only_at_the_end(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "folder", "marker") as temporary:
        assert temporary.parent == tmp_path
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder").is_dir()


KILLED_WHILE_WRITING = """
import os, sys
from pathlib import Path
from transduce.storage import replace_folder
with replace_folder(Path(sys.argv[1]), "marker") as temporary:
    (temporary / "marker").write_text("new")
    os.kill(os.getpid(), 9)
"""

KILLED_BETWEEN_RENAMES = """
import os, sys
from pathlib import Path
from transduce.storage import replace_folder
def rename(self, target, rename=Path.rename):
    rename(self, target)
    os.kill(os.getpid(), 9)
Path.rename = rename
with replace_folder(Path(sys.argv[1]), "marker") as temporary:
    (temporary / "marker").write_text("new")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("code", [KILLED_WHILE_WRITING, KILLED_BETWEEN_RENAMES])
def test_a_kill_loses_nothing_and_whoever_comes_next_cleans_up(tmp_path: Path, code: str) -> None:
    one = tmp_path / "one"
    _write(one / "folder", "old")
    before = _contents(one)
    assert _run(code, one / "folder").returncode == -signal.SIGKILL
    assert (one / "folder").exists() == (code == KILLED_WHILE_WRITING)
    assert (resolve_folder(one / "folder") / "inner" / "file").read_text() == "old"
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
    assert resolve_folder(tmp_path / "folder") == tmp_path / "folder"


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
from transduce.storage import replace_folder
with replace_folder(Path(sys.argv[1]), "marker") as temporary:
    (temporary / "marker").write_text("slow")
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.exhaustive
def test_what_a_living_process_writes_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LOCK_TIMEOUT", 0.0)
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


@pytest.mark.exhaustive
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
    with pytest.raises(TransduceError, match="nothing was changed"):
        _write(tmp_path / "folder", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "marker").read_text() == "old"


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputError, match="contains other files and no marker"):
        _write(tmp_path, "new")
    assert _contents(tmp_path) == {"thesis.txt"}


def test_a_file_that_has_the_name_of_the_lock_stays(tmp_path: Path) -> None:
    (tmp_path / ".folder.lock").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"\.folder\.lock: has the name of a lock file"):
        _write(tmp_path / "folder", "new")
    assert (tmp_path / ".folder.lock").read_text() == "mine"


def test_what_comes_to_be_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def write() -> None:
        with replace_folder(tmp_path / "folder", "marker") as temporary:
            (temporary / "marker").touch()
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "thesis.txt").write_text("years of work", encoding="utf-8")

    with pytest.raises(OutputError, match="contains other files"):
        write()
    assert _contents(tmp_path) == {"folder", "folder/thesis.txt"}


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("text", encoding="utf-8")
    with pytest.raises(OutputError, match="is not a folder"):
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


def test_a_link_to_a_removed_folder_stays(tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere" / "folder", "text")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "folder")
    remove_folder(tmp_path / "link")
    assert not [*(tmp_path / "elsewhere").iterdir()]
    with replace_folder(tmp_path / "link", "file") as temporary:
        (temporary / "file").write_text("new", encoding="utf-8")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "folder" / "file").read_text(encoding="utf-8") == "new"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_umask_decides_who_may_read(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        _write(tmp_path / "folder", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask
