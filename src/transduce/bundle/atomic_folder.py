"""Writing a whole folder or nothing: a crash at any moment leaves the old one or the new one, never half of one."""

import glob
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from transduce.bundle.folder_lock import locked
from transduce.bundle.output import failed_writing
from transduce.bundle.written_file import write_through
from transduce.errors import OutputError

PATIENCE = 10.0
"""Seconds to wait while another process writes the same folder, which takes about one."""


@contextmanager
def written_folder(folder: Path, marker: str) -> Iterator[Path]:
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
    temporary = _aside(place, "tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder, place.with_name(f".{place.name}.lock"), PATIENCE):
            recover_folders(place.parent, re.escape(place.name))
            try:
                temporary.mkdir()
                yield temporary
                for path in [*temporary.rglob("*"), temporary]:
                    write_through(path)
                check_replaceable(folder, marker)  # minutes may have passed
                _replace(place, temporary)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise failed_writing(folder, error) from error


def remove_folder(folder: Path) -> None:
    """Remove `folder` and all in it; what a crash leaves has another name and is not taken for the folder."""
    aside = _aside(folder, "removed")
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


def standing_folder(folder: Path) -> Path:
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


def _replace(place: Path, new: Path) -> None:
    old = _aside(place, "old")
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:  # Ctrl-C, too
        if old.exists():
            old.rename(place)
        raise
    write_through(place.parent)
    # Not before: until the new folder is in its place, the one aside is the only one there is.
    shutil.rmtree(old, ignore_errors=True)


def _aside(folder: Path, kind: str) -> Path:
    # A name that nobody gives to a copy of his own: what has it is removed unasked.
    return folder.with_name(f"{folder.name}.transduce-{kind}-{os.getpid()}")
