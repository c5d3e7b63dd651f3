"""A folder that appears complete or not at all."""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from transduce.errors import ConfigError, WriteError


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent` that is gone after the block, with every parent that it needed and left empty.

    Those that killed processes left in `parent` are removed, too.
    """
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    # Unique, so that two processes never share one.
    folder = parent / f"{name}.{uuid4().hex[:12]}.partial"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        # Held for as long as the folder is in use: a process that is killed lets go of it.
        with FileLock(_lock(folder)):
            try:
                folder.mkdir()
                yield folder
            finally:
                _remove(folder)
    finally:
        with suppress(OSError):  # the first parent in use ends it
            for empty in made:
                empty.rmdir()


@contextmanager
def complete_folder(path: Path) -> Iterator[Path]:
    """A folder to write in, beside `path`, which becomes `path` when the block succeeds and vanishes when it fails.

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
    """A block that writes to the folder for prepared text; where it cannot, the setting is named.

    Raises:
        ConfigError: the folder may not be written, or is none.
        WriteError: writing failed for another reason, as on a full disk.
    """
    try:
        yield
    except OSError as error:
        if not _is_about(error, cache):
            raise
        is_mistake = isinstance(error, PermissionError | FileExistsError | NotADirectoryError)
        kind = ConfigError if is_mistake or error.errno == errno.EROFS else WriteError
        raise kind(
            f"data.cache: prepared text cannot be kept in {cache} ({error.strerror}): see to it that it can be "
            f"written and has room, or choose another folder"
        ) from error


def _is_about(error: OSError, folder: Path) -> bool:
    """Whether it is about what is in `folder`, or above it; or names nothing, as that of a full disk."""
    if error.filename is None:
        return not isinstance(error, BrokenPipeError)
    named, folder = Path(error.filename).absolute(), folder.absolute()
    return folder in (named, *named.parents) or named in folder.parents


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove(folder: Path) -> None:
    """Remove the folder and then its lock, which the caller holds."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        _lock(folder).unlink()


def _remove_abandoned(parent: Path) -> None:
    for path in parent.iterdir():
        if re.fullmatch(r".+\.[0-9a-f]{12}\.partial\.lock", path.name):
            with suppress(OSError), FileLock(path, timeout=0):  # where somebody else holds it, it is in use
                _remove(path.with_suffix(""))
