"""The zip file that an Argos package is: one folder with everything in it."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NoReturn

from transduce.errors import BundleError

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""Of zip files' calendar: the same files make the same package whenever it is made."""


def pack(folder: Path, path: Path) -> None:
    """Write all files in `folder`, with its name in front of theirs, to a zip file at `path`."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(folder.parent).as_posix(), _FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16  # readable by everybody, as far as the system knows of such things
            archive.writestr(entry, file.read_bytes())


def unpack(path: Path, folder: Path) -> Path:
    """The one folder that is in the zip file at `path`, unpacked into `folder`, outside of which nothing is written.

    Raises:
        BundleError: there is no such file, it is damaged, or it holds something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            tops = set(_tops(path, archive))
            if len(tops) != 1:
                _refuse(path, f"has {len(tops)} folders and files side by side, must have one folder")
            archive.extractall(folder)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        _refuse(path, f"is no zip file, or is damaged: {error}")
    return folder / tops.pop()


def _tops(path: Path, archive: zipfile.ZipFile) -> Iterator[str]:
    """The first folder of each entry; none of them leads anywhere else."""
    for entry in archive.infolist():
        name = PurePosixPath(entry.filename)
        if name.is_absolute() or ".." in name.parts or "\\" in entry.filename or ":" in entry.filename:
            _refuse(path, f"holds {entry.filename!r}, which leads out of its folder")
        yield name.parts[0] if name.parts else ""


def _refuse(path: Path, finding: str) -> NoReturn:
    raise BundleError(f"{path}: {finding}; give an undamaged Argos package")
