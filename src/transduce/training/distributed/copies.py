"""Copies of the first rank's files for machines that cannot see the run's folder, sent over the process group.

On each of these machines one rank writes the files into the folder of prepared data (`data.cache`), and compares each
file with its SHA-256. Copies of prepared data stay there for later runs; copies of the metrics, the checkpoint and the
bundle that the run starts from are removed once they have been read.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist

from transduce.bundle import Bundle, find_latest_checkpoint
from transduce.config import RunConfig
from transduce.data import (
    PreparedData,
    explain_cache_errors,
    find_prepared_folder,
    list_prepared_files,
    open_prepared_copy,
)
from transduce.errors import RunError, TrainingError
from transduce.storage import create_folder_atomically, scratch_folder, scratch_path
from transduce.training.distributed import Ranks
from transduce.training.run_folder import RunFolder

CHUNK = 2**24
"""Bytes that are sent at a time."""


def share_prepared_data(ranks: Ranks, config: RunConfig, prepare: Callable[[], PreparedData]) -> PreparedData:
    """Prepare the text on the first rank, and open the result on all ranks.

    Ranks that see the first rank's files call `prepare`, too, and find the result there; remote machines get copies.
    """
    prepared = None if ranks.is_remote else ranks.call_on_file_writers_first(prepare)
    if not ranks.remote_hosts:
        return _require_prepared_data(prepared)
    if ranks.is_remote:
        ranks.barrier()  # the counterpart of the barrier in `call_on_file_writers_first`
    digests = json.loads(ranks.broadcast_text("" if prepared is None else json.dumps(prepared.digests)))
    cache = config.cache_folder
    if ranks.is_remote and ranks.is_file_writer:
        prepared = open_prepared_copy(cache, config.data, digests)
    ranks.barrier()  # comparing digests takes time
    if ranks.any(ranks.is_file_writer and prepared is None):
        if ranks.is_first:
            _send_files(ranks, list_prepared_files(_require_prepared_data(prepared)))
        elif ranks.is_file_writer:
            with explain_cache_errors(cache):
                if prepared is None:
                    with create_folder_atomically(find_prepared_folder(cache, digests)) as folder:
                        _receive_files(ranks, folder)
                else:
                    with scratch_folder(cache, "copy") as folder:  # not needed, but all must receive
                        _receive_files(ranks, folder)
    ranks.barrier()
    if ranks.is_remote:
        prepared = open_prepared_copy(cache, config.data, digests)
    return _require_prepared_data(prepared)


def _require_prepared_data(prepared: PreparedData | None) -> PreparedData:
    if prepared is None:
        raise RunError("the copy of the prepared data is damaged: look for a disk or a program that changes its files")
    return prepared


@contextmanager
def share_run(
    ranks: Ranks, folder: RunFolder, cache: Path, start: Bundle | None, *, restart: bool
) -> Iterator[tuple[RunFolder, Bundle | None]]:
    """The run's folder and start bundle, from which this rank goes on; on remote machines, copies for the block.

    Args:
        ranks: all of them call this together.
        folder: the run's folder.
        cache: the folder for the copies.
        start: the bundle that the run starts from; None if there is none, or on a remote rank.
        restart: whether the run begins anew, so that metrics and checkpoints are not copied.
    """
    if not ranks.remote_hosts:
        yield folder, start
        return
    # One name on each machine: some may share a disk with each other.
    drawn = f"{ranks.broadcast_text(uuid4().hex)} {os.environ.get('GROUP_RANK', '0')}"
    name, unique = f"{folder.path.name}-copy", hashlib.sha256(drawn.encode()).hexdigest()[:12]
    files = _list_run_files(folder, start, restart=restart) if ranks.is_first else {}
    has_start = bool(int(ranks.broadcast_text(str(int(start is not None)))))
    copy = scratch_path(cache, name, unique)
    receives_copy = ranks.is_remote and ranks.is_file_writer
    with ExitStack() as at_end:
        if ranks.is_first:
            _send_files(ranks, files)
        elif receives_copy:
            with explain_cache_errors(cache):  # not around the block, whose errors may have other causes
                at_end.enter_context(scratch_folder(cache, name, unique))
                _receive_files(ranks, copy)
        ranks.barrier()
        if ranks.is_remote:
            yield RunFolder(copy), Bundle.open(copy / "start") if has_start else None
        else:
            yield folder, start
        ranks.barrier()  # so that all ranks have read the copy before it is removed


def _list_run_files(folder: RunFolder, start: Bundle | None, *, restart: bool) -> dict[str, Path]:
    """The files that a rank reads when training begins, by their paths in the copy.

    These are the metrics and the latest checkpoint, unless the run begins anew, and the bundle that it starts from.
    """
    places = {} if start is None else {"start": start.folder}
    files: dict[str, Path] = {}
    if not restart:
        if folder.metrics.path.exists():
            files[folder.metrics.path.name] = folder.metrics.path
        checkpoint = find_latest_checkpoint(folder.checkpoints, lambda _: None)
        if checkpoint is not None:
            name = f"{folder.checkpoints.name}/{checkpoint.update:09d}"
            places[name] = folder.path / name
    for name, place in places.items():
        files |= {f"{name}/{path.name}": path for path in sorted(place.iterdir()) if path.is_file()}
    return files


def _send_files(ranks: Ranks, files: Mapping[str, Path]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    _broadcast_bytes(ranks, json.dumps(sizes).encode())
    for name, path in files.items():
        digest, left = hashlib.sha256(), sizes[name]
        with path.open("rb") as file:
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk:
                    raise TrainingError(f"{path}: was truncated while it was sent to other machines: run again")
                digest.update(chunk)
                _broadcast(ranks, torch.frombuffer(bytearray(chunk), dtype=torch.uint8))
                left -= len(chunk)
        _broadcast(ranks, torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8))


def _receive_files(ranks: Ranks, folder: Path) -> None:
    sizes = json.loads(_broadcast_bytes(ranks, b""))
    for name, size in sizes.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise TrainingError(f"{name}: the first rank sends a file that would lie outside of {folder}")
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, left = hashlib.sha256(), size
        with path.open("wb") as file:
            while left:
                chunk = _broadcast(ranks, torch.empty(min(CHUNK, left), dtype=torch.uint8)).numpy().tobytes()
                digest.update(chunk)
                file.write(chunk)
                left -= len(chunk)
        if _broadcast(ranks, torch.empty(32, dtype=torch.uint8)).numpy().tobytes() != digest.digest():
            raise TrainingError(f"{path}: is not what the first rank has sent: the same command sends it again")


def _broadcast(ranks: Ranks, values: Tensor) -> Tensor:
    dist.broadcast(values, src=0, group=ranks.file_group)
    return values


def _broadcast_bytes(ranks: Ranks, content: bytes) -> bytes:
    size = int(_broadcast(ranks, torch.tensor(len(content))))
    values = torch.empty(size, dtype=torch.uint8)
    if ranks.is_first:
        values.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    return _broadcast(ranks, values).numpy().tobytes()
