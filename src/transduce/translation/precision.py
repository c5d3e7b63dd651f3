"""The arithmetic of translation."""

from typing import Literal

import torch

from transduce.translation.device import has_fast_bfloat16
from transduce.translation.products import Arithmetic

Precision = Literal["auto", "float32", "bfloat16"]
TYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}

NARROWEST = 128
"""d_model from which bfloat16 is faster on a processor that has it, for many sentences at a time."""


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
