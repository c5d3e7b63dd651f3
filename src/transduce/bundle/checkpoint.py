"""Checkpoints: everything that a run needs to continue exactly, in one folder for each update.

Ranks that each hold a shard of every tensor may each write a file of their own: the first rows of a tensor are in the
first file, the next ones in the second, and so on.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from pydantic import Field, JsonValue
from safetensors import SafetensorError
from torch import Tensor

from transduce.bundle.manifest import (
    FileRecord,
    FolderDescription,
    check_files,
    read_description,
    record_files,
    serialize_description,
)
from transduce.bundle.weights import read_tensors, write_tensors
from transduce.errors import BundleError
from transduce.storage import flush_to_disk, make_write_error, recover_folders, remove_folder, replace_folder

DESCRIPTION = "checkpoint.json"
SUFFIX = ".safetensors"
NAMES = r"\d{9,}"
"""Names of checkpoints: the update in nine digits or more."""

_SHARD_NAME = re.compile(r"(\w+)\.(\d+)of(\d+)")
"""File names of shards without ".safetensors": part, number and total, as in "weights.1of2" for the first of two."""

Tensors = Mapping[str, Mapping[str, Tensor]]
"""Named tensors for each part of a checkpoint, as in "weights" and "optimizer"."""


class Shard(NamedTuple):
    """Which shard of every tensor: `number`, from 1, of `total`."""

    number: int = 1
    total: int = 1


UNSHARDED = Shard()
"""The only shard of tensors that are not divided."""

FindRows = Callable[[str, str, int], slice]
"""The rows that are needed of a tensor, by its part, its name and its number of rows."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint known to be undamaged, without its tensors."""

    update: int
    state: dict[str, JsonValue]


class CheckpointDescription(FolderDescription):
    """The content of checkpoint.json."""

    format: Literal["transduce checkpoint"] = "transduce checkpoint"
    """Marks the folder as a checkpoint."""

    format_version: Literal[1, 2, 3] = 3
    """Version of the folder's layout: 3 if it has shards."""

    update: int = Field(ge=0)
    """Optimiser steps done."""

    state: dict[str, JsonValue]
    """What the run needs besides tensors to continue, such as the epoch, the position in it and the best score."""

    state_sha256: str
    """SHA-256 of `state` as JSON with sorted keys: the other files have theirs in `files`."""


def save_checkpoint(folder: Path, update: int, tensors: Tensors, state: Mapping[str, JsonValue]) -> Path:
    """Write `folder/<update in nine digits>`, completely or not at all, and return it.

    Args:
        folder: the checkpoints of the run.
        update: optimiser steps done.
        tensors: each part becomes a safetensors file.
        state: finite numbers, strings, lists and mappings.

    Raises:
        WriteError: writing failed; a checkpoint that was there before is still there.
    """
    with begin_checkpoint(folder, update) as temporary:
        finish_checkpoint(temporary, update, state, write_shard(temporary, tensors))
    return _checkpoint_folder(folder, update)


def begin_checkpoint(folder: Path, update: int) -> AbstractContextManager[Path]:
    """Make a temporary folder for the files of a checkpoint, which becomes the checkpoint at the end of the block.

    Raises:
        WriteError: writing failed; a checkpoint that was there before is still there.
    """
    return replace_folder(_checkpoint_folder(folder, update), marker=DESCRIPTION)


@contextmanager
def convert_shard_write_errors(folder: Path, update: int) -> Iterator[None]:
    """Let the block write into the folder that another process has from `begin_checkpoint`.

    Raises:
        WriteError: the block failed to write.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise make_write_error(_checkpoint_folder(folder, update), error) from error


def write_shard(temporary: Path, tensors: Tensors, shard: Shard = UNSHARDED) -> dict[str, FileRecord]:
    """Write all tensors, or one shard of each, into the folder of `begin_checkpoint`; returns what it has written.

    Args:
        temporary: the folder.
        tensors: each part becomes a safetensors file. A tensor that is not sharded belongs to the first shard alone.
        shard: which shard of the whole tensors `tensors` has.

    Raises (outside of `begin_checkpoint` and `convert_shard_write_errors`):
        OSError, SafetensorError: writing failed.
    """
    ending = "" if shard == UNSHARDED else f".{shard.number}of{shard.total}"
    names = {part: f"{part}{ending}{SUFFIX}" for part in tensors}
    for part, name in names.items():
        write_tensors(temporary / name, tensors[part])
        flush_to_disk(temporary / name)  # by this process, whose machine may be another one than the folder's
    return record_files(temporary, names.values())


def finish_checkpoint(
    temporary: Path, update: int, state: Mapping[str, JsonValue], files: Mapping[str, FileRecord]
) -> None:
    """Describe the files of all shards in the folder of `begin_checkpoint`: the last step."""
    is_sharded = any(_SHARD_NAME.fullmatch(name.removesuffix(SUFFIX)) for name in files)
    description = CheckpointDescription(
        format_version=3 if is_sharded else 2,
        update=update,
        state=dict(state),
        state_sha256=_compute_state_digest(state),
        files=dict(files),
    )
    (temporary / DESCRIPTION).write_bytes(serialize_description(description))


def list_checkpoints(folder: Path) -> list[int]:
    """Updates of the checkpoints in `folder`, ascending, damaged ones among them; their files are not read yet."""
    if not folder.is_dir():
        return []
    return sorted(
        int(path.name) for path in folder.iterdir() if re.fullmatch(NAMES, path.name, re.ASCII) and path.is_dir()
    )


def has_checkpoint(folder: Path) -> bool:
    """Whether `folder` has a checkpoint, or one that a process killed while replacing it has set aside."""
    return bool(list_checkpoints(folder)) or any(folder.glob("[0-9]*.transduce-old-*"))


def _take_all(part: str, name: str, num_rows: int) -> slice:  # noqa: ARG001 - it is one of several
    return slice(0, num_rows)


def load_checkpoint(
    folder: Path, update: int, parts: Collection[str] | None = None, find_rows: FindRows = _take_all
) -> tuple[dict[str, dict[str, Tensor]], dict[str, JsonValue]]:
    """Load tensors, by part, and state of a checkpoint, after checking the digest of every file.

    Args:
        folder: the checkpoints of the run.
        update: optimiser steps done.
        parts: the parts to load; default: all.
        find_rows: the rows to load of each tensor that has any; default: all.

    Raises:
        BundleError: the checkpoint is missing, incomplete or damaged; names the file.
    """
    place = _checkpoint_folder(folder, update)
    description = _verify_checkpoint(place, update)
    files = _list_shards(place, description)
    for part in parts or []:
        if part not in files:
            raise BundleError(f"{place}: the checkpoint has no part {part!r}; it has {list(files)}")
    tensors = {
        part: _read_shards(part, paths, find_rows) for part, paths in files.items() if parts is None or part in parts
    }
    return tensors, description.state


def _list_shards(place: Path, description: CheckpointDescription) -> dict[str, list[Path]]:
    """The files of each part, those of shards in their order."""
    found: dict[str, dict[Shard, Path]] = defaultdict(dict)
    for name in description.files:
        stem = name.removesuffix(SUFFIX)
        match = _SHARD_NAME.fullmatch(stem)
        part, shard = (match[1], Shard(int(match[2]), int(match[3]))) if match else (stem, UNSHARDED)
        found[part][shard] = place / name
    for part, shards in found.items():
        total = len(shards)
        if sorted(shards) != [Shard(number, total) for number in range(1, total + 1)]:
            raise BundleError(
                f"{place / DESCRIPTION}: lists {', '.join(path.name for path in shards.values())}, which are not all "
                f"shards of {part}: the checkpoint is damaged or was changed; use an undamaged copy"
            )
    return {part: [shards[shard] for shard in sorted(shards)] for part, shards in found.items()}


def _read_shards(part: str, paths: Sequence[Path], find_rows: FindRows) -> dict[str, Tensor]:
    """Copies of the rows of all tensors: training goes on with them long after the files are removed."""
    shards = [read_tensors(path) for path in paths]
    tensors = {}
    for name, first in shards[0].items():
        pieces = [shard[name] for shard in shards if name in shard]
        if len(pieces) not in {1, len(shards)} or any(
            (piece.dtype, piece.shape[1:]) != (first.dtype, first.shape[1:]) for piece in pieces
        ):
            raise BundleError(f"{paths[0]}: {name!r} does not fit that of the other shards: use an undamaged copy")
        if first.dim() == 0:
            tensors[name] = first.clone()
            continue
        rows = find_rows(part, name, sum(len(piece) for piece in pieces))
        taken, start = [], 0
        for piece in pieces:
            taken.append(piece[max(0, rows.start - start) : max(0, rows.stop - start)])
            start += len(piece)
        tensors[name] = torch.cat(taken)
    return tensors


def find_latest_checkpoint(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The latest checkpoint whose files are all undamaged; None if there is none.

    `report` receives a message about every damaged checkpoint that is passed over.
    """
    for update in reversed(list_checkpoints(folder)):
        try:
            return Checkpoint(update, _verify_checkpoint(_checkpoint_folder(folder, update), update).state)
        except BundleError as error:
            report(f"the checkpoint of update {update} is passed over: {error}")
    return None


def remove_checkpoints(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the `keep` latest."""
    updates = list_checkpoints(folder)
    for update in updates[: max(len(updates) - keep, 0)]:
        remove_folder(_checkpoint_folder(folder, update))


def recover_checkpoints(folder: Path) -> None:
    """Recover checkpoints in `folder` after a crash; the caller makes sure that no other process writes there."""
    if folder.is_dir():
        recover_folders(folder, NAMES)


def _checkpoint_folder(folder: Path, update: int) -> Path:
    return folder / f"{update:09d}"


def _verify_checkpoint(place: Path, update: int) -> CheckpointDescription:
    description = read_description(place / DESCRIPTION, CheckpointDescription)
    if description.update != update:
        raise BundleError(
            f"{place / DESCRIPTION}: the checkpoint is of update {description.update}, its folder is {place.name}: "
            f"it was renamed; give it back its name"
        )
    if _compute_state_digest(description.state) != description.state_sha256:
        raise BundleError(
            f"{place / DESCRIPTION}: its state is not the one that was saved: the checkpoint is damaged or was "
            f"changed; use an undamaged copy"
        )
    check_files(place, description, DESCRIPTION)
    _list_shards(place, description)
    return description


def _compute_state_digest(state: Mapping[str, JsonValue]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
