"""Digests by which two runs are compared line by line: of all batches so far, and of the weights now."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from transduce.bundle import model_tensors
from transduce.data import Batch


def batches_digest(before: str, batches: Iterable[Batch]) -> str:
    """SHA-256, in hexadecimal, of `before`, the digest of all earlier batches, and of shapes and ids of `batches`.

    A chain: two runs with the same digest were trained on the same batches in the same order from the beginning.
    """
    for batch in batches:
        digest = hashlib.sha256(before.encode())
        for ids in (batch.source_ids, batch.target_ids):
            _add(digest, ids)
        before = digest.hexdigest()
    return before


def weights_digest(model: nn.Module) -> str:
    """SHA-256, in hexadecimal, of names, types, shapes and bytes of the parameters and running statistics."""
    digest = hashlib.sha256()
    for name, tensor in model_tensors(model).items():
        digest.update(name.encode())
        _add(digest, tensor.detach())
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
