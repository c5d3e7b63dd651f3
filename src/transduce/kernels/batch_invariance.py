"""Operations whose result for a sentence does not depend on the other sentences of its batch: padding and products in
float32 on a CPU without gradients.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

ROW_PADDING_MULTIPLE = 4
"""Number of rows that matrix libraries process together; remaining rows may be rounded differently: see `linear`."""

MIN_MULTIPLICATIONS = 400
"""Multiplications of the smallest product of matrices that PyTorch adds up as it does larger ones."""

KEY_PADDING_MULTIPLE = 16
"""Numbers in the widest SIMD register. Keys are padded to a multiple of it: softmax sums a partial register in a
different order, which changes rounding."""

WIDTH_MULTIPLE = 4
"""Widths of heads, and of the inputs of `linear`, are padded to a multiple of this: for others, the way in which matrix
libraries multiply, and so rounding, depends on the number of matrices or rows."""

SIMD_PADDING_MULTIPLE = 32
"""Numbers that PyTorch's elementwise functions compute at once; what is left over at the end is rounded otherwise."""


def needs_batch_invariance(inputs: Tensor) -> bool:
    """Whether results for a sentence must not depend on its batch: in float32 on a CPU, outside of training."""
    return inputs.dtype == torch.float32 and inputs.device.type == "cpu" and not torch.is_grad_enabled()


def linear(
    inputs: Float[Tensor, "*batch width"],
    weight: Float[Tensor, "outputs width"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*batch outputs"]:
    """The product x W^T + b; in float32 on a CPU without gradients, a row's result is independent of the other rows.

    Matrix libraries process rows in groups of four. The one to three remaining rows, of all or of one thread's share,
    may be summed in another order and round differently, so zero rows are appended up to a multiple of four, and zeros
    to each row, as for `pad_width`.
    """
    if not needs_batch_invariance(inputs):
        return F.linear(inputs, weight, bias)
    width = inputs.size(-1)
    num_rows = inputs.numel() // width
    missing, more = -num_rows % ROW_PADDING_MULTIPLE, -width % WIDTH_MULTIPLE
    if not missing and not more and inputs.is_contiguous():
        return F.linear(inputs, weight, bias)
    rows = F.pad(inputs.reshape(num_rows, width), (0, more, 0, missing))
    if more:
        weight = F.pad(weight, (0, more))
    return F.linear(rows, weight, bias)[:num_rows].view(*inputs.shape[:-1], len(weight))


def count_padding(inputs: Tensor, size: int, multiple: int) -> int:
    """By how much `size` is to be padded, so that the result for a sentence does not depend on its batch (`linear`).

    0 where that is not required.

    Args:
        inputs: what is padded; its type, its device and whether gradients are recorded decide.
        size: size of the axis that is padded.
        multiple: size is padded to a multiple of this.
    """
    missing = -size % multiple
    return missing if missing and needs_batch_invariance(inputs) else 0


def compute_elementwise(
    function: Callable[[Tensor], Tensor], inputs: Float[Tensor, "*batch width"]
) -> Float[Tensor, "*batch width"]:
    """`function(inputs)` for a function such as tanh that is applied to each number by itself.

    In float32 on a CPU without gradients, the result of a row does not depend on the number of rows.
    """
    padding = count_padding(inputs, inputs.size(-1), SIMD_PADDING_MULTIPLE)
    if not padding:
        return function(inputs)
    return function(F.pad(inputs, (0, padding)))[..., : inputs.size(-1)]


def pad_keys(
    keys: Float[Tensor, "batch heads key d_k"],
    values: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query key"],
) -> tuple[
    Float[Tensor, "batch heads padded_key d_k"],
    Float[Tensor, "batch heads padded_key d_v"],
    Bool[Tensor, "#batch #heads #query padded_key"],
]:
    """Pad keys and values with masked zeros to a multiple of `KEY_PADDING_MULTIPLE`.

    Where heads are narrow, there are at least as many keys as four queries need for `MIN_MULTIPLICATIONS`.

    The result of a query then does not depend on the longest sentence of its batch, if the number of queries is a
    multiple of four: see `linear`. In other types than float32, on other devices than a CPU and with gradients, nothing
    is padded.
    """
    if not needs_batch_invariance(keys):
        return keys, values, mask
    width = min(keys.size(3), values.size(3))
    padded_width = width + -width % WIDTH_MULTIPLE
    num_keys = max(keys.size(2), -(-MIN_MULTIPLICATIONS // (ROW_PADDING_MULTIPLE * padded_width)))
    padding = num_keys + -num_keys % KEY_PADDING_MULTIPLE - keys.size(2)
    if not padding:
        return keys, values, mask
    return F.pad(keys, (0, 0, 0, padding)), F.pad(values, (0, 0, 0, padding)), F.pad(mask, (0, padding))


def pad_width(inputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch padded"]:
    """Zeros behind the last axis up to a multiple of `WIDTH_MULTIPLE`, for products of queries, keys and values.

    Their results then do not depend on the number of sentences. In other types than float32, on other devices than a
    CPU and with gradients, nothing is padded.
    """
    padding = count_padding(inputs, inputs.size(-1), WIDTH_MULTIPLE)
    return F.pad(inputs, (0, padding)) if padding else inputs


def pad_to_row_multiple(
    ids: Int[Tensor, "sentences tokens"], mask: Bool[Tensor, "sentences tokens"], pad_id: int, max_length: int
) -> tuple[Int[Tensor, "sentences more"], Bool[Tensor, "sentences more"]]:
    """Sentences and their mask padded to a multiple of `ROW_PADDING_MULTIPLE` tokens (see `linear`).

    `max_length`, the number of positions that the model has, is never exceeded.
    """
    length = ids.size(1)
    more = max(0, min(-length % ROW_PADDING_MULTIPLE, max_length - length))
    return (F.pad(ids, (0, more), value=pad_id), F.pad(mask, (0, more))) if more else (ids, mask)
