"""Tokens and their positions to vectors, and vectors to logits (paper 3.4, 3.5)."""

import math
import sys

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.kernels.batch_invariance import linear

EXCLUDED_TOKEN_BIAS = -1e9
"""The output bias that excludes a token: its probability is 0 in every precision, and training does not change it.

Finite, so that means of weights are finite.
"""


class TokenEmbedding(nn.Module):
    """A learned vector for each token, times sqrt(d_model) (paper 3.4).

    The last row, that of `<pad>`, is zero and stays zero in training: the lookup gives it no gradient, and neither does
    the projection to logits where it has the same matrix, as the logit of `<pad>` is -inf. An imported model may have
    another vector there, the start symbol of its targets.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocabulary, config.d_model))
        self.scale = math.sqrt(config.d_model)

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """A vector of variance about 1 per component for each token, and zeros for `<pad>`."""
        # padding_idx keeps the gradient of the row of <pad> at zero.
        return F.embedding(ids, self.weight, padding_idx=-1) * self.scale


class OutputProjection(nn.Module):
    """The pre-softmax linear transformation, without bias unless `output_bias` (paper 3.4).

    `weight` is the target embedding's own matrix, unless `tied_embeddings = "none"`. `<pad>`, the last token, has the
    logit -inf: it is never predicted and takes no part in the softmax; nor does a token whose bias is
    `EXCLUDED_TOKEN_BIAS`.
    """

    mask: Tensor

    def __init__(self, config: TransformerConfig, target_embedding: TokenEmbedding) -> None:
        super().__init__()
        tied = config.tied_embeddings != "none"
        self.weight = target_embedding.weight if tied else nn.Parameter(torch.empty(config.vocabulary, config.d_model))
        self.bias = nn.Parameter(torch.empty(config.vocabulary)) if config.output_bias else None
        mask = torch.zeros(config.vocabulary)
        mask[-1] = -torch.inf
        self.register_buffer("mask", mask, persistent=False)

    @property
    def addend(self) -> Float[Tensor, " vocabulary"]:
        """The bias if there is one, and -inf for `<pad>`."""
        return self.mask if self.bias is None else self.bias + self.mask

    def forward(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocabulary"]:
        """A logit for every token of the vocabulary, for any number of leading axes."""
        return linear(hidden, self.weight.to(hidden.dtype), self.addend.to(hidden.dtype))


def sinusoids(length: int, d_model: int, start: int = 0) -> Float[Tensor, "{length} {d_model}"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same); positions from `start` (paper 3.5).

    For any fixed k, PE(pos + k) is a rotation of PE(pos): "a linear function".
    """
    position = torch.arange(start, start + length, dtype=torch.float64)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position[:, None] / 10_000 ** (even / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """Sinusoidal positions of this `width`, without a limit; the first rows are computed once."""

    limit = sys.maxsize
    table: Tensor
    rows_kept = 1024

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(self.rows_kept, width), persistent=False)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "{length} width"]:
        """Sinusoids of the positions `start` to `start + length`."""
        if start + length <= self.rows_kept:
            return self.table[start : start + length]
        with torch.device("cpu"):  # whatever PyTorch's default is
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
                f"{self.table.size(0)} (model.max_positions): split the sentence, or lower max_pieces"
            )
        return self.table[start : start + length]


class NoPositions(nn.Module):
    """Nothing is added to embeddings: unless self-attention has positions, the encoder sees a bag of tokens."""

    limit = sys.maxsize
    zero: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1, config.d_model), persistent=False)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "{length} d_model"]:  # noqa: ARG002 - as its siblings
        """Zeros for every position."""
        return self.zero.expand(length, -1)


Positions = SinusoidalPositions | LearnedPositions | NoPositions


def make_positions(config: TransformerConfig) -> Positions:
    """Make what the configuration adds to embeddings; relative and rotary positions add nothing."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.d_model)
    return LearnedPositions(config) if config.positions == "learned" else NoPositions(config)


class RotaryPositions(nn.Module):
    """Rotary positions turn queries and keys, and add nothing to embeddings (Su et al. 2021, eq. 34).

    Components 2i and 2i + 1 are turned together, by the angle of the sinusoids, pos / 10000^(2i/d_k). The product of a
    query and a key, both turned, depends on the distance of their positions only.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.sinusoids = SinusoidalPositions(d_k)

    def forward(
        self, vectors: Float[Tensor, "batch heads length d_k"], position: int | None = None
    ) -> Float[Tensor, "batch heads length d_k"]:
        """Turn queries or keys of positions 0, 1, 2..., or, if `position` is given, all of them by that position."""
        length, start = (vectors.size(2), 0) if position is None else (1, position)
        sines, cosines = torch.unflatten(self.sinusoids(length, start), 1, (-1, 2)).unbind(dim=2)
        even, odd = torch.unflatten(vectors, 3, (-1, 2)).unbind(dim=4)
        turned = torch.stack([even * cosines - odd * sines, odd * cosines + even * sines], dim=4).flatten(3)
        return turned.to(vectors.dtype)
