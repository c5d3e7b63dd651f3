"""Which kind of positions a table is."""

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.interop.residual_channels import in_halves
from transduce.model import sinusoids

_MOST_DIFFERENT = 1e-6
"""Between sinusoids that two programs have computed."""


def position_kind(
    table: Float[Tensor, "positions d_model"], *, is_in_halves: bool = True, rounding: float = 0.0
) -> str:
    """What `model.positions` calls it: "sinusoidal", "none" if all is zero, or "learned", which is any other table.

    Args:
        table: what is added to embeddings.
        is_in_halves: whether all sines would stand before all cosines.
        rounding: most that a number may have lost.
    """
    if not table.any():
        return "none"
    if table.size(1) % 2:
        return "learned"
    ours = sinusoids(*table.shape)
    if is_in_halves:
        ours = in_halves({"positions.table": ours})["positions.table"]
    return "sinusoidal" if torch.allclose(table, ours, rtol=0, atol=max(rounding, _MOST_DIFFERENT)) else "learned"
