"""The order of channels in a network, and the tables of positions on which it depends.

The paper's positions (3.5) interleave sines and cosines: the sine of a frequency is at an even channel, its cosine at
the next one. Marian and its descendants split the channels: all sines come before all cosines. Nothing else in the
network depends on the order of the d_model channels between the layers. If the rows or columns of all matrices that
write or read these channels are reordered accordingly, both are the same model with the same numbers.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.model import sinusoids

# By the ends of the names of a bundle's tensors: those whose columns are these channels, those whose rows are, and all
# others.
_COLUMNS = ("embedding.weight", "positions.table", "projection.weight", "inner.weight", "gate.weight")
_ROWS = (
    *("output.weight", "output.bias", "outer.weight", "outer.bias"),
    *("gain", "normalization.bias", "final.bias", "running_mean", "running_variance"),
)
_NEITHER = (
    *("projection.bias", "inner.bias", "gate.bias", "query_weight", "key_weight", "hidden_weight"),
    *("relative_keys", "relative_values"),
)


def split_channels(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a bundle with split channels: all even channels, then all odd ones.

    Raises:
        ValueError: a name is not that of a bundle's tensor.
    """
    return {name: _reorder_channels(name, tensor, back=False) for name, tensor in tensors.items()}


def interleave_channels(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `split_channels`."""
    return {name: _reorder_channels(name, tensor, back=True) for name, tensor in tensors.items()}


def _reorder_channels(name: str, tensor: Tensor, *, back: bool) -> Tensor:
    axis = _channel_axis(name)
    if axis is None:
        return tensor
    interleaved = torch.arange(tensor.size(axis))
    split = torch.cat([interleaved[0::2], interleaved[1::2]])
    return tensor.index_select(axis, split.argsort() if back else split)


def _channel_axis(name: str) -> int | None:
    """The axis of the channels in the tensor of this name; None if it has no such axis."""
    if name.endswith(_COLUMNS):
        return 1
    if name.endswith(_ROWS):
        return 0
    if name.endswith(_NEITHER):
        return None
    raise ValueError(f"{name}: is not the name of a tensor in a bundle")


_MAX_DIFFERENCE = 1e-6
"""The largest difference between sinusoids that two programs have computed."""


def classify_positions(
    table: Float[Tensor, "positions d_model"], *, is_split: bool = True, rounding: float = 0.0
) -> str:
    """The kind of a table of positions as in `model.positions`: "sinusoidal", "none" if all is zero, or else "learned".

    Args:
        table: the numbers that are added to embeddings.
        is_split: whether all sines come before all cosines.
        rounding: the largest rounding error of a number.
    """
    if not table.any():
        return "none"
    if table.size(1) % 2:
        return "learned"
    ours = sinusoids(*table.shape)
    if is_split:
        ours = split_channels({"positions.table": ours})["positions.table"]
    return "sinusoidal" if torch.allclose(table, ours, rtol=0, atol=max(rounding, _MAX_DIFFERENCE)) else "learned"


def compute_tensor2tensor_sinusoids(length: int, d_model: int, start: int = 0) -> Float[Tensor, "{length} {d_model}"]:
    """The positions of Tensor2Tensor and Marian: float32, sines before cosines, frequencies from 1 to 1/10000 itself.

    The paper's last frequency is a little higher, as are those that Transformers and CTranslate2 take for Marian's.
    """
    half = d_model // 2
    steps = torch.arange(half, dtype=torch.float32) * -(math.log(10_000) / max(half - 1, 1))
    angles = torch.arange(start, start + length, dtype=torch.float32)[:, None] * steps.exp()
    return torch.cat([angles.sin(), angles.cos()], dim=1)
