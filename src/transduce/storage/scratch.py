"""Temporary folders, removed after use or renamed when complete; the next process removes those of killed ones."""

import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import FileLock


@contextmanager
def remove_if_left_empty(folder: Path) -> Iterator[None]:
    """Remove, after the block, `folder` and its parents if the block has created them and they are empty."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    finally:
        with suppress(OSError):  # stop at the first non-empty folder
            for place in made:
                place.rmdir()


@contextmanager
def scratch_folder(parent: Path, name: str, unique: str | None = None) -> Iterator[Path]:
    """A new folder in `parent` that is removed after the block, with every empty parent that was created for it.

    Folders that killed processes left in `parent` are removed, too. `unique`, 12 hexadecimal digits in the name, is
    random by default; another process that knows it finds the folder by `scratch_path`.
    """
    folder = scratch_path(parent, name, unique or uuid4().hex[:12])
    with remove_if_left_empty(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        try:
            # Held while the folder is in use: released when a process is killed.
            with FileLock(_lock_path(folder)):
                try:
                    folder.mkdir()
                    yield folder
                finally:
                    _remove_with_lock(folder)
        finally:
            # Ctrl-C may come when the file of the lock is there, and the block has not begun.
            with suppress(OSError):
                _lock_path(folder).unlink()


def scratch_path(parent: Path, name: str, unique: str) -> Path:
    """The path of the folder that `scratch_folder` makes from the same arguments."""
    return parent / f"{name}.{unique}.partial"


@contextmanager
def create_folder_atomically(path: Path) -> Iterator[Path]:
    """A temporary folder next to `path`, renamed to `path` when the block succeeds and removed otherwise.

    If another process completes `path` in the meantime, its folder is kept and this one removed.
    """
    with scratch_folder(path.parent, path.name) as folder:
        try:
            yield folder
        except OSError as error:
            if error.filename is not None:
                raise
            # For a full disk, Python does not name the file.
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            folder.rename(path)
        except OSError:
            if not path.is_dir():
                raise


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove_with_lock(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        _lock_path(folder).unlink()


def _remove_abandoned(parent: Path) -> None:
    for path in parent.iterdir():
        if re.fullmatch(r".+\.[0-9a-f]{12}\.partial\.lock", path.name) and _is_own_lock(path):
            with (
                suppress(OSError),
                FileLock(path, timeout=0),
            ):  # a lock held by another process means that the folder is in use
                _remove_with_lock(path.with_suffix(""))


def _is_own_lock(lock: Path) -> bool:
    """Whether a lock can be one of `scratch_folder`: an empty file, beside a folder or nothing."""
    try:
        status = lock.lstat()
    except OSError:  # its process has just removed it
        return False
    folder = lock.with_suffix("")
    return stat.S_ISREG(status.st_mode) and status.st_size == 0 and (folder.is_dir() or not folder.exists())
