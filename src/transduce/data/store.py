"""Token ids on disk, read pair by pair, so that memory is needed only for the pairs in use; and their cache: atomically
created folders, and digests of files.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal
from uuid import uuid4

import numpy as np
from filelock import FileLock
from jaxtyping import Int, Integer
from pydantic import Field, ValidationError

from transduce.config import Settings
from transduce.errors import ConfigError, RunError, WriteError


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

    Folders that killed processes left in `parent` are removed, too. Two processes never share one, unless they know
    where it is by `unique`, 12 random hexadecimal digits in its name.
    """
    folder = scratch_path(parent, name, unique or uuid4().hex[:12])
    with remove_if_left_empty(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        # Held while the folder is in use: released when a process is killed.
        with FileLock(_lock_path(folder)):
            try:
                folder.mkdir()
                yield folder
            finally:
                _remove_with_lock(folder)


def scratch_path(parent: Path, name: str, unique: str) -> Path:
    """Where `scratch_folder` makes its folder."""
    return parent / f"{name}.{unique}.partial"


@contextmanager
def complete_folder(path: Path) -> Iterator[Path]:
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


@contextmanager
def writable_cache(cache: Path) -> Iterator[None]:
    """A block that writes to the folder of prepared text; an error names the setting.

    Raises:
        ConfigError: the folder is not writable, or not a folder.
        WriteError: writing failed for another reason, as on a full disk.
    """
    try:
        yield
    except OSError as error:
        if not _concerns_folder(error, cache):
            raise
        is_mistake = isinstance(error, PermissionError | FileExistsError | NotADirectoryError)
        kind = ConfigError if is_mistake or error.errno == errno.EROFS else WriteError
        raise kind(
            f"data.cache: prepared text cannot be stored in {cache} ({error.strerror}): make it writable and free some "
            "space, or choose another folder"
        ) from error


def _concerns_folder(error: OSError, folder: Path) -> bool:
    """Whether an error concerns a path in or above `folder`, or names none, as that of a full disk."""
    if error.filename is None:
        return not isinstance(error, BrokenPipeError)
    named, folder = Path(error.filename).absolute(), folder.absolute()
    return folder in (named, *named.parents) or named in folder.parents


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


class KnownDigests:
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
        known = _KnownFiles(files={name: file for name, file in self._known.items() if Path(name).exists()})
        beside = self._path.with_name(f"{self._path.name}.{uuid4().hex[:12]}.tmp")
        with suppress(OSError):
            try:
                beside.write_text(known.model_dump_json(indent=1) + "\n", encoding="utf-8", newline="\n")
                beside.replace(self._path)
            finally:
                beside.unlink(missing_ok=True)


_IDS = "ids.bin"
_OFFSETS = "offsets.bin"
_RECORD = "store.json"
STORE_FILES = (_IDS, _OFFSETS, _RECORD)
"""The names of the files of a store."""
_OFFSET_TYPE = np.dtype("<i8")
_PAIRS_AT_A_TIME = 1_000_000


class StoreRecord(Settings):
    """The content of `store.json`, which describes the two files beside it."""

    version: Literal[1] = 1
    num_pairs: int = Field(ge=1)
    num_tokens: int = Field(ge=2)
    dtype: Literal["<u2", "<u4"]
    vocabulary: int = Field(ge=1)
    digests: dict[str, str]


class TokenStore:
    """Pairs of token ids, read-only.

    `ids.bin` holds source 0, target 0, source 1, target 1 and so on, each with its `</s>`; `offsets.bin` says where
    each of them begins, and where the last one ends.
    """

    def __init__(self, record: StoreRecord, ids: "_OpenFile", offsets: "_OpenFile") -> None:
        self.record = record
        self._ids = ids
        self._offsets = offsets

    @classmethod
    def open(cls, folder: Path, digest: Callable[[Path], str] = compute_file_digest) -> "TokenStore":
        """The store that `create_store` made in `folder`, after comparing its files with `store.json`.

        Raises:
            RunError: a file is missing, truncated or altered.
        """
        record = _read_record(folder / _RECORD)
        dtypes = {_IDS: np.dtype(record.dtype), _OFFSETS: _OFFSET_TYPE}
        numbers = {_IDS: record.num_tokens, _OFFSETS: 2 * record.num_pairs + 1}
        for name, dtype in dtypes.items():
            path, size = folder / name, numbers[name] * dtype.itemsize
            found = path.stat().st_size if path.is_file() else 0
            if found != size:
                raise RunError(f"{path} has {found} bytes and should have {size}. {_REMEDY}")
            if digest(path) != record.digests.get(name):
                raise RunError(f"{path} was changed. {_REMEDY}")
        return cls(record, *(_OpenFile(folder / name, dtype) for name, dtype in dtypes.items()))

    def __len__(self) -> int:
        return self.record.num_pairs

    def pair(self, index: int) -> tuple[Integer[np.ndarray, "source"], Integer[np.ndarray, "target"]]:
        """Source and target of pair `index`, each with its `</s>`."""
        start, middle, end = self._offsets.read(2 * index, 3).tolist()
        ids = self._ids.read(start, end - start)
        return ids[: middle - start], ids[middle - start :]

    @cached_property
    def lengths(self) -> Int[np.ndarray, "pairs 2"]:
        """Tokens of source and target of every pair, `</s>` included; of two bytes each if all are below 2^15."""
        lengths = np.empty((len(self), 2), np.int16)
        for start in range(0, len(self), _PAIRS_AT_A_TIME):
            num_pairs = min(_PAIRS_AT_A_TIME, len(self) - start)
            some = np.diff(self._offsets.read(2 * start, 2 * num_pairs + 1)).reshape(-1, 2)
            if some.max() > np.iinfo(lengths.dtype).max:
                lengths = lengths.astype(np.int64)
            lengths[start : start + num_pairs] = some
        return lengths


class _OpenFile:
    """Numbers in a file, read on demand.

    A mapping would do the same, but counts the pages that the kernel keeps for it as memory of this process, and pairs
    in random order touch them all.
    """

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self._path = path
        self._dtype = dtype
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)

    def read(self, start: int, count: int) -> Integer[np.ndarray, "count"]:
        size, place = count * self._dtype.itemsize, start * self._dtype.itemsize
        if hasattr(os, "pread"):  # everywhere but on Windows
            found = os.pread(self._file.fileno(), size, place)
        else:
            self._file.seek(place)
            found = self._file.read(size)
        if len(found) != size:
            raise RunError(f"{self._path} was truncated while it was read. {_REMEDY}")
        return np.frombuffer(found, self._dtype)


class TokenStoreWriter:
    """Appends pairs to the two files of a store; made by `create_store`."""

    def __init__(self, ids: BinaryIO, offsets: BinaryIO, dtype: str) -> None:
        self._ids = ids
        self._offsets = offsets
        self._dtype = dtype
        self.num_pairs = 0
        self.num_tokens = 0
        offsets.write(np.array([0], dtype=_OFFSET_TYPE).tobytes())

    def add(self, source_ids: list[int], target_ids: list[int]) -> None:
        """Appends a pair; both sides already end in `</s>`."""
        middle = self.num_tokens + len(source_ids)
        self.num_tokens = middle + len(target_ids)
        self.num_pairs += 1
        self._ids.write(np.array(source_ids + target_ids, dtype=self._dtype).tobytes())
        self._offsets.write(np.array([middle, self.num_tokens], dtype=_OFFSET_TYPE).tobytes())


@contextmanager
def create_store(folder: Path, vocabulary: int) -> Iterator[TokenStoreWriter]:
    """A writer of a new store beside `folder`, which appears if the block succeeds; otherwise nothing is left."""
    dtype: Literal["<u2", "<u4"] = "<u2" if vocabulary <= 2**16 else "<u4"
    with complete_folder(folder) as path:
        with (path / _IDS).open("wb") as ids, (path / _OFFSETS).open("wb") as offsets:
            writer = TokenStoreWriter(ids, offsets, dtype)
            yield writer
        record = StoreRecord(
            num_pairs=writer.num_pairs,
            num_tokens=writer.num_tokens,
            dtype=dtype,
            vocabulary=vocabulary,
            digests={name: compute_file_digest(path / name) for name in (_IDS, _OFFSETS)},
        )
        (path / _RECORD).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")


_REMEDY = "The folder is part of a cache: delete it, and it is recreated from the text"


def _read_record(path: Path) -> StoreRecord:
    try:
        return StoreRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing from a store of token ids. {_REMEDY}") from error
    except ValidationError as error:
        raise RunError(f"{path} does not describe a store of token ids: {error}. {_REMEDY}") from error
