"""One model from several: the mean of their weights."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from transduce.bundle.weights import check_tensors
from transduce.errors import UserError


def average_weights(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, as the paper averages its last checkpoints (6.1).

    Sums are kept in float64. Integers, which count something, are the last model's.

    Args:
        models: tensors by name; taken one after the other, so that a generator never has all of them in memory.

    Raises:
        BundleError: names, shapes or types differ from the first model's.
        UserError: there is no model.
    """
    sums: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for count, tensors in enumerate(models, start=1):
        check_tensors(tensors, last or tensors, f"model {count} of those to average")
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                double = tensor.detach().to("cpu", torch.float64, copy=True)
                sums[name] = sums[name].add_(double) if name in sums else double
        last = tensors
    if not count:
        raise UserError("there are no weights to average: give at least one model")
    return {
        name: (sums[name] / count).to(tensor.dtype) if name in sums else tensor.detach().clone()
        for name, tensor in last.items()
    }
