"""The rule by which every command writes, so that nobody loses what another command, program or person has made.

1. What is there and was not written by this kind of command stays, unless `--force` is given.
2. A folder that holds anything but a model or an export stays even then: it would go as a whole.
3. Devices and pipes are written to and never replaced; a disk is not even written to.
4. A symbolic link stays: what it names is written, by the same rule.
5. A place that cannot be written is found before anything is computed, and a failure leaves what was there.

What is empty holds nothing to lose. Each command asks before it computes, and once more before it replaces.
"""

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from transduce.bundle.written_file import is_stream, written_file
from transduce.errors import OutputError, WriteError

OTHERWISE = "move it, choose another name, or replace it with --force"
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
            raise OutputError(f"{path}: is no {kind}, and is not replaced unasked: {OTHERWISE}")
    except OSError as error:
        raise refused_place(path, error) from error
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
        raise refused_place(path, error) from error


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
        with written_file(path) as place:
            place.write_bytes(content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise failed_writing(path, error) from error


def is_marked(path: Path, mark: bytes) -> bool:
    """Whether `mark`, by which a command knows the files that it has written, stands near the beginning of `path`."""
    with path.open("rb") as file:
        return mark in file.read(4096)


def refused_place(path: Path, error: Exception) -> OutputError | WriteError:
    """The error for a place of which `error` says, before there is anything to write, that it cannot be written."""
    kind = WriteError if _number(error) in _NO_ROOM else OutputError
    return kind(f"{path}: cannot be written ({_reason(error)}): {_remedy(error)}")


def failed_writing(path: Path, error: Exception) -> WriteError:
    """The error for `error`, which came while `path` was being written."""
    return WriteError(f"{path}: could not be written and is as it was before: {_reason(error)}; {_remedy(error)}")


def _is_standard_output(path: Path) -> bool:
    """Whether `path` is where standard output goes, as /dev/stdout is: a terminal, a pipe, or a file it was sent to."""
    with suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(1))
    return False


def _number(error: Exception) -> int | None:
    """As in `errno`; safetensors, which is written in Rust, says it in words."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _reason(error: Exception) -> str:
    number = _number(error)
    return str(error) if number is None else os.strerror(number)


def _remedy(error: Exception) -> str:
    if _number(error) in _NO_ROOM:
        return "make room there, or choose another place"
    return "see to it that it can be written, or choose another place"
