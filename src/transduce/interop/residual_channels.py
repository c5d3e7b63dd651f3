"""Two orders of the d_model channels between the layers: sines and cosines in turn, or in two halves.

The paper's positions (3.5) have the sine of a frequency at an even channel and its cosine at the next one. Marian, and
what descends from it, has first all sines, then all cosines, of the same frequencies. Nothing else in the network
depends on the order of these channels: with the rows or columns of every matrix that writes or reads them rearranged in
the same way, both are the same model, and no number changes.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

# By the ends of the names of a bundle's tensors: those whose columns are these channels, whose rows, and all others.
_COLUMNS = ("embedding.weight", "positions.table", "projection.weight", "inner.weight")
_ROWS = (
    *("output.weight", "output.bias", "outer.weight", "outer.bias"),
    *("gain", "normalization.bias", "final.bias", "running_mean", "running_variance"),
)
_NEITHER = ("projection.bias", "inner.bias", "query_weight", "key_weight", "hidden_weight")


def in_halves(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a bundle with their channels in two halves instead of in turn.

    Raises:
        ValueError: a name is not that of a bundle's tensor.
    """
    return {name: _rearranged(name, tensor, back=False) for name, tensor in tensors.items()}


def in_turn(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `in_halves`: tensors under the names of a bundle's, their channels in turn instead of in halves.

    Raises:
        ValueError: a name is not that of a bundle's tensor.
    """
    return {name: _rearranged(name, tensor, back=True) for name, tensor in tensors.items()}


def _rearranged(name: str, tensor: Tensor, *, back: bool) -> Tensor:
    axis = _axis(name)
    if axis is None:
        return tensor
    halves = _halves(tensor.size(axis))
    return tensor.index_select(axis, halves.argsort() if back else halves)


def _axis(name: str) -> int | None:
    """The axis along which the channels lie in the tensor of this name, if any."""
    if name.endswith(_COLUMNS):
        return 1
    if name.endswith(_ROWS):
        return 0
    if name.endswith(_NEITHER):
        return None
    raise ValueError(f"{name}: is not the name of a tensor of a bundle")


def _halves(d_model: int) -> Int[Tensor, " {d_model}"]:
    """For each place in the order of halves, the place in turn: even ones, then odd ones."""
    in_order = torch.arange(d_model)
    return torch.cat([in_order[0::2], in_order[1::2]])
