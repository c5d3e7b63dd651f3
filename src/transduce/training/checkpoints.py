"""Checkpoints of a run: its state, and digests by which two runs are compared."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.bundle import (
    FileRecord,
    Shard,
    begin_checkpoint,
    collect_model_tensors,
    convert_shard_write_errors,
    finish_checkpoint,
    load_checkpoint,
    load_tensors,
    save_checkpoint,
    write_shard,
)
from transduce.data import Batch
from transduce.errors import RunError
from transduce.training.distributed import (
    SINGLE_RANK,
    Ranks,
    find_shard_rows,
    full_tensor,
    gather_full_tensors,
    get_shard,
    is_sharded,
    make_shard,
)
from transduce.training.distributed.batches import BatchPosition
from transduce.training.optimization.schedule import Decay
from transduce.training.optimization.updater import LossScale, Updater
from transduce.training.run_folder import RunFolder


def compute_batches_digest(before: str, batches: Iterable[Batch], ranks: Ranks = SINGLE_RANK) -> str:
    """SHA-256 of `before`, the digest of all earlier batches, and of shapes and ids of `batches`.

    Two runs with the same digest were trained on the same batches in the same order from the beginning. All ranks call
    this together; with several, the result is the digest of the ranks' own digests, in the order of the ranks.
    """
    for batch in batches:
        digest = hashlib.sha256(before.encode())
        for ids in (batch.source_ids, batch.target_ids):
            _add_to_digest(digest, ids)
        before = digest.hexdigest()
    if ranks.size == 1:
        return before
    own = torch.tensor(list(bytes.fromhex(before)), dtype=torch.uint8)
    return hashlib.sha256(torch.cat(ranks.gather(own)).numpy().data).hexdigest()


def compute_weights_digest(model: nn.Module) -> str:
    """SHA-256 of names, types, shapes and bytes of the parameters and running statistics.

    Of a sharded model, all ranks call this together.
    """
    digest = hashlib.sha256()
    for name, tensor in collect_model_tensors(model).items():
        digest.update(name.encode())
        _add_to_digest(digest, full_tensor(tensor.detach()))
    return digest.hexdigest()


def _add_to_digest(digest: "hashlib._Hash", tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


_EARLIER_FIELDS: Mapping[str, tuple[str, Callable[[int], int]]] = {
    "micro_batches": ("parallel_micro_batches", int),
    "memory_micro_batches": ("sequential_micro_batches", int),
    "stopgap": ("unscheduled", int),
    "superseded": ("replaced", int),
    "halvings": ("sequential_micro_batches", lambda exponent: 2**exponent),
}
"""Names of fields in checkpoints of earlier versions, each with the field of `RunState` that has replaced it and the
function that converts its value."""


@dataclass
class RunState:
    """The state of a run besides weights and optimiser; saved in every checkpoint.

    There is no random state: see `Updater.update`.
    """

    data: str
    """Digest of the prepared data, so that a run is not resumed with other data."""
    update: int = 0
    """Updates done."""
    place: BatchPosition = field(default_factory=BatchPosition)
    best: float | None = None
    """The best figure of validation so far, the first of `Validation.rank`, if there was one."""
    best_ties: list[float] = field(default_factory=list)
    """The other figures of `Validation.rank` for the best model, which break ties in `best`. Empty in old checkpoints:
    another model with the same `best` then counts as better."""
    best_single: float | None = None
    """The best figure of a validation during training, without the averages at the end: for early stopping."""
    best_single_ties: list[float] = field(default_factory=list)
    without_gain: int = 0
    """Validations in a row that were not better than `best_single`."""
    num_plateaus: int = 0
    """Plateaus of validation so far, each of which has lowered the learning rate of schedule = "plateau"."""
    seconds: float = 0.0
    """Seconds of training, over all sessions."""
    elapsed: float = 0.0
    """Seconds of the run over all sessions, including validations and all other work."""
    decay: Decay | None = None
    """The decay of schedule = "warmup_stable_decay", once `training.time_limit` has determined it."""
    finished: bool = False
    """Whether training ended; a run is resumed only with more `training.updates`."""
    unscheduled: int = 0
    """Update of an unscheduled checkpoint, made because the run was stopped; 0 if there is none."""
    replaced: int = 0
    """Update of the earlier unscheduled checkpoint that this checkpoint replaces; 0 if there is none."""
    skipped: int = 0
    """Updates that were skipped because their loss or gradient were not finite."""
    skipped_in_a_row: int = 0
    loss_scale: int = 1
    """Factor of the loss in the next backward pass in float16; see `LossScale`."""
    updates_at_loss_scale: int = 0
    """Updates since `loss_scale` was changed."""
    batches_digest: str = ""
    """Digest of all batches taken so far."""
    sequential_micro_batches: int = 1
    """Number of micro-batches that each batch is split into to fit into memory, computed one after the other; see
    `probe_memory` in memory.py."""
    start: str = ""
    """Digest of the weights that training started from; "" if they were random."""
    ranks: int = 1
    """Number of ranks with which the run began; the size of its batches stays the same with any other number."""
    parallel_micro_batches: int = 1
    """Number of micro-batches that each batch is split into to use all cores, computed at the same time by processes;
    see `choose_parallel_micro_batches` in micro_batches.py."""
    settings: str = ""
    """Digest of the settings that the run may not change (`compute_settings_digest`)."""

    def save(self, folder: RunFolder, updater: Updater) -> None:
        """Write the checkpoint of this update. All ranks call this together, and each writes its shards."""
        scale = updater.loss_scale
        self.loss_scale, self.updates_at_loss_scale = scale.factor, scale.num_updates
        parts = {"weights": collect_model_tensors(updater.model), "optimizer": _optimizer_tensors(updater)}
        if updater.moving_average is not None:
            parts["moving_average"] = collect_model_tensors(updater.moving_average.model)
        ranks = updater.ranks
        if is_sharded(updater.model) and not ranks.remote_hosts:
            self._save_shards(folder.checkpoints, parts, ranks)
        else:
            tensors = {part: gather_full_tensors(own, ranks) for part, own in parts.items()}
            if ranks.is_first:
                save_checkpoint(folder.checkpoints, self.update, tensors, asdict(self))
        ranks.wait_for_first()

    def _save_shards(self, folder: Path, parts: Mapping[str, Mapping[str, Tensor]], ranks: Ranks) -> None:
        """Write `parts`: each rank its shards, all at the same time, and the first rank the tensors without shards."""
        tensors = {
            part: {name: get_shard(one) for name, one in own.items() if ranks.is_first or get_shard(one) is not one}
            for part, own in parts.items()
        }
        writing = (
            begin_checkpoint(folder, self.update) if ranks.is_first else convert_shard_write_errors(folder, self.update)
        )
        shard = Shard(ranks.rank + 1, ranks.size)
        with writing as temporary:
            # The name alone: the folder may have another path on another machine.
            name = ranks.broadcast_text("" if temporary is None else temporary.name)
            files = {file: record.model_dump() for file, record in write_shard(folder / name, tensors, shard).items()}
            ranks.barrier()  # some disks are slow
            gathered = ranks.gather_texts(json.dumps(files))
            if temporary is not None:
                records = {file: FileRecord(**record) for text in gathered for file, record in json.loads(text).items()}
                finish_checkpoint(temporary, self.update, asdict(self), records)

    @classmethod
    def load(cls, folder: RunFolder, update: int, updater: Updater) -> "RunState":
        """Read the checkpoint of `update` into the model and the optimiser."""
        own = collect_model_tensors(updater.model)

        def find_rows(part: str, name: str, num_rows: int) -> slice:
            holder = own.get(name if part == "weights" else name.rpartition("/")[0])
            # A tensor of another model is read whole, and refused below.
            return slice(0, num_rows) if holder is None or len(holder) != num_rows else find_shard_rows(holder)

        tensors, state = load_checkpoint(folder.checkpoints, update, find_rows=find_rows)
        weights = {name: make_shard(tensor, own.get(name, tensor)) for name, tensor in tensors["weights"].items()}
        load_tensors(updater.model, weights, f"{folder.checkpoints}, update {update}")
        _load_optimizer(updater, tensors["optimizer"])
        if updater.moving_average is not None:
            load_tensors(updater.moving_average.model, tensors["moving_average"], f"the average of update {update}")
        values: dict[str, Any] = dict(state)
        for earlier_name, (name, convert) in _EARLIER_FIELDS.items():
            if earlier_name in values:
                values[name] = convert(values.pop(earlier_name))
        if unknown := values.keys() - {one.name for one in fields(cls)}:
            raise RunError(
                f"{folder.checkpoints}: update {update} was written by a later version of Transduce (unknown field "
                f"{min(unknown)!r}): resume with that version"
            )
        if values.get("decay") is not None:
            values["decay"] = Decay(**values["decay"])
        loaded = cls(**{**values, "place": BatchPosition(**values["place"])})
        updater.loss_scale = LossScale(loaded.loss_scale, loaded.updates_at_loss_scale)
        return loaded


def _optimizer_tensors(updater: Updater) -> dict[str, Tensor]:
    """The state of every parameter, by the parameter's name: Adam's two means and step count, or Muon's mean."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in updater.model.named_parameters()}
    return {
        f"{names[parameter]}/{kind}": value
        for optimizer in updater.optimizers
        for parameter, kinds in optimizer.state.items()
        for kind, value in kinds.items()
    }


def _load_optimizer(updater: Updater, tensors: dict[str, Tensor]) -> None:
    parameters = dict(updater.model.named_parameters())
    optimizers: dict[Tensor, torch.optim.Optimizer] = {}
    for optimizer in updater.optimizers:
        optimizer.state.clear()
        optimizers |= {parameter: optimizer for group in optimizer.param_groups for parameter in group["params"]}
    for key, value in tensors.items():
        name, kind = key.rsplit("/", 1)
        if kind == "step":
            # Adam counts its steps on the CPU, but in its fused form, which wants the count beside the parameter.
            fused = updater.adam.defaults["fused"]
            placed = value.to(parameters[name].device if fused else "cpu")
        else:
            placed = make_shard(value, parameters[name])
        optimizers[parameters[name]].state[parameters[name]][kind] = placed.to(torch.float32)
