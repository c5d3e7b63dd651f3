"""Writing a whole file or nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_file(path: Path) -> Iterator[Path]:
    """A file beside `path` to write, which takes its place when the block ends, and is gone if that raises.

    Raises:
        OSError: writing failed; what was at `path` is still there.
    """
    beside = path.with_name(path.name + ".tmp")
    try:
        yield beside
        write_through(beside)  # a power cut must not leave the name without the bytes
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_through(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk itself, so that a power cut cannot undo them."""
    if os.name == "nt":  # Windows can neither open a folder nor flush a file opened for reading.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
