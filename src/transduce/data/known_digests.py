"""Digests of files that were read before: a corpus of gigabytes is read for its digest once, and not at every start."""

import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from transduce.config import Settings
from transduce.data.digest import file_digest

_CLOCK_TICK = 2_000_000_000
"""Nanoseconds between two times that any file system can tell apart; two seconds on the coarsest, FAT."""


class _KnownFile(Settings):
    size: int
    modified: int
    changed: int
    inode: int
    digest: str

    def is_unchanged(self, other: "_KnownFile") -> bool:
        return self.model_dump(exclude={"digest"}) == other.model_dump(exclude={"digest"})


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
        name, found = str(path.absolute()), _look_at(path)
        known = self._known.get(name)
        if known is not None and known.is_unchanged(found):
            return known.digest
        at_rest = time.time_ns() - max(found.modified, found.changed) > _CLOCK_TICK
        digest = file_digest(path)
        # A file that was written to just now may be written to again at what its times show as the same moment.
        if at_rest:
            self._known[name] = found.model_copy(update={"digest": digest})
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


def _look_at(path: Path) -> _KnownFile:
    status = path.stat()
    return _KnownFile(
        size=status.st_size,
        modified=status.st_mtime_ns,
        changed=status.st_ctime_ns,
        inode=status.st_ino,
        digest="",
    )
