"""Writing a whole file or nothing."""

import errno
import glob
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from uuid import uuid4

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from transduce.errors import BusyError, OutputError, WriteError

UNFINISHED_PATTERN = r"\.transduce-tmp-[0-9a-f]{12}"
"""What follows the name of a file in that of its unfinished successor, as a regular expression."""


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A file beside `path` to write, which takes its place when the block ends, and is gone if that raises.

    Of a symbolic link, the place is that of the file that it names: the link stays. A file that is replaced hands on
    its permissions. A device or a pipe is never replaced: `path` itself is what there is to write then. The temporary
    name, `<name>.transduce-tmp-<12 hexadecimal digits>`, is nobody else's.

    Raises:
        OSError: writing failed; what was at `path` is still there.
    """
    if is_stream(path):
        yield path
        return
    place = path.resolve()
    # Cut, as the longest name that a file may have leaves no room for more.
    beside = place.with_name(f"{place.name[:50]}.transduce-tmp-{uuid4().hex[:12]}")
    beside.touch(exist_ok=False)
    try:
        if place.exists():
            shutil.copymode(place, beside)
        yield beside
        flush_to_disk(beside)  # a power cut must not leave the name without the bytes
        beside.replace(place)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def is_stream(path: Path) -> bool:
    """Whether `path` is, or names, a terminal or another device, a pipe or a socket: what is written there is gone."""
    return path.exists() and not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode)


def flush_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk itself, so that a power cut cannot undo them."""
    if os.name == "nt":  # Windows can neither open a folder nor flush a file opened for reading.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_SIGNED = "process "
"""How a lock begins that says who holds it."""


@contextmanager
def lock_folder(folder: Path, lock: Path, timeout: float = 0) -> Iterator[None]:
    """Keep every other process out of such a block of its own.

    Args:
        folder: what is kept, for the message.
        lock: a file that is made for this, says which process holds it, and is removed again. One that a killed
            process left behind locks nobody out.
        timeout: seconds to wait for another process to leave such a block.

    Raises:
        BusyError: another process is in such a block.
        OutputError: a file of somebody's own has the name of the lock.
        OSError: `lock` cannot be written, or its file system knows no locks.
    """
    if _is_foreign_lock(lock):
        raise OutputError(
            f"{lock}: is in the place of a lock, which would remove it: move it, or choose another folder"
        )
    holder = FileLock(lock, timeout=timeout, on_acquired=_write_holder)
    try:
        holder.acquire()
    except Timeout:
        raise BusyError(
            f"{folder}: is in use by {_read_holder(lock)}; wait until that ends, or choose another folder"
        ) from None
    try:
        yield
    finally:
        # While it is held: whoever opened it meanwhile finds that the file has lost its name, and does not take it.
        with suppress(OSError):
            lock.unlink()
        holder.release()


def _write_holder(descriptor: int) -> None:
    with suppress(OSError):  # a full disk: nobody will know the name, but the lock holds
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{_SIGNED}{os.getpid()} on {socket.gethostname()}".encode())


def _is_foreign_lock(lock: Path) -> bool:
    try:
        content = lock.read_bytes()
    except OSError:  # it is not there, or Windows lets nobody read it while it is held
        return False
    return bool(content) and not content.startswith(_SIGNED.encode())


def _read_holder(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"


FORCE_ADVICE = "move it, choose another name, or replace it with --force"
"""What the user can do about a place that is refused without `--force`."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def check_output_file(path: Path, is_own: Callable[[Path], bool], kind: str, *, force: bool) -> None:
    """That a file may be written at `path`; nothing is changed.

    Args:
        path: where it is to be written.
        is_own: whether the file at a path was written by this kind of command; only ever asked about a regular file.
        kind: what this command writes, for the message, as in "page of transduce inspect".
        force: replace any file.

    Raises:
        OutputError: something else is there, or `path` cannot be written.
        WriteError: its disk is full.
    """
    try:
        if path.is_block_device():
            raise OutputError(f"{path}: is a disk; nothing is written to it: give the name of a file")
        if path.is_dir():
            raise OutputError(f"{path}: is a folder; it is not replaced: give the name of a file")
        if _is_standard_output(path):
            return
        if path.exists() and not os.access(path, os.W_OK):
            raise OutputError(f"{path}: is read-only; see to it that it can be written, or choose another name")
        if is_stream(path):
            return
        if not force and path.exists() and path.stat().st_size and not is_own(path):
            raise OutputError(f"{path}: is no {kind}, and is not replaced unasked: {FORCE_ADVICE}")
    except OSError as error:
        raise make_output_error(path, error) from error
    check_writable(path)


def check_writable(path: Path) -> None:
    """That a file or folder could be made at `path`, in the nearest folder above it that is there.

    Raises:
        OutputError: not in that folder.
        WriteError: its disk is full.
    """
    try:
        folder = next(folder for folder in path.resolve().parents if folder.exists())
        with TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: links that name each other
        raise make_output_error(path, error) from error


def write_output_file(path: Path, content: bytes, is_own: Callable[[Path], bool], kind: str, *, force: bool) -> None:
    """Write `content` to `path`, if `check_output_file` allows it; a file is there whole or not at all.

    Raises:
        OutputError: something else is there, or `path` cannot be written.
        WriteError: writing failed, as on a full disk; a file that was there is as it was before.
        BrokenPipeError: `path` is a pipe, and its reader has left.
    """
    check_output_file(path, is_own, kind, force=force)
    try:
        if _is_standard_output(path):
            # Not opened anew, which would begin at the start of the file that it may have been sent to the end of.
            with os.fdopen(os.dup(1), "wb") as stream:
                stream.write(content)
            return
        with replace_file(path) as place:
            place.write_bytes(content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise make_write_error(path, error) from error


def has_mark(path: Path, mark: bytes) -> bool:
    """Whether `mark`, by which a command knows the files that it has written, stands near the beginning of `path`."""
    with path.open("rb") as file:
        return mark in file.read(4096)


def make_output_error(path: Path, error: Exception) -> OutputError | WriteError:
    """The error for a place of which `error` says, before there is anything to write, that it cannot be written."""
    kind = WriteError if _find_errno(error) in _NO_ROOM else OutputError
    return kind(f"{path}: cannot be written ({_describe_error(error)}): {_advise(error)}")


def make_write_error(path: Path, error: Exception) -> WriteError:
    """The error for `error`, which came while `path` was being written."""
    return WriteError(
        f"{path}: could not be written and is as it was before: {_describe_error(error)}; {_advise(error)}"
    )


def _is_standard_output(path: Path) -> bool:
    """Whether `path` is where standard output goes, as /dev/stdout is: a terminal, a pipe, or a file it was sent to."""
    with suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(1))
    return False


def _find_errno(error: Exception) -> int | None:
    """As in `errno`; safetensors, which is written in Rust, says it in words."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _describe_error(error: Exception) -> str:
    number = _find_errno(error)
    return str(error) if number is None else os.strerror(number)


def _advise(error: Exception) -> str:
    if _find_errno(error) in _NO_ROOM:
        return "make room there, or choose another place"
    return "see to it that it can be written, or choose another place"


LOCK_TIMEOUT = 10.0
"""Seconds to wait while another process writes the same folder, which takes about one."""


@contextmanager
def replace_folder(folder: Path, marker: str) -> Iterator[Path]:
    """An empty folder to write into, which takes the place of `folder` when the block ends without an exception.

    It lies beside `folder` as `<name>.transduce-tmp-<process id>`; a folder that is replaced is, for a moment,
    `<name>.transduce-old-<process id>`. What a killed process left so is put right before (`recover_folders`).

    Args:
        folder: the place; its parents are made where they are missing.
        marker: name of the file by which a folder of this kind is known. No other folder is ever replaced.

    Raises:
        OutputError: `folder` is no folder, or holds files and no `marker`.
        BusyError: another process is writing it, and does not come to an end.
        WriteError: writing failed, as on a full disk; `folder` is as it was before.
    """
    check_replaceable(folder, marker)
    place = folder.resolve()
    temporary = _name_aside(place, "tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder, place.with_name(f".{place.name}.lock"), LOCK_TIMEOUT):
            recover_folders(place.parent, re.escape(place.name))
            try:
                temporary.mkdir()
                yield temporary
                for path in [*temporary.rglob("*"), temporary]:
                    flush_to_disk(path)
                check_replaceable(folder, marker)  # minutes may have passed
                _put_in_place(place, temporary)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise make_write_error(folder, error) from error


def remove_folder(folder: Path) -> None:
    """Remove `folder` and all in it; what a crash leaves has another name and is not taken for the folder."""
    aside = _name_aside(folder, "removed")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside)


def recover_folders(parent: Path, names: str) -> None:
    """Put right what killed processes left in `parent` of folders whose names match the regular expression `names`.

    A folder that was set aside and not yet replaced is put back; what was half written or half removed is removed.
    The caller sees to it that no other process is writing there.
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
    """Where to read `folder`: in its place, or where a process that was killed while replacing it had set it aside."""
    aside: list[Path] = []
    for _ in range(20):
        if folder.exists():
            return folder
        aside = list(folder.parent.glob(f"{glob.escape(folder.name)}.transduce-old-*"))
        if not aside:  # it never was there, or is by now
            return folder
        time.sleep(0.005)  # a process that lives puts the new one into its place at once
    return aside[0]


def check_replaceable(folder: Path, marker: str) -> None:
    """That `folder` is not there, empty, or of the kind that is known by a file called `marker`.

    Raises:
        OutputError: it is something else.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / marker).is_file():
            raise OutputError(f"{folder}: holds other files and no {marker}; it is not replaced: choose another folder")
    elif folder.exists():
        raise OutputError(f"{folder}: is no folder; it is not replaced: choose the name of a folder")


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
    # Not before: until the new folder is in its place, the one aside is the only one there is.
    shutil.rmtree(old, ignore_errors=True)


def _name_aside(folder: Path, kind: str) -> Path:
    # A name that nobody gives to a copy of his own: what has it is removed unasked.
    return folder.with_name(f"{folder.name}.transduce-{kind}-{os.getpid()}")
