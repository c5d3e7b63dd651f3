"""Digests by which two runs are compared line by line: of all batches so far, and of the weights now."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from transduce.bundle import model_tensors
from transduce.data import Batch
from transduce.training.ranks import ALONE, Ranks
from transduce.training.sharding import whole


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
