"""The arithmetic of training: float32, or bfloat16 activations over weights that stay in float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from transduce.kernels.device import has_fast_bfloat16
from transduce.model import Transformer

NARROWEST = 128
"""d_model from which products in bfloat16 are large enough on a CPU to gain more than their preparation costs."""


def resolve_precision(
    precision: Literal["auto", "float32", "bfloat16"], device: torch.device, d_model: int
) -> Literal["float32", "bfloat16"]:
    """What `auto` means on this machine for a network of this width: bfloat16 where it is faster than float32.

    That is on a GPU with bfloat16, or on a processor with AVX-512 BF16 or AMX if d_model is at least 128.
    """
    if precision != "auto":
        return precision
    wide_enough = device.type != "cpu" or d_model >= NARROWEST
    return "bfloat16" if wide_enough and has_fast_bfloat16(device) else "float32"


@contextmanager
def computing_in(model: Transformer, precision: Literal["float32", "bfloat16"]) -> Iterator[None]:
    """Within, the activations of `model` have this type; its weights, and the gradients of them, stay as they are.

    Mixed precision after Micikevicius et al. 2018; bfloat16 has the range of float32, so the loss needs no scaling.
    """
    before = model.activations
    model.activations = torch.bfloat16 if precision == "bfloat16" else None
    try:
        yield
    finally:
        model.activations = before
