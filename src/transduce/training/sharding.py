"""One model on several ranks: whole on each of them (DDP), or a part of every tensor on each (FSDP2).

FSDP: Zhao et al. 2023. Its tensors are known here by a method of theirs: to import their class takes half a second,
which all who train on one device would pay.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transduce.bundle import load_tensors, model_tensors
from transduce.data import Batch
from transduce.model import Transformer
from transduce.training.ranks import Ranks


def spread(module: nn.Module, model: Transformer, sharding: str, ranks: Ranks, device: torch.device) -> nn.Module:
    """What to call instead of `module`, so that every backward pass ends in the mean gradient of all ranks.

    Args:
        module: what is called in training: it contains `model`, takes a `Batch`, and returns its loss first.
        model: with `sharding` "fsdp", its parameters are replaced: each rank keeps its part of them.
        sharding: "none" or "fsdp".
        ranks: if there is one only, nothing changes.
        device: where the model lies.
    """
    if ranks.size == 1:
        return module
    if sharding == "none":
        parallel = DistributedDataParallel(module)
        parallel.broadcast_buffers = False  # they are constants
        # DDP orders what it sums by its first backward pass, and rounding depends on the order where there are three
        # ranks or more. One that counts for nothing comes first, so that a run that is resumed sums as before.
        parallel(Batch.from_ids([[0]], [[0]], model.pad_id).mask_loss().to(device))[0].backward()
        parallel.zero_grad()
        return parallel
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - see above
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - see above

    mesh = init_device_mesh(device.type, (ranks.size,))
    for layer in (*model.encoder.layers, *model.decoder.layers):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def is_sharded(module: nn.Module) -> bool:
    """Whether each rank holds but a part of the weights."""
    return any(hasattr(parameter, "full_tensor") for parameter in module.parameters())


def summed_later(module: nn.Module) -> AbstractContextManager[None]:
    """Within, gradients stay with the rank, to be summed over all by a later backward pass.

    With FSDP they are summed at once: kept whole until then, they would take the memory that it saves.
    """
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """The tensor, in one piece if each rank has a part of it; then all of them must call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def placed_like(tensor: Tensor, own: Tensor) -> Tensor:
    """Of a `tensor` in one piece this rank's part, if `own` is one; otherwise all of it, on the device of `own`."""
    tensor = tensor.to(own.device)
    if not (hasattr(own, "device_mesh") and hasattr(own, "placements")):
        return tensor
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - see above

    # None: each rank cuts its part out of its own copy, and nobody sends anything.
    return distribute_tensor(tensor, own.device_mesh, own.placements, src_data_rank=None)


def gathered(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """All tensors in one piece on the first rank, those that were in parts on the CPU; none on the others."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        one_piece = whole(tensor)
        if ranks.is_first:
            found[name] = tensor if one_piece is tensor else one_piece.cpu()
    return found


def whole_model(model: Transformer, ranks: Ranks) -> Transformer:
    """The model in one piece: itself, or if it is sharded a copy on the first rank, made by all; elsewhere itself."""
    if not is_sharded(model):
        return model
    weights = gathered(model_tensors(model), ranks)
    if not ranks.is_first:
        return model
    copy = Transformer(model.config)
    load_tensors(copy, weights, "the sharded model")
    return copy.to(next(model.parameters()).device)
