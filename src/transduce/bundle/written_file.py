"""Writing a whole file or nothing."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

UNFINISHED = r"\.transduce-tmp-[0-9a-f]{12}"
"""What follows the name of a file in that of its unfinished successor, as a regular expression."""


@contextmanager
def written_file(path: Path) -> Iterator[Path]:
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
        write_through(beside)  # a power cut must not leave the name without the bytes
        beside.replace(place)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def is_stream(path: Path) -> bool:
    """Whether `path` is, or names, a terminal or another device, a pipe or a socket: what is written there is gone."""
    return path.exists() and not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode)


def write_through(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk itself, so that a power cut cannot undo them."""
    if os.name == "nt":  # Windows can neither open a folder nor flush a file opened for reading.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
