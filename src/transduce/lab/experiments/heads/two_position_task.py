"""A task that needs two positions of a sentence at once, and one layer of attention that learns it.

A sentence has random tokens. A query names two positions of it, a first and a second one, and asks for the tokens
there, in this order. A token does not show whether it stands at the first or at the second of the positions: that is
known only where query and key meet, in the weights of the attention. A head that gives both positions the same weight
passes on their average, which is the same if the two tokens change positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.device import use_one_thread
from transduce.model import (
    FeedForward,
    MultiHeadAttention,
    ResidualConnection,
    TokenEmbedding,
    attention_weights,
    sinusoids,
)
from transduce.model.transformer import initialize

NUM_TOKENS = 16
LENGTH = 12
D_MODEL = 32
BATCH = 128
LEARNING_RATE = 3e-3
NUM_TESTED = 4096
"""Sentences on which a trained layer is tested."""


@dataclass(frozen=True)
class Examples:
    """Sentences, the two positions that each query names, and the tokens there."""

    tokens: Int[Tensor, "batch length"]
    positions: Int[Tensor, "batch 2"]

    @property
    def answers(self) -> Int[Tensor, "batch 2"]:
        """The token at each of the two positions."""
        return self.tokens.gather(1, self.positions)

    @classmethod
    def draw(cls, count: int, generator: torch.Generator) -> "Examples":
        """Draw sentences and two different positions at random."""
        tokens = torch.randint(NUM_TOKENS, (count, LENGTH), generator=generator)
        return cls(tokens, torch.rand(count, LENGTH, generator=generator).argsort(dim=1)[:, :2])


class OneLayerAttention(nn.Module):
    """One layer of encoder-decoder attention and feed-forward network, with a query for two positions of a sentence.

    The heads divide the width among them, d_k = d_v = d_model / num_heads, so that any number of them has the same
    number of parameters and operations.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        config = TransformerConfig(
            vocabulary=NUM_TOKENS + 1, d_model=D_MODEL, d_ff=4 * D_MODEL, num_heads=num_heads, dropout=0.0
        )
        self.embedding = TokenEmbedding(config)
        self.register_buffer("positions", sinusoids(LENGTH, D_MODEL))
        self.queries = nn.Parameter(torch.randn(2, LENGTH, D_MODEL))
        self.attention = MultiHeadAttention(config)
        self.attention_residual = ResidualConnection(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = ResidualConnection(config)
        self.output = nn.Linear(D_MODEL, 2 * NUM_TOKENS)
        initialize(self)

    def forward(self, examples: Examples) -> Float[Tensor, "batch 2 tokens"]:
        """Logits of the token at the first position and of that at the second one."""
        queries, memory = self._embed(examples)
        is_real = torch.ones(queries.shape[:2], dtype=torch.bool)
        keys_and_values, mask = self.attention.project_memory(memory), torch.ones(1, 1, 1, LENGTH, dtype=torch.bool)

        def attend(inputs: Tensor) -> Tensor:
            return self.attention.attend(self.attention.project_queries(inputs), keys_and_values, mask)

        hidden = self.attention_residual(queries, is_real, attend)
        hidden = self.feed_forward_residual(hidden, is_real, self.feed_forward)
        return torch.unflatten(self.output(hidden.squeeze(1)), 1, (2, NUM_TOKENS))

    def compute_weights(self, examples: Examples) -> Float[Tensor, "batch heads length"]:
        """The weight of every position in every head."""
        queries, memory = self._embed(examples)
        keys, mask = self.attention.project_memory(memory).keys, torch.ones(1, 1, 1, LENGTH, dtype=torch.bool)
        projected = self.attention.project_queries(queries)
        return attention_weights(self.attention.score, projected, keys, mask).squeeze(2)

    def _embed(self, examples: Examples) -> tuple[Tensor, Tensor]:
        queries = self.queries[0, examples.positions[:, :1]] + self.queries[1, examples.positions[:, 1:]]
        return queries, self.embedding(examples.tokens) + self.positions


def compute_entropy(weights: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """The entropy -Σ w ln w of attention weights, in nats: 0 if one key has all the weight, ln n if n share it."""
    entropy: Tensor = torch.special.entr(weights).sum(dim=-1)
    return entropy


@use_one_thread()  # the layer is so small that threads would only wait for each other
def train_and_test(num_heads: int, num_updates: int, seed: int) -> Mapping[str, float]:
    """Train a layer on random examples with Adam, and test it on others.

    Args:
        num_heads: heads of the layer, a divisor of `D_MODEL`.
        num_updates: batches of `BATCH` examples; the learning rate falls linearly to zero.
        seed: decides initial values and examples.

    Returns:
        "right": share of tested examples of which both tokens are right; "entropy" of a head's weights in nats, the
        mean; "two positions": the weight that a head gives to the two positions together, the mean; and "preference":
        the mean distance between the weights of the two positions in a head, divided by their sum, 0 if it gives both
        the same, and 1 if it attends to one of them alone.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    layer = OneLayerAttention(num_heads)
    optimizer = torch.optim.Adam(layer.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    for update in range(num_updates):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - update / num_updates)
        examples = Examples.draw(BATCH, generator)
        loss = F.cross_entropy(layer(examples).flatten(0, 1), examples.answers.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        examples = Examples.draw(NUM_TESTED, generator)
        is_right = (layer(examples).argmax(dim=2) == examples.answers).all(dim=1)
        weights = layer.compute_weights(examples)
        at_positions = weights.gather(2, examples.positions[:, None].expand(-1, num_heads, -1))
        together, apart = at_positions.sum(dim=2), at_positions.diff(dim=2).abs().squeeze(2)
        return {
            "right": float(is_right.float().mean()),
            "entropy": float(compute_entropy(weights).mean()),
            "two positions": float(together.mean()),
            "preference": float((apart / together).mean()),
        }
