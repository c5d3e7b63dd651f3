"""Checkpoints of a run: its state, digests by which two runs are compared, and averages of checkpoints."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from transduce.bundle import (
    load_checkpoint,
    load_tensors,
    model_tensors,
    save_checkpoint,
)
from transduce.data import Batch
from transduce.errors import RunError
from transduce.training.distributed.batch_stream import Place
from transduce.training.distributed.ranks import ALONE, Ranks
from transduce.training.distributed.sharding import gathered, placed_like, whole
from transduce.training.run_folder import RunFolder
from transduce.training.schedule import Decay
from transduce.training.updater import Updater


def batches_digest(before: str, batches: Iterable[Batch], ranks: Ranks = ALONE) -> str:
    """SHA-256, in hexadecimal, of `before`, the digest of all earlier batches, and of shapes and ids of `batches`.

    A chain: two runs with the same digest were trained on the same batches in the same order from the beginning. Of
    several ranks, which call this together, it is the SHA-256 of what each has for its own batches, in their order.
    """
    for batch in batches:
        digest = hashlib.sha256(before.encode())
        for ids in (batch.source_ids, batch.target_ids):
            _add(digest, ids)
        before = digest.hexdigest()
    if ranks.size == 1:
        return before
    own = torch.tensor(list(bytes.fromhex(before)), dtype=torch.uint8)
    return hashlib.sha256(torch.cat(ranks.gather(own)).numpy().data).hexdigest()


def weights_digest(model: nn.Module) -> str:
    """SHA-256, in hexadecimal, of names, types, shapes and bytes of the parameters and running statistics.

    Of a sharded model they are put together: all ranks must call this together.
    """
    digest = hashlib.sha256()
    for name, tensor in model_tensors(model).items():
        digest.update(name.encode())
        _add(digest, whole(tensor.detach()))
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


@dataclass
class RunState:
    """What a checkpoint holds beside weights and optimiser. There is no random state: see `Updater.update`.

    Args:
        update: updates done.
        place: where the next batch is.
        best: the best figure of validation so far (`Validation.quality`), if there was one.
        best_ties: what decides between that model and another of the same figure (`Validation.ties`); empty in
            checkpoints of earlier versions, which any other model of the same figure is better than.
        best_single: the best figure of the models themselves, without averages: what patience looks at.
        best_single_ties: like `best_ties`, of that model.
        without_gain: validations in a row that were not better than that model.
        seconds: of training, over all sittings.
        elapsed: seconds of the run over all sittings, validations and all else included.
        decay: of schedule = "warmup_stable_decay", where `training.time_limit` has decided it; None as long as it has
            not.
        finished: nothing is left to do, unless `training.updates` is raised.
        stopgap: update of a checkpoint that was not due, but made because the run was stopped; 0 if there is none.
        superseded: update of the earlier such checkpoint that this one takes the place of; 0 if there is none.
        skipped: updates that were skipped because their loss or gradient were not finite.
        skipped_in_a_row: how many of them were the last updates.
        batches_digest: of all batches taken so far (`digests.batches_digest`).
        halvings: how often `batch_tokens` is halved to fit into memory; see `probe`.
        data: digest of the prepared data, so that other data cannot slip in.
        start: digest of the weights that training started from; "" if they were random.
        ranks: with which the run began. Its batches keep the size they had then, however many ranks share them now.
        micro_batches: into how many each batch is divided, to compute them side by side; see `micro_batches`.
        settings: digest of the settings that the run may not change (`settings_digest`).
    """

    data: str
    update: int = 0
    place: Place = field(default_factory=Place)
    best: float | None = None
    best_ties: list[float] = field(default_factory=list)
    best_single: float | None = None
    best_single_ties: list[float] = field(default_factory=list)
    without_gain: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0
    decay: Decay | None = None
    finished: bool = False
    stopgap: int = 0
    superseded: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    batches_digest: str = ""
    halvings: int = 0
    start: str = ""
    ranks: int = 1
    micro_batches: int = 1
    settings: str = ""

    def save(self, folder: RunFolder, updater: Updater) -> None:
        """Write the checkpoint of this update: all ranks together, by the hands of the first."""
        parts = {"weights": model_tensors(updater.model), "optimizer": _optimizer_tensors(updater)}
        if updater.moving_average is not None:
            parts["moving_average"] = model_tensors(updater.moving_average.model)
        tensors = {part: gathered(own, updater.ranks) for part, own in parts.items()}
        if updater.ranks.is_first:
            save_checkpoint(folder.checkpoints, self.update, tensors, asdict(self))
        updater.ranks.wait()

    @classmethod
    def load(cls, folder: RunFolder, update: int, updater: Updater) -> "RunState":
        """Read the checkpoint of `update` into the model and the optimiser."""
        tensors, state = load_checkpoint(folder.checkpoints, update)
        own = model_tensors(updater.model)
        weights = {name: placed_like(tensor, own.get(name, tensor)) for name, tensor in tensors["weights"].items()}
        load_tensors(updater.model, weights, f"{folder.checkpoints}, update {update}")
        _load_optimizer(updater, tensors["optimizer"])
        if updater.moving_average is not None:
            load_tensors(updater.moving_average.model, tensors["moving_average"], f"the average of update {update}")
        values: dict[str, Any] = dict(state)
        if unknown := values.keys() - {one.name for one in fields(cls)}:
            raise RunError(
                f"{folder.checkpoints}: update {update} was written by a later version of Transduce (it says "
                f"{min(unknown)!r}): go on with that one"
            )
        if values.get("decay") is not None:
            values["decay"] = Decay(**values["decay"])
        return cls(**{**values, "place": Place(**values["place"])})


def _optimizer_tensors(updater: Updater) -> dict[str, Tensor]:
    """Adam's two means and step count of every parameter, by the parameter's name."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in updater.model.named_parameters()}
    return {
        f"{names[parameter]}/{kind}": value
        for parameter, kinds in updater.optimizer.state.items()
        for kind, value in kinds.items()
    }


def _load_optimizer(updater: Updater, tensors: dict[str, Tensor]) -> None:
    parameters = dict(updater.model.named_parameters())
    updater.optimizer.state.clear()
    for key, value in tensors.items():
        name, kind = key.rsplit("/", 1)
        if kind == "step":
            # Adam counts its steps on the CPU, but in its fused form, which wants the count beside the parameter.
            fused = updater.optimizer.defaults["fused"]
            placed = value.to(parameters[name].device if fused else "cpu")
        else:
            placed = placed_like(value, parameters[name])
        updater.optimizer.state[parameters[name]][kind] = placed.to(torch.float32)
