"""Tokens to vectors and vectors to logits (paper 3.4)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.linear import linear

NEVER = -1e9
"""An output bias that rules a token out: its probability is 0 in every precision, and training leaves it alone.

Finite, so that means of weights are numbers, too.
"""


class TokenEmbedding(nn.Module):
    """A learned vector for each token, times sqrt(d_model) (paper 3.4).

    The row of `<pad>`, the last, is zero, and training leaves it so. A model made elsewhere may have there another
    vector behind which its targets begin.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocabulary, config.d_model))
        self.scale = math.sqrt(config.d_model)

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """A vector of variance about 1 a component for each token, and zeros for `<pad>`."""
        # padding_idx keeps the gradient of the row of <pad> at zero, and with it the row.
        return F.embedding(ids, self.weight, padding_idx=-1) * self.scale


class OutputProjection(nn.Module):
    """The pre-softmax linear transformation, without bias unless `output_bias` (paper 3.4).

    `weight` is the target embedding's own matrix, unless `tied_embeddings = "none"`. `<pad>`, the last token, has the
    logit -inf: it is never predicted and takes no part in the softmax; nor does a token whose bias is `NEVER`.
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
        """What is added to the products of `weight`: the bias if there is one, and -inf for `<pad>`."""
        return self.mask if self.bias is None else self.bias + self.mask

    def forward(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocabulary"]:
        """A logit for every token of the vocabulary, for any number of leading axes."""
        return linear(hidden, self.weight.to(hidden.dtype), self.addend.to(hidden.dtype))
