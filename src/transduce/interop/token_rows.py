"""Rows of matrices, renumbered from the tokens of one program to those of another."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def numbered(
    numbers: Float[Tensor, "theirs *width"], rows: Sequence[int], missing: float = 0.0
) -> Float[Tensor, "ours *width"]:
    """The given rows of a matrix, or numbers of a vector; `missing` for row -1."""
    return torch.cat([numbers, torch.full_like(numbers[:1], missing)])[torch.tensor(rows)]
