"""The arithmetic of translation."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transduce.kernels.device import has_fast_bfloat16, packs_bfloat16
from transduce.kernels.linear import LARGE, LargeProduct, PackedProduct, Product

Precision = Literal["auto", "float32", "bfloat16"]
TYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}

NARROWEST = 128
"""d_model from which bfloat16 is faster on a processor that has it, for many sentences at a time."""


@dataclass(frozen=True)
class Arithmetic:
    """How a network is computed.

    Args:
        dtype: of everything but, perhaps, large products.
        large_in_bfloat16: whether products with at least `LARGE` weights are computed in bfloat16 all the same.
        alike_in_every_batch: whether what is computed of a sentence must not depend on its batch, to the last bit; for
            float32 on a processor.
    """

    dtype: torch.dtype
    large_in_bfloat16: bool = False
    alike_in_every_batch: bool = False

    def product(self, weight: Tensor, bias: Tensor | None) -> Product:
        """The fastest product on the device of the weights."""
        has_operators = weight.device.type == "cpu" and packs_bfloat16()
        if has_operators and self.large_in_bfloat16 and weight.numel() >= LARGE:
            return LargeProduct(weight, bias)
        packs = has_operators and self.dtype == torch.bfloat16
        if packs:
            return PackedProduct(weight, bias, self.dtype)
        return Product(weight, bias, self.dtype, row_by_row=self.alike_in_every_batch)


def settled_precision(precision: Precision, device: torch.device, d_model: int, *, few: bool) -> Arithmetic:
    """What `precision` means for a network of this width, for `few` sentences at a time or many.

    float32, on a processor, is the same in every batch. `auto` is what is fastest: bfloat16 where the device has it and
    the network is wide enough, else float32. For a few sentences on a processor, starting a small product in bfloat16
    takes longer than computing it in float32.
    """
    if precision != "auto":
        return Arithmetic(TYPES[precision], alike_in_every_batch=precision == "float32" and device.type == "cpu")
    if not has_fast_bfloat16(device) or (device.type == "cpu" and d_model < NARROWEST):
        return Arithmetic(torch.float32)
    is_mixed = few and device.type == "cpu"
    return Arithmetic(torch.float32 if is_mixed else torch.bfloat16, large_in_bfloat16=is_mixed)
