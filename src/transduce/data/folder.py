"""A folder that appears complete or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent` that is gone after the block, with every parent that it needed and left empty."""
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    # Unique, so that two processes never share one, and what a killed process leaves behind is in nobody's way.
    folder = parent / f"{name}.{uuid4().hex[:12]}.partial"
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # the first parent in use ends it
            for empty in made:
                empty.rmdir()


@contextmanager
def complete_folder(path: Path) -> Iterator[Path]:
    """A folder to write in, beside `path`, which becomes `path` when the block succeeds and vanishes when it fails.

    If another process completes `path` in the meantime, its folder stays and this one vanishes.
    """
    with scratch_folder(path.parent, path.name) as folder:
        yield folder
        try:
            folder.rename(path)
        except OSError:
            if not path.is_dir():
                raise
