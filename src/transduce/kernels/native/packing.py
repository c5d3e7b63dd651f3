"""Weights in the layout that the compiled kernels read: padded to whole registers, in panels, in float32 or int8."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.errors import UserError
from transduce.kernels.memory import CACHE_LINE, address, allocate
from transduce.kernels.native.library import (
    HEAD_ALIGNMENT,
    ROW_ALIGNMENT,
    Library,
    LinearStructure,
    NormalizationStructure,
)

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[Any]

_BLOCK_BYTES = 2**25


def round_up(count: int, multiple: int) -> int:
    """The next multiple that is not below `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class PaddedLayout:
    """The positions of the numbers of a row in a padded row.

    Args:
        index: the index of each number in the padded row.
        width: numbers of the padded row.
    """

    index: Integers
    width: int

    @classmethod
    def in_order(cls, count: int) -> "PaddedLayout":
        """`count` numbers, followed by zeros."""
        return cls(np.arange(count), round_up(count, ROW_ALIGNMENT))

    @classmethod
    def in_heads(cls, num_heads: int, d_head: int) -> "PaddedLayout":
        """The numbers of each head, each followed by zeros, and zeros at the end."""
        padded = round_up(d_head, HEAD_ALIGNMENT)
        index = (np.arange(num_heads)[:, None] * padded + np.arange(d_head)).ravel()
        return cls(index, round_up(num_heads * padded, ROW_ALIGNMENT))

    @classmethod
    def side_by_side(cls, parts: Sequence["PaddedLayout"]) -> "PaddedLayout":
        """Several padded rows, concatenated."""
        starts = np.cumsum([0, *(part.width for part in parts)])
        index = np.concatenate([part.index + start for part, start in zip(parts, starts, strict=False)])
        return cls(index, int(starts[-1]))

    def pad(self, numbers: Floats) -> Floats:
        """The numbers of the last axis at their indices, zeros elsewhere."""
        padded = np.zeros((*numbers.shape[:-1], self.width), dtype=np.float32)
        padded[..., self.index] = numbers
        return padded


def quantize_rows(rows: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Integers from -127 to 127, and for each row the scale that they are to be multiplied by.

    Bit-identical to `kernels.linear.quantize_rows`, where PyTorch divides 127 by a number as is done here. A row whose
    largest absolute value is so small that 127 divided by it overflows becomes zeros with the scale 0. A row that
    contains NaN or infinity has NaN or infinity as its scale, and zeros as its integers.
    """
    greatest = np.abs(rows).max(axis=1, initial=0)
    factors = np.zeros_like(greatest)
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers near 0, and of damaged weights
        np.divide(1, greatest, out=factors, where=greatest > 0)
        factors *= 127
        is_tiny = np.isinf(factors)
        factors[is_tiny] = 0
        scales = np.where(is_tiny, np.float32(0), greatest / np.float32(127))
        return np.rint(np.nan_to_num(rows * factors[:, None])).astype(np.int8), scales


class WeightMemory:
    """Memory for the weights of a model, side by side in blocks of at least 32 MB.

    NumPy asks Linux to map arrays of this size in pages of 2 MB: a product that reads all weights for one sentence then
    waits less often for the addresses of pages. Only what is written takes memory. A block is freed with the last array
    in it.
    """

    def __init__(self) -> None:
        self._free = np.empty(0, dtype=np.uint8)

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Integers:
        """An uninitialised array whose first number stands at the beginning of a cache line."""
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        padded = round_up(num_bytes, CACHE_LINE)
        if padded > len(self._free):
            self._free = allocate((max(padded, _BLOCK_BYTES),), np.uint8)
        taken, self._free = self._free[:num_bytes], self._free[padded:]
        return taken.view(dtype).reshape(shape)


class PackedNormalization:
    """Gain and bias of a layer normalisation, padded with zeros."""

    def __init__(self, gain: Floats, bias: Floats) -> None:
        layout = PaddedLayout.in_order(len(gain))
        self.gain, self.bias = layout.pad(gain), layout.pad(bias)
        self.structure = NormalizationStructure(address(self.gain), address(self.bias))


class PackedMatrix:
    """The weights and the bias of a linear layer x W^T + b, packed for one level of instruction sets.

    Args:
        library: the level.
        weight: [outputs, inputs].
        bias: [outputs]; None: zeros.
        outputs: positions of the outputs in a padded row.
        inputs: positions of the inputs in a padded row.
        is_int8: whether the weights are rounded to int8, with one scale for each output.
        bias_fill: the bias of outputs that only fill up.
        memory: where the weights are stored. Default: memory of their own.
    """

    def __init__(
        self,
        library: Library,
        weight: Floats,
        bias: Floats | None,
        *,
        outputs: PaddedLayout | None = None,
        inputs: PaddedLayout | None = None,
        is_int8: bool = False,
        bias_fill: float = 0.0,
        memory: WeightMemory | None = None,
    ) -> None:
        self.outputs = PaddedLayout.in_order(len(weight)) if outputs is None else outputs
        self.inputs = PaddedLayout.in_order(weight.shape[1]) if inputs is None else inputs
        num_outputs, num_inputs = self.outputs.width, self.inputs.width
        padded = np.zeros((num_outputs, num_inputs), dtype=np.float32)
        padded[self.outputs.index] = self.inputs.pad(weight)
        self.bias = np.full(num_outputs, bias_fill, dtype=np.float32)
        self.bias[self.outputs.index] = 0.0 if bias is None else bias
        panels = num_outputs // library.panel
        self.scales = self.corrections = None
        if is_int8:
            integers, self.scales = quantize_rows(padded)
            self.corrections = (library.offset * integers.sum(axis=1, dtype=np.int32)).astype(np.int32)
            groups = integers.reshape(panels, library.panel, num_inputs // library.group, library.group)
            in_panels: Integers = groups.transpose(0, 2, 1, 3)
        else:
            in_panels = padded.reshape(panels, library.panel, num_inputs).transpose(0, 2, 1)
        self.weights = (memory.allocate if memory else allocate)(in_panels.shape, in_panels.dtype)
        self.weights[...] = in_panels
        self.structure = LinearStructure(
            address(self.weights),
            address(self.bias),
            None if self.scales is None else address(self.scales),
            None if self.corrections is None else address(self.corrections),
            num_inputs,
            num_outputs,
        )


ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "swish": 3}
"""The activations that a product can end with, as `linear.h` numbers them."""


def check_floats(array: npt.NDArray[Any], shape: tuple[int | None, ...]) -> Floats:
    """Check that an array has this type and shape (None: any length); gives it with its numbers side by side.

    Raises:
        UserError: it has another type or shape.
    """
    fits = array.ndim == len(shape) and all(
        wanted in {None, size} for wanted, size in zip(shape, array.shape, strict=True)
    )
    if array.dtype != np.float32 or not fits:
        raise UserError(f"an array of {array.dtype} {array.shape} must be of float32 {shape}")
    return np.ascontiguousarray(array)
