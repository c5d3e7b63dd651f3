"""What a CTranslate2 model adds to embeddings to mark the order: our sinusoids, in either layout, or another table."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.interop.ctranslate2.layout import POSITIONS
from transduce.interop.ctranslate2.variables import Variables
from transduce.interop.position_tables import position_kind

_LENGTH = 2048
"""Rows that are made of CTranslate2's own formula, which has no end."""


class PositionTable(NamedTuple):
    """Positions.

    Args:
        kind: "sinusoidal"; "none", of zeros alone; or "learned", which stands for any other table.
        rows: the table, in float32.
        is_in_halves: whether these are sinusoids with all sines before all cosines.
        precision: to which the sinusoids were rounded.
    """

    kind: str
    rows: Float[Tensor, "positions d_model"]
    is_in_halves: bool = False
    precision: str = "float32"


def positions(variables: Variables) -> PositionTable:
    """Those of the encoder, which must be the decoder's, too.

    A model without a table has CTranslate2's own, which is Tensor2Tensor's: half sines, half cosines, from position 1
    on, and frequencies down to 1/10000 itself.
    """
    if POSITIONS[0] not in variables:
        return PositionTable("learned", _by_formula(variables.d_model))
    raw, table = variables.matrix(POSITIONS[0]), variables[POSITIONS[0]]
    if raw.is_floating_point() and table.size(1) == variables.d_model:
        rounding = 0.0 if raw.dtype == torch.float32 else torch.finfo(raw.dtype).eps
        for is_in_halves in (False, True):
            if position_kind(table, is_in_halves=is_in_halves, rounding=rounding) == "sinusoidal":
                return PositionTable("sinusoidal", table, is_in_halves, str(raw.dtype).removeprefix("torch."))
    return PositionTable("learned" if table.any() else "none", table)


def are_shared(variables: Variables) -> bool:
    """Whether encoder and decoder have the same table, or both none."""
    encoder, decoder = (variables.raw(name) if name in variables else None for name in POSITIONS)
    if encoder is None or decoder is None:
        return encoder is decoder
    return torch.equal(encoder, decoder)


def _by_formula(d_model: int) -> Float[Tensor, "positions {d_model}"]:
    """In float32, as CTranslate2 computes it."""
    half = d_model // 2
    steps = torch.arange(half, dtype=torch.float32) * -(math.log(10_000) / max(half - 1, 1))
    angles = torch.arange(1, _LENGTH + 1, dtype=torch.float32)[:, None] * steps.exp()
    return torch.cat([angles.sin(), angles.cos()], dim=1)
