"""The cache of prepared text: folders that appear complete or not at all, and digests of files."""

import errno
import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import FileLock
from pydantic import ValidationError

from transduce.config import Settings
from transduce.errors import ConfigError, WriteError


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent` that is removed after the block, with every parent that was made for it and is empty.

    Folders that killed processes left in `parent` are removed, too.
    """
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    # Unique, so that two processes never share one.
    folder = parent / f"{name}.{uuid4().hex[:12]}.partial"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        # Held for as long as the folder is in use: a process that is killed lets go of it.
        with FileLock(_lock_path(folder)):
            try:
                folder.mkdir()
                yield folder
            finally:
                _remove_with_lock(folder)
    finally:
        with suppress(OSError):  # the first parent in use ends it
            for empty in made:
                empty.rmdir()


@contextmanager
def complete_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` to write in, which is renamed to `path` when the block succeeds and removed otherwise.

    If another process completes `path` in the meantime, its folder stays and this one vanishes.
    """
    with scratch_folder(path.parent, path.name) as folder:
        try:
            yield folder
        except OSError as error:
            if error.filename is not None:
                raise
            # Of a full disk, Python does not say which file did not fit.
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            folder.rename(path)
        except OSError:
            if not path.is_dir():
                raise


@contextmanager
def writable_cache(cache: Path) -> Iterator[None]:
    """A block that writes to the folder of prepared text; an error names the setting.

    Raises:
        ConfigError: the folder may not be written, or is none.
        WriteError: writing failed for another reason, as on a full disk.
    """
    try:
        yield
    except OSError as error:
        if not _concerns_folder(error, cache):
            raise
        is_mistake = isinstance(error, PermissionError | FileExistsError | NotADirectoryError)
        kind = ConfigError if is_mistake or error.errno == errno.EROFS else WriteError
        raise kind(
            f"data.cache: prepared text cannot be kept in {cache} ({error.strerror}): see to it that it can be "
            f"written and has room, or choose another folder"
        ) from error


def _concerns_folder(error: OSError, folder: Path) -> bool:
    """Whether an error concerns a path in or above `folder`, or names none, as that of a full disk."""
    if error.filename is None:
        return not isinstance(error, BrokenPipeError)
    named, folder = Path(error.filename).absolute(), folder.absolute()
    return folder in (named, *named.parents) or named in folder.parents


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove_with_lock(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        _lock_path(folder).unlink()


def _remove_abandoned(parent: Path) -> None:
    for path in parent.iterdir():
        if re.fullmatch(r".+\.[0-9a-f]{12}\.partial\.lock", path.name):
            with suppress(OSError), FileLock(path, timeout=0):  # where somebody else holds it, it is in use
                _remove_with_lock(path.with_suffix(""))


def compute_file_digest(path: Path) -> str:
    """SHA-256 of the bytes of the file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_CLOCK_TICK = 2_000_000_000
"""Nanoseconds between two times that any file system can tell apart; two seconds on the coarsest, FAT."""


class _KnownFile(Settings):
    size: int
    modified: int
    changed: int
    inode: int
    digest: str


class _KnownFiles(Settings):
    files: dict[str, _KnownFile]


class KnownDigests:
    """The SHA-256 of files, remembered in `path` with their size, inode and the times of their last change.

    A file is read again when one of these differs, which every way of writing to it brings about.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known = dict(_KnownFiles.model_validate_json(path.read_bytes()).files)
        except (OSError, ValidationError):  # none yet, or damaged: everything is read again
            self._known = {}
        self._is_new = False

    def digest(self, path: Path) -> str:
        """SHA-256 of the bytes of the file, in hexadecimal."""
        name, status = str(path.absolute()), path.stat()
        times = {"modified": status.st_mtime_ns, "changed": status.st_ctime_ns}
        found = {"size": status.st_size, **times, "inode": status.st_ino}
        known = self._known.get(name)
        if known is not None and known.model_dump(exclude={"digest"}) == found:
            return known.digest
        is_at_rest = time.time_ns() - max(times.values()) > _CLOCK_TICK
        digest = compute_file_digest(path)
        # A file that was written to just now may be written to again at what its times show as the same moment.
        if is_at_rest:
            self._known[name] = _KnownFile(**found, digest=digest)
            self._is_new = True
        return digest

    def save(self) -> None:
        """Keep what was learned for the next start. Where that fails, files are read again; nothing else is lost."""
        if not self._is_new:
            return
        known = _KnownFiles(files={name: file for name, file in self._known.items() if Path(name).exists()})
        beside = self._path.with_name(f"{self._path.name}.{uuid4().hex[:12]}.tmp")
        with suppress(OSError):
            try:
                beside.write_text(known.model_dump_json(indent=1) + "\n", encoding="utf-8", newline="\n")
                beside.replace(self._path)
            finally:
                beside.unlink(missing_ok=True)
