"""Every initial value of the network, in one place.

The paper is silent about them; these are what its authors' code does: matrices uniform with the variance of Glorot &
Bengio 2010, biases zero, embeddings normal with variance 1/d_model, so that sqrt(d_model) brings them to variance 1.
"""

import torch
from torch import nn

from transduce.model.attention import AdditiveScore, MultiHeadAttention
from transduce.model.embeddings import OutputProjection, TokenEmbedding
from transduce.model.feed_forward import FeedForward
from transduce.model.positions import LearnedPositions


@torch.no_grad()
def initialize(model: nn.Module) -> None:
    """Draw the initial values of all parts of `model`; normalisations start as the identity by themselves."""
    for part in model.modules():
        match part:
            case MultiHeadAttention():
                # W^Q, W^K and W^V are three matrices, though they lie in one.
                widths = [part.query_width, part.query_width, part.num_heads * part.d_v]
                for matrix in torch.split(part.projection.weight, widths):
                    nn.init.xavier_uniform_(matrix)
                nn.init.zeros_(part.projection.bias)
                _initialize_linear(part.output)
            case FeedForward():
                _initialize_linear(part.inner)
                _initialize_linear(part.outer)
            case AdditiveScore():
                for matrix in part.parameters():
                    nn.init.xavier_uniform_(matrix)
            case TokenEmbedding() | OutputProjection():
                nn.init.normal_(part.weight, std=part.weight.size(1) ** -0.5)
                nn.init.zeros_(part.weight[-1])
                if isinstance(part, OutputProjection) and part.bias is not None:
                    nn.init.zeros_(part.bias)
            case LearnedPositions():
                nn.init.normal_(part.table, std=part.table.size(1) ** -0.5)


def _initialize_linear(linear: nn.Linear) -> None:
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
