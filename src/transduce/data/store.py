"""Token ids on disk, read pair by pair, so that memory is needed only for the pairs in use."""

import errno
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from jaxtyping import Int, Integer
from pydantic import Field, ValidationError

from transduce.config import Settings
from transduce.errors import ConfigError, RunError, WriteError
from transduce.storage import compute_file_digest, create_folder_atomically


@contextmanager
def explain_cache_errors(cache: Path) -> Iterator[None]:
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
        """Tokens of source and target of every pair, `</s>` included; as int16 if all are below 2^15."""
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
    with create_folder_atomically(folder) as path:
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
