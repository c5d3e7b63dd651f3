"""Checkpoints: everything that a run needs to continue exactly, in one folder for each update."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue
from torch import Tensor

from transduce.bundle.manifest import (
    FolderDescription,
    check_files,
    read_description,
    record_files,
    serialize_description,
)
from transduce.bundle.weights import read_tensors, write_tensors
from transduce.errors import BundleError
from transduce.storage import recover_folders, remove_folder, replace_folder

DESCRIPTION = "checkpoint.json"
SUFFIX = ".safetensors"
NAMES = r"\d{9,}"
"""Names of checkpoints: the update in nine digits or more."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint known to be undamaged, without its tensors."""

    update: int
    state: dict[str, JsonValue]


class CheckpointDescription(FolderDescription):
    """The content of checkpoint.json."""

    format: Literal["transduce checkpoint"] = "transduce checkpoint"
    """Marks the folder as a checkpoint."""

    format_version: Literal[1, 2] = 2
    """Version of the folder's layout."""

    update: int = Field(ge=0)
    """Optimiser steps done."""

    state: dict[str, JsonValue]
    """Whatever the run wants to know again: epoch, position in it, best score."""

    state_sha256: str
    """SHA-256 of `state` as JSON with sorted keys: the other files have theirs in `files`."""


def save_checkpoint(
    folder: Path, update: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, JsonValue]
) -> Path:
    """Write `folder/<update in nine digits>`, completely or not at all, and return it.

    Args:
        folder: the checkpoints of the run.
        update: optimiser steps done.
        tensors: named tensors for each part, as in "weights" and "optimizer"; a part becomes a safetensors file.
        state: finite numbers, strings, lists and mappings.

    Raises:
        WriteError: writing failed; a checkpoint that was there before is still there.
    """
    place = _checkpoint_folder(folder, update)
    with replace_folder(place, marker=DESCRIPTION) as temporary:
        for part, part_tensors in tensors.items():
            write_tensors(temporary / f"{part}{SUFFIX}", part_tensors)
        files = record_files(temporary, [f"{part}{SUFFIX}" for part in tensors])
        digest = _compute_state_digest(state)
        description = CheckpointDescription(update=update, state=dict(state), state_sha256=digest, files=files)
        (temporary / DESCRIPTION).write_bytes(serialize_description(description))
    return place


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


def load_checkpoint(
    folder: Path, update: int, parts: Collection[str] | None = None
) -> tuple[dict[str, dict[str, Tensor]], dict[str, JsonValue]]:
    """Load tensors, by part, and state of a checkpoint, after checking the digest of every file.

    Only `parts` are loaded if they are given.

    Raises:
        BundleError: the checkpoint is missing, incomplete or damaged; names the file.
    """
    place = _checkpoint_folder(folder, update)
    description = _verify_checkpoint(place, update)
    there = [name.removesuffix(SUFFIX) for name in description.files]
    for part in parts or []:
        if part not in there:
            raise BundleError(f"{place}: the checkpoint has no part {part!r}; it has {there}")
    wanted = [part for part in there if parts is None or part in parts]
    # Copies: training goes on with them long after the checkpoint, and with it the file, is removed.
    copies = {
        part: {name: tensor.clone() for name, tensor in read_tensors(place / f"{part}{SUFFIX}").items()}
        for part in wanted
    }
    return copies, description.state


def latest_checkpoint(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
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
    return description


def _compute_state_digest(state: Mapping[str, JsonValue]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
