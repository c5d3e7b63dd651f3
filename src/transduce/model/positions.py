"""What marks the order of the tokens: sinusoids by formula, a learned table, or nothing (paper 3.5)."""

import sys

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.errors import UserError


def sinusoids(length: int, d_model: int, start: int = 0) -> Float[Tensor, "{length} {d_model}"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same); positions from `start` (paper 3.5).

    For any fixed k, PE(pos + k) is a rotation of PE(pos): "a linear function".
    """
    position = torch.arange(start, start + length, dtype=torch.float64)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position[:, None] / 10_000 ** (even / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """The sinusoids, without any limit; the first rows are kept so that they are computed once."""

    limit = sys.maxsize
    table: Tensor
    rows_kept = 1024

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(self.rows_kept, config.d_model), persistent=False)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "{length} d_model"]:
        """Rows `start` to `start + length` of a table without end."""
        if start + length <= self.rows_kept:
            return self.table[start : start + length]
        return sinusoids(length, self.table.size(1), start).to(self.table)


class LearnedPositions(nn.Module):
    """A learned vector for each of `max_positions` positions (paper Table 3, row E; Gehring et al. 2017)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.limit = config.max_positions
        self.table = nn.Parameter(torch.empty(config.max_positions, config.d_model))

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "{length} d_model"]:
        """Rows `start` to `start + length` of the learned table.

        Raises:
            UserError: the table ends before them.
        """
        if start + length > self.table.size(0):
            raise UserError(
                f"a sentence reaches position {start + length}; this model has learned positions up to "
                f"{self.table.size(0)} (model.max_positions): split the sentence"
            )
        return self.table[start : start + length]


class NoPositions(nn.Module):
    """Nothing: without order, a sentence is a bag of tokens to the encoder."""

    limit = sys.maxsize
    zero: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1, config.d_model), persistent=False)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "{length} d_model"]:  # noqa: ARG002 - as its siblings
        """Zeros."""
        return self.zero.expand(length, -1)


Positions = SinusoidalPositions | LearnedPositions | NoPositions


def make_positions(config: TransformerConfig) -> Positions:
    """The positions that the configuration names."""
    kinds: dict[str, type[Positions]] = {
        "sinusoidal": SinusoidalPositions,
        "learned": LearnedPositions,
        "none": NoPositions,
    }
    return kinds[config.positions](config)
