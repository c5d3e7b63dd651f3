"""Writing files and folders without destroying files made by other commands, programs or people.

1. A file not written by the same kind of command is replaced only with `--force`.
2. A folder that contains files other than a model or an export is never replaced, even with `--force`.
3. Devices and pipes are written to, never replaced; block devices are not written to.
4. A symbolic link is kept, and its target is written by the same rules.
5. Paths are checked for writing before the computation, and a failure leaves previous contents unchanged.

Empty files and folders may be replaced. Each command checks before it computes, and again before it replaces. Files and
folders are written completely or not at all: under a temporary name, then renamed.
"""

import errno
import glob
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from uuid import uuid4

from safetensors import SafetensorError

from transduce.errors import BusyError, OutputError, WriteError

UNFINISHED_PATTERN = r"\.transduce-tmp-[0-9a-f]{12}"
"""The suffix of the name of an unfinished file, as a regular expression."""


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces `path` when the block succeeds and is removed otherwise.

    A symbolic link is kept, and its target is replaced. The new file has the permissions of the old one. A device or a
    pipe is never replaced: the block receives `path` itself. The temporary name is
    `<name>.transduce-tmp-<12 hexadecimal digits>`.

    Raises:
        OSError: writing failed; what was at `path` is still there.
    """
    if is_stream(path):
        yield path
        return
    place = path.resolve()
    # Shortened, as a name of the maximum length leaves no room for a suffix.
    beside = place.with_name(f"{place.name[:50]}.transduce-tmp-{uuid4().hex[:12]}")
    beside.touch(exist_ok=False)
    try:
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
        if mode is not None:
            beside.chmod(mode | stat.S_IWUSR)  # the old file may be protected against writing
        yield beside
        flush_to_disk(beside)  # a power cut must not leave the name without the bytes
        if mode is not None:
            beside.chmod(mode)
        beside.replace(place)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files by their names into `folder`; texts in UTF-8, with ends of lines as they are."""
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def is_stream(path: Path) -> bool:
    """Whether `path` is, or links to, a terminal or another device, a pipe or a socket."""
    return path.exists() and not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode)


def flush_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk itself, so that a power cut cannot undo them.

    Some network file systems cannot do this for folders: there, nothing is waited for.
    """
    if os.name == "nt":  # Windows can neither open a folder nor flush a file opened for reading.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP} or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


_SIGNED = "process "
"""The text at the beginning of a lock file, before the process id."""


@contextmanager
def lock_folder(folder: Path, lock: Path, timeout: float = 0) -> Iterator[None]:
    """Lock a folder: at most one process at a time is in such a block for it.

    Args:
        folder: the locked folder, for the message.
        lock: the lock file, which is made for the block, names its process, and is removed again. A lock file left by a
            killed process does not lock.
        timeout: seconds to wait for another process to leave such a block.

    Raises:
        BusyError: another process is in such a block.
        OutputError: another file has the name of the lock.
        OSError: `lock` cannot be written, or its file system does not support locks.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - slow to load, and readers need no locks

    if (content := _read_lock(lock)) and not content.startswith(_SIGNED):
        raise OutputError(
            f"{lock}: has the name of a lock file and would be removed: move it, or choose another folder"
        )
    holder = FileLock(lock, timeout=timeout, on_acquired=_write_holder)
    try:
        holder.acquire()
    except Timeout:
        owner = _read_lock(lock) or "another process"
        raise BusyError(f"{folder}: is in use by {owner}; wait until it ends, or choose another folder") from None
    try:
        yield
    finally:
        # Unlink before releasing: a process that already opened the file notices that it was unlinked and does not
        # acquire it.
        with suppress(OSError):
            lock.unlink()
        holder.release()


def _write_holder(descriptor: int) -> None:
    with suppress(OSError):  # on a full disk the lock holds, without the name of its process
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{_SIGNED}{os.getpid()} on {socket.gethostname()}".encode())


def _read_lock(lock: Path) -> str:
    with suppress(OSError):  # it does not exist, or Windows denies reading it while it is held
        return lock.read_text(encoding="utf-8", errors="replace")
    return ""


FORCE_ADVICE = "move it, choose another name, or replace it with --force"
"""Advice about a path that is refused without `--force`."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def check_output_file(
    path: Path,
    is_own: Callable[[Path], bool] | None,
    kind: str,
    *,
    force: bool,
    makes_folder: bool = False,
    also_prints: bool = False,
) -> None:
    """Check that a file may be written at `path`; nothing is changed.

    Args:
        path: where it is to be written.
        is_own: whether the file at a path was written by this kind of command; called for regular files only. None if
            nothing tells.
        kind: what this command writes, for the message, as in "page of transduce inspect".
        force: replace any file.
        makes_folder: whether the caller makes the folder of the file if there is none.
        also_prints: whether the caller prints results, too, so that the file must not be standard output.

    Raises:
        OutputError: another file exists there, its folder does not, or `path` cannot be written, or must not be.
        WriteError: its disk is full.
    """
    try:
        if path.is_block_device():
            raise OutputError(f"{path}: is a block device, which is never written to: give the name of a file")
        if path.is_dir():
            raise OutputError(f"{path}: is a folder, which is not replaced: give the name of a file")
        if _is_standard_output(path):
            if also_prints and not path.samefile(os.devnull):
                raise OutputError(
                    f"{path}: is standard output, where the {kind} would be mixed with the results that are printed: "
                    "give the name of another file"
                )
            return
        if path.exists() and not os.access(path, os.W_OK):
            raise OutputError(f"{path}: is read-only; make it writable, or choose another name")
        if is_stream(path):
            return
        if not force and path.exists() and path.stat().st_size and (is_own is None or not is_own(path)):
            reason = "exists already" if is_own is None else f"is not {_with_article(kind)}"
            raise OutputError(f"{path}: {reason}: {FORCE_ADVICE}")
    except OSError as error:
        raise make_output_error(path, error) from error
    check_writable(path)
    if not makes_folder and not path.resolve().parent.is_dir():
        raise OutputError(f"{path}: must be a file in a folder that exists: make {path.parent}, or choose another")


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def check_writable(path: Path) -> None:
    """Check that a file or folder can be made at `path`, in the nearest existing folder above it.

    Raises:
        OutputError: that folder cannot be written.
        WriteError: its disk is full.
    """
    try:
        folder = next(folder for folder in path.resolve().parents if folder.exists())
        with TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: circular symbolic links
        raise make_output_error(path, error) from error


def write_output_file(
    path: Path, content: bytes, is_own: Callable[[Path], bool] | None, kind: str, *, force: bool
) -> None:
    """Write `content` to `path`, if `check_output_file` allows it; the file is written completely or not at all.

    Raises:
        OutputError: another file exists there, or `path` cannot be written.
        WriteError: writing failed, as on a full disk; a previous file is unchanged.
        BrokenPipeError: `path` is a pipe whose reader has closed it.
    """
    check_output_file(path, is_own, kind, force=force)
    try:
        if _is_standard_output(path):
            # Not reopened, which would start at the beginning of a file to whose end the output may be redirected.
            with os.fdopen(os.dup(1), "wb") as stream:
                stream.write(content)
            return
        with replace_file(path) as place:
            place.write_bytes(content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise make_write_error(path, error) from error


@dataclass(frozen=True)
class OwnFileKind:
    """A kind of file that a command writes and recognises: an earlier one is replaced, another file only by `--force`.

    Args:
        noun: what such a file is, for messages, as in "page of transduce inspect".
        marks: every file of the kind contains one of these texts among its first 4,096 bytes.
    """

    noun: str
    marks: tuple[str, ...]

    def contains(self, path: Path) -> bool:
        """Whether the file at `path` has one of the marks, so that a file of this kind may replace it."""
        with path.open("rb") as file:
            beginning = file.read(4096)
        return any(mark.encode() in beginning for mark in self.marks)

    def check(self, path: Path, *, force: bool, makes_folder: bool = False, also_prints: bool = False) -> None:
        """Check that a file of this kind may be written at `path`, see `check_output_file`."""
        check_output_file(
            path, self.contains, self.noun, force=force, makes_folder=makes_folder, also_prints=also_prints
        )

    def write(self, path: Path, text: str, *, force: bool) -> int:
        """Write `text` in UTF-8, see `write_output_file`, and return the number of bytes.

        Bytes of names of files that are not UTF-8 become question marks.
        """
        content = text.encode("utf-8", "replace")
        write_output_file(path, content, self.contains, self.noun, force=force)
        return len(content)


def make_output_error(path: Path, error: Exception) -> OutputError | WriteError:
    """The error for a path that cannot be written, found before writing."""
    kind = WriteError if _find_errno(error) in _NO_ROOM else OutputError
    return kind(f"{path}: cannot be written ({_describe_error(error)}): {_advise(error)}")


def make_write_error(path: Path, error: Exception) -> WriteError:
    """The error for an exception that was raised while `path` was being written."""
    return WriteError(f"{path}: could not be written; nothing was changed: {_describe_error(error)}; {_advise(error)}")


def _is_standard_output(path: Path) -> bool:
    """Whether `path` is the destination of standard output, such as /dev/stdout: a terminal, a pipe or a file."""
    with suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(1))
    return False


def _find_errno(error: Exception) -> int | None:
    """The number of an error as in `errno`; safetensors, which is written in Rust, has it in its message."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _describe_error(error: Exception) -> str:
    number = _find_errno(error)
    return str(error) if number is None else os.strerror(number)


def _advise(error: Exception) -> str:
    if _find_errno(error) in _NO_ROOM:
        return "free some space, or choose another path"
    return "make it writable, or choose another path"


LOCK_TIMEOUT = 10.0
"""Seconds to wait while another process writes the same folder, which takes about one."""


@contextmanager
def replace_folder(folder: Path, marker: str) -> Iterator[Path]:
    """An empty temporary folder, which replaces `folder` when the block succeeds.

    It has the permissions of `folder`, and is next to it (`make_folder_beside`); the replaced folder is, for a moment,
    `<name>.transduce-old-<process id>`.

    Args:
        folder: the folder; missing parents are created.
        marker: name of the file that identifies a folder of this kind. No other folder is ever replaced.

    Raises:
        OutputError: `folder` is not a folder, or contains files but no `marker`.
        BusyError: another process is writing it and does not finish.
        WriteError: writing failed, as on a full disk; `folder` is unchanged.
    """
    check_replaceable(folder, marker)
    place = folder.resolve()
    with make_folder_beside(folder, LOCK_TIMEOUT) as temporary:
        if place.exists():
            temporary.chmod(stat.S_IMODE(place.stat().st_mode) | stat.S_IRWXU)
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            flush_to_disk(path)
        check_replaceable(folder, marker)  # minutes may have passed
        _put_in_place(place, temporary)


@contextmanager
def make_folder_beside(path: Path, timeout: float = 0.0) -> Iterator[Path]:
    """An empty folder next to `path`, named `<name>.transduce-tmp-<process id>`, that is removed after the block.

    Folders left by a killed process are recovered first (`recover_folders`). `timeout` is that of the lock.

    Raises:
        BusyError: another process is in such a block for `path`.
        WriteError: writing failed within the block, as on a full disk.
    """
    place = path.resolve()
    temporary = _name_aside(place, "tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with lock_folder(path, place.with_name(f".{place.name}.lock"), timeout):
            recover_folders(place.parent, re.escape(place.name))
            try:
                temporary.mkdir()
                yield temporary
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise make_write_error(path, error) from error


def remove_folder(folder: Path) -> None:
    """Remove `folder`; it is renamed first, so that a crash does not leave an incomplete folder under its name.

    Of a link, the folder that it leads to is removed, and the link stays: `replace_folder` makes another one in its
    place.
    """
    place = folder.resolve()
    aside = _name_aside(place, "removed")
    shutil.rmtree(aside, ignore_errors=True)
    place.rename(aside)
    shutil.rmtree(aside)


def recover_folders(parent: Path, names: str) -> None:
    """Recover folders in `parent` left by killed processes, whose names match the regular expression `names`.

    A folder that was moved away and not yet replaced is put back; one partly written or partly removed is removed.
    The caller makes sure that no other process is writing there.
    """
    for path in sorted(parent.iterdir()):
        found = re.fullmatch(rf"({names})\.transduce-(tmp|old|removed)-\d+", path.name, re.ASCII)
        if found is None or not path.is_dir():
            continue
        place = parent / found[1]
        if found[2] == "old" and not place.exists():
            path.rename(place)
        else:
            shutil.rmtree(path, ignore_errors=True)


def resolve_folder(folder: Path) -> Path:
    """The path to read `folder` from: its own, or the one to which a process killed while replacing it had moved it."""
    aside: list[Path] = []
    for _ in range(20):
        if folder.exists():
            return folder
        aside = list(folder.parent.glob(f"{glob.escape(folder.name)}.transduce-old-*"))
        if not aside:  # it never existed, or exists by now
            return folder
        time.sleep(0.005)  # a running process is about to put the new one in its place
    return aside[0]


def check_replaceable(folder: Path, marker: str) -> None:
    """Check that `folder` does not exist, is empty, or contains the file `marker`.

    Raises:
        OutputError: `folder` is none of these.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / marker).is_file():
            raise OutputError(
                f"{folder}: contains other files and no {marker}, and is not replaced: choose another folder"
            )
    elif folder.exists():
        raise OutputError(f"{folder}: is not a folder, and is not replaced: choose the name of a folder")


def _put_in_place(place: Path, new: Path) -> None:
    old = _name_aside(place, "old")
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:  # Ctrl-C, too
        if old.exists():
            old.rename(place)
        raise
    flush_to_disk(place.parent)
    # Removed only now: until the new folder is in its place, the old one is the only complete copy.
    shutil.rmtree(old, ignore_errors=True)


def _name_aside(folder: Path, kind: str) -> Path:
    # The name must not collide with user files, because such folders are deleted without asking.
    return folder.with_name(f"{folder.name}.transduce-{kind}-{os.getpid()}")
