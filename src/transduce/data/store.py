"""Token ids on disk, mapped into memory: a corpus takes as much memory as the pairs in use."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from jaxtyping import Int, Integer
from pydantic import Field, ValidationError

from transduce.config import Settings
from transduce.data.digest import file_digest
from transduce.data.folder import complete_folder
from transduce.errors import RunError

_IDS = "ids.bin"
_OFFSETS = "offsets.bin"
_RECORD = "store.json"
_OFFSET_TYPE = np.dtype("<i8")


class StoreRecord(Settings):
    """What `store.json` says about the two files beside it."""

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

    def __init__(
        self, record: StoreRecord, ids: Integer[np.ndarray, "tokens"], offsets: Int[np.ndarray, "ends"]
    ) -> None:
        self.record = record
        self._ids = ids
        self._offsets = offsets

    @classmethod
    def open(cls, folder: Path) -> "TokenStore":
        """The store in `folder`, after comparing its files with the sizes and digests in `store.json`.

        Raises:
            RunError: A file is missing, truncated or altered.
        """
        record = _read_record(folder / _RECORD)
        sizes = {
            _IDS: record.num_tokens * np.dtype(record.dtype).itemsize,
            _OFFSETS: (2 * record.num_pairs + 1) * _OFFSET_TYPE.itemsize,
        }
        for name, size in sizes.items():
            _check_file(folder / name, size, record.digests.get(name))
        # Plain views: slicing a np.memmap object costs several times as much as slicing an array.
        ids = np.asarray(np.memmap(folder / _IDS, dtype=record.dtype, mode="r"))
        offsets = np.asarray(np.memmap(folder / _OFFSETS, dtype=_OFFSET_TYPE, mode="r"))
        return cls(record, ids, offsets)

    def __len__(self) -> int:
        return self.record.num_pairs

    def source(self, index: int) -> Integer[np.ndarray, "source"]:
        """The source of pair `index`, `</s>` included."""
        return self._ids[self._offsets[2 * index] : self._offsets[2 * index + 1]]

    def target(self, index: int) -> Integer[np.ndarray, "target"]:
        """The target of pair `index`, `</s>` included."""
        return self._ids[self._offsets[2 * index + 1] : self._offsets[2 * index + 2]]

    @property
    def lengths(self) -> Int[np.ndarray, "pairs 2"]:
        """Tokens of source and target of every pair, `</s>` included; computed anew at every call."""
        return np.diff(self._offsets).reshape(-1, 2)


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
    """A writer of a new store beside `folder`, which appears when the block succeeds; if it fails, nothing is left."""
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
            digests={name: file_digest(path / name) for name in (_IDS, _OFFSETS)},
        )
        (path / _RECORD).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")


_REMEDY = "The folder is part of a cache: delete it, and it is made again from the text"


def _read_record(path: Path) -> StoreRecord:
    try:
        return StoreRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing, and a store of token ids has one. {_REMEDY}") from error
    except ValidationError as error:
        raise RunError(f"{path} does not describe a store of token ids: {error}. {_REMEDY}") from error


def _check_file(path: Path, size: int, digest: str | None) -> None:
    found = path.stat().st_size if path.is_file() else 0
    if found != size:
        raise RunError(f"{path} has {found} bytes and should have {size}. {_REMEDY}")
    if file_digest(path) != digest:
        raise RunError(f"{path} is not what was written. {_REMEDY}")
