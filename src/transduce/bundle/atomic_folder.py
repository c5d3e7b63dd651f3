"""Writing a whole folder or nothing: a crash at any moment leaves the old one or the new one, never half of one."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from transduce.errors import BundleError, TransduceError


@contextmanager
def written_folder(folder: Path, marker: str) -> Iterator[Path]:
    """An empty folder to write into, which takes the place of `folder` when the block ends without an exception.

    It lies beside `folder` as `<name>.tmp-<process id>`; a folder that is replaced is `<name>.old-<process id>` for
    a moment. What a killed process left under such names is removed.

    Args:
        folder: the place; its parents are made where they are missing.
        marker: name of the file by which a folder of this kind is known. No other folder is ever replaced.

    Raises:
        BundleError: `folder` is a file, or holds files and no `marker`.
        TransduceError: writing failed, as on a full disk; `folder` is as it was before.
    """
    _check_replaceable(folder, marker)
    place = folder.resolve()
    temporary = place.with_name(f"{place.name}.tmp-{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place.parent, re.escape(place.name), kinds="tmp")
        temporary.mkdir()
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            _write_through(path)
        _replace(place, temporary)
    except (OSError, SafetensorError) as error:
        raise TransduceError(f"{folder}: could not be written and is as it was before: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove `folder` and all in it; what a crash leaves has another name and is not taken for the folder."""
    aside = _aside(folder)
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside)


def remove_leftovers(parent: Path, names: str, kinds: str = "tmp|old") -> None:
    """Remove what killed processes left in `parent` of folders whose names match the regular expression `names`."""
    for path in parent.iterdir():
        if re.fullmatch(rf"(?:{names})\.(?:{kinds})-\d+", path.name):
            shutil.rmtree(path, ignore_errors=True)


def _check_replaceable(folder: Path, marker: str) -> None:
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / marker).is_file():
            raise BundleError(f"{folder}: holds other files and no {marker}; it is not replaced: choose another folder")
    elif folder.exists():
        raise BundleError(f"{folder}: is a file; it is not replaced: choose the name of a folder")


def _replace(place: Path, new: Path) -> None:
    old = _aside(place)
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:  # Ctrl-C, too
        if old.exists():
            old.rename(place)
        raise
    _write_through(place.parent)
    # Not before: until the new folder is in its place, the one aside may be the only one there is.
    remove_leftovers(place.parent, re.escape(place.name), kinds="old")


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.old-{os.getpid()}")


def _write_through(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk itself, so that a power cut cannot undo them."""
    if os.name == "nt":  # Windows can neither open a folder nor flush a file opened for reading.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
