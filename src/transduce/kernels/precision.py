"""The types that a model computes in, and which of them is fastest on a device."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transduce.kernels.device import has_fast_bfloat16, has_packed_bfloat16
from transduce.kernels.linear import LARGE, FrozenLinear, Int8Linear, MixedPrecisionLinear, PackedLinear

Precision = Literal["auto", "float32", "bfloat16", "int8"]
COMPUTE_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int8": torch.float32,
}

NARROWEST = 128
"""d_model from which bfloat16 is faster on a processor that has it, for many sentences at a time."""


@dataclass(frozen=True)
class ComputePrecision:
    """The types that a model computes in.

    Args:
        compute_dtype: of everything but, perhaps, large linear layers.
        is_mixed: whether linear layers with at least `LARGE` weights compute in bfloat16 all the same.
        is_batch_invariant: whether the results for a sentence must not depend on its batch, to the last bit; for
            float32 and int8 on a processor.
        is_int8: whether linear layers multiply integers of 8 bits.
    """

    compute_dtype: torch.dtype
    is_mixed: bool = False
    is_batch_invariant: bool = False
    is_int8: bool = False

    def make_linear(self, weight: Tensor, bias: Tensor | None) -> FrozenLinear:
        """The fastest linear layer with these weights on their device."""
        if self.is_int8:
            return Int8Linear(weight, bias)
        has_operators = weight.device.type == "cpu" and has_packed_bfloat16()
        if has_operators and self.is_mixed and weight.numel() >= LARGE:
            return MixedPrecisionLinear(weight, bias)
        if has_operators and self.compute_dtype == torch.bfloat16:
            return PackedLinear(weight, bias, self.compute_dtype)
        return FrozenLinear(weight, bias, self.compute_dtype, is_batch_invariant=self.is_batch_invariant)


def resolve_precision(precision: Precision, device: torch.device, d_model: int, *, is_few: bool) -> ComputePrecision:
    """The types that `precision` stands for on a device.

    float32 and int8 on a processor give the same in every batch. `auto` is what is fastest: bfloat16 where the device
    has it and the model is wide enough, else float32.

    Args:
        precision: as a user names it.
        device: where the model computes.
        d_model: width of the model.
        is_few: whether a few sentences are translated at a time. On a processor, starting a small product in bfloat16
            then takes longer than computing it in float32.
    """
    is_cpu = device.type == "cpu"
    if precision != "auto":
        is_int8 = precision == "int8"
        is_invariant = is_cpu and precision != "bfloat16"
        return ComputePrecision(COMPUTE_DTYPES[precision], is_batch_invariant=is_invariant, is_int8=is_int8)
    if not has_fast_bfloat16(device) or (is_cpu and d_model < NARROWEST):
        return ComputePrecision(torch.float32)
    is_mixed = is_few and is_cpu
    return ComputePrecision(torch.float32 if is_mixed else torch.bfloat16, is_mixed=is_mixed)
