"""SHA-256 of files, computed again only when a file has changed."""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from transduce.config import Settings
from transduce.storage.writing import replace_file


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


class DigestCache:
    """The SHA-256 of files, remembered in `path` with their size, inode and the times of their last change.

    A file is read again when one of these differs, as any write changes them. If `path` has other contents, it is not
    touched, and nothing is remembered.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, _KnownFile] = {}
        self._is_foreign = False
        try:
            if content := path.read_bytes():
                self._known = dict(_KnownFiles.model_validate_json(content).files)
        except FileNotFoundError:
            pass
        except (OSError, ValidationError):
            self._is_foreign = True
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
        # A file that has just been written may be written again within the resolution of its time stamps.
        if is_at_rest:
            self._known[name] = _KnownFile(**found, digest=digest)
            self._is_new = True
        return digest

    def save(self) -> None:
        """Save the digests for the next start. If that fails, files will only be read again."""
        if self._is_foreign or not self._is_new:
            return
        # Not Path.exists: of a file in a folder that may not be read, it raises.
        there = {name: file for name, file in self._known.items() if os.path.exists(name)}  # noqa: PTH110
        known = _KnownFiles(files=there)
        with suppress(OSError), replace_file(self._path) as place:
            place.write_text(known.model_dump_json(indent=1) + "\n", encoding="utf-8", newline="\n")
