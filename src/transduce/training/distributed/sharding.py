"""One model on several ranks: a copy on each of them (DDP), or a part of every tensor on each (FSDP2).

FSDP: Zhao et al. 2023. Sharded tensors are recognised by a method of theirs, as importing their class takes half a
second even where there is one device.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transduce.bundle import load_tensors, model_tensors
from transduce.data import Batch
from transduce.model import Transformer
from transduce.training.distributed.ranks import Ranks


def wrap_for_distributed(
    module: nn.Module, model: Transformer, sharding: str, ranks: Ranks, device: torch.device
) -> nn.Module:
    """Wrap `module` so that every backward pass ends in the mean gradient of all ranks.

    Args:
        module: contains `model`, takes a `Batch`, and returns a tuple that begins with the loss.
        model: with `sharding` "fsdp", each rank keeps its part of every parameter.
        sharding: "none" or "fsdp".
        ranks: with a single one, `module` is returned as it is.
        device: of the model.
    """
    if ranks.size == 1:
        return module
    if sharding == "none":
        parallel = DistributedDataParallel(module)
        parallel.broadcast_buffers = False  # they are constants
        # DDP orders what it sums by its first backward pass, and with three ranks or more the order decides rounding. A
        # first pass over a batch without a loss makes a resumed run sum in the same order.
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


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Keep gradients on the rank, to be summed over all ranks by a later backward pass outside of this context.

    With FSDP they are summed at once: unsharded gradients would take the memory that it saves.
    """
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """The unsharded tensor; of a sharded one, all ranks call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def distribute_like(tensor: Tensor, own: Tensor) -> Tensor:
    """This rank's part of an unsharded `tensor` if `own` is sharded; otherwise all of it, on the device of `own`."""
    tensor = tensor.to(own.device)
    if not (hasattr(own, "device_mesh") and hasattr(own, "placements")):
        return tensor
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - see above

    # None: each rank takes its part from its own copy, without communication.
    return distribute_tensor(tensor, own.device_mesh, own.placements, src_data_rank=None)


def gather_full_tensors(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """All tensors unsharded on the first rank, on the CPU if they were sharded; nothing on the other ranks."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        unsharded = full_tensor(tensor)
        if ranks.is_first:
            found[name] = tensor if unsharded is tensor else unsharded.cpu()
    return found


def gather_model(model: Transformer, ranks: Ranks) -> Transformer:
    """The model itself, or if it is sharded, on the first rank an unsharded copy; all ranks call this together."""
    if not is_sharded(model):
        return model
    weights = gather_full_tensors(model_tensors(model), ranks)
    if not ranks.is_first:
        return model
    copy = Transformer(model.config)
    load_tensors(copy, weights, "the sharded model")
    return copy.to(next(model.parameters()).device)
