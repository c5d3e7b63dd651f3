"""The parts of the Transformer in ONNX's operators: the same formulas as in `model/`, for any configuration.

Every function adds operations to a graph and returns the name of what they compute. `x` is always [positions, d_model]
with the positions of one sentence after the other; `sentences`, [1], is how many there are.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from transduce.interop.onnx.graph import Graph
from transduce.interop.onnx.weights import Weights
from transduce.kernels.linear import Linear
from transduce.model import (
    DotScore,
    FeedForward,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    ResidualConnection,
    TokenEmbedding,
)
from transduce.model.attention import AttentionScore
from transduce.model.feed_forward import ACTIVATIONS
from transduce.model.normalization import EPSILON, Normalization
from transduce.model.positions import Positions


class Layers:
    """Adds the parts of a model to `graph`, and their `weights` with them."""

    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph = graph
        self.weights = weights

    def size(self, value: str, axis: int) -> str:
        """The size of an axis, [1]."""
        return self.graph.operation("Shape", value, start=axis, end=axis + 1)

    def unsqueezed(self, value: str, *axes: int) -> str:
        """The same with more axes, of size 1."""
        return self.graph.operation("Unsqueeze", value, self.graph.constant(axes, np.int64))

    def linear(self, linear: Linear, x: str, rows: slice | None = None) -> str:
        """See `model.linear`."""
        return self.weights.product(x, linear.weight, self.graph.weight(linear.bias, rows), rows)

    def embedded(self, embedding: TokenEmbedding, positions: Positions, ids: str, places: str) -> str:
        """The embedding of each of `ids`, [..., length], and what marks their positions `places`, [length] or [1]."""
        graph = self.graph
        scale = graph.constant(embedding.scale, np.float32)
        embedded = graph.operation("Mul", self.weights.lookup(ids, embedding.weight), scale)
        match positions:
            case NoPositions():
                return embedded
            case LearnedPositions():  # behind the last row, there are no numbers to add: the runtime says so
                marks = graph.operation("Gather", graph.weight(positions.table), places)
            case _:
                marks = self._sinusoids(places, positions.table.size(1))
        return graph.operation("Add", embedded, marks)

    def _sinusoids(self, places: str, d_model: int) -> str:
        """See `model.positions.sinusoids`: in float64, as there, and without a last row."""
        graph = self.graph
        periods = 10_000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        position = self.unsqueezed(graph.cast(places, np.float64), -1)
        angle = graph.operation("Div", position, graph.constant(periods.numpy(), np.float64))
        pairs = [self.unsqueezed(graph.operation(function, angle), -1) for function in ("Sin", "Cos")]
        return graph.cast(self.reshaped(graph.operation("Concat", *pairs, axis=-1), -1, d_model), np.float32)

    def normalized(self, normalization: Normalization, x: str) -> str:
        """See `model.normalization`; of a batch, by the running statistics, as in evaluation."""
        graph = self.graph
        gain, bias = graph.weight(normalization.gain), graph.weight(normalization.bias)
        if isinstance(normalization, LayerNormalization):
            return graph.operation("LayerNormalization", x, gain, bias, epsilon=EPSILON)
        epsilon = graph.constant(EPSILON, np.float32)
        variance = graph.operation("Add", graph.weight(normalization.running_variance), epsilon)
        centred = graph.operation("Sub", x, graph.weight(normalization.running_mean))
        standard = graph.operation("Div", centred, graph.operation("Sqrt", variance))
        return graph.operation("Add", graph.operation("Mul", standard, gain), bias)

    def residual(self, connection: ResidualConnection, x: str, sublayer: Callable[[str], str]) -> str:
        """See `model.residual`."""
        if connection.post:
            return self.normalized(connection.normalization, self.graph.operation("Add", x, sublayer(x)))
        return self.graph.operation("Add", x, sublayer(self.normalized(connection.normalization, x)))

    def feed_forward(self, network: FeedForward, x: str) -> str:
        """See `model.feed_forward`."""
        return self.linear(network.outer, self._activated(network, self.linear(network.inner, x)))

    def _activated(self, network: FeedForward, x: str) -> str:
        graph = self.graph
        if network.activation is ACTIVATIONS["relu"]:
            return graph.operation("Relu", x)
        if network.activation is ACTIVATIONS["swish"]:
            return graph.operation("Mul", x, graph.operation("Sigmoid", x))
        # gelu: x/2 (1 + erf(x/√2))
        error = graph.operation("Erf", graph.operation("Div", x, graph.constant(math.sqrt(2), np.float32)))
        both = graph.operation("Mul", x, graph.operation("Add", error, graph.constant(1, np.float32)))
        return graph.operation("Mul", both, graph.constant(0.5, np.float32))

    def project(self, attention: MultiHeadAttention, x: str, sentences: str) -> list[str]:
        """Queries, keys and values of every head, [sentences, heads, length, width]."""
        projected = self.linear(attention.projection, x)
        return self._heads(attention, projected, sentences, attention.d_k, attention.d_k, attention.d_v)

    def project_queries(self, attention: MultiHeadAttention, x: str, sentences: str) -> str:
        """Queries alone."""
        projected = self.linear(attention.projection, x, slice(0, attention.query_width))
        (queries,) = self._heads(attention, projected, sentences, attention.d_k)
        return queries

    def project_memory(self, attention: MultiHeadAttention, memory: str, sentences: str) -> list[str]:
        """Keys and values alone."""
        rows = slice(attention.query_width, len(attention.projection.weight))
        projected = self.linear(attention.projection, memory, rows)
        return self._heads(attention, projected, sentences, attention.d_k, attention.d_v)

    def attend(
        self, attention: MultiHeadAttention, queries: str, keys: str, values: str, mask: str | None = None
    ) -> str:
        """See `MultiHeadAttention.attend`; without a `mask`, every query looks at every key."""
        graph = self.graph
        scores = self._scores(attention.score, queries, keys)
        if mask is not None:
            scores = graph.operation("Where", mask, scores, graph.constant(-math.inf, np.float32))
        attended = graph.operation("MatMul", graph.operation("Softmax", scores, axis=-1), values)
        side_by_side = graph.operation("Transpose", attended, perm=[0, 2, 1, 3])
        return self.linear(attention.output, self.reshaped(side_by_side, -1, attention.num_heads * attention.d_v))

    def reshaped(self, value: str, *sizes: int | str) -> str:
        """The same numbers with axes of other sizes: numbers, of which one may be -1, or names of what has one, [1]."""
        graph = self.graph
        parts = [graph.constant([size], np.int64) if isinstance(size, int) else size for size in sizes]
        return graph.operation("Reshape", value, graph.operation("Concat", *parts, axis=0))

    def _heads(self, attention: MultiHeadAttention, projected: str, sentences: str, *widths: int) -> list[str]:
        graph, num_heads = self.graph, attention.num_heads
        sizes = graph.constant([num_heads * width for width in widths], np.int64)
        parts = graph.operations("Split", projected, sizes, num_results=len(widths), axis=1)
        return [
            graph.operation("Transpose", self.reshaped(part, sentences, -1, num_heads, width), perm=[0, 2, 1, 3])
            for part, width in zip(parts, widths, strict=True)
        ]

    def _scores(self, score: AttentionScore, queries: str, keys: str) -> str:
        graph = self.graph
        if isinstance(score, DotScore):
            products = graph.operation("MatMul", queries, graph.operation("Transpose", keys, perm=[0, 1, 3, 2]))
            return graph.operation("Mul", products, graph.constant(score.scale, np.float32))

        def multiplied(value: str, weight: Tensor) -> str:
            return graph.operation("MatMul", value, graph.operation("Transpose", graph.weight(weight), perm=[1, 0]))

        for_queries = self.unsqueezed(multiplied(queries, score.query_weight), -2)
        for_keys = self.unsqueezed(multiplied(keys, score.key_weight), -3)
        hidden = graph.operation("Tanh", graph.operation("Add", for_queries, for_keys))
        scores = multiplied(hidden, score.hidden_weight)
        return graph.operation("Squeeze", scores, graph.constant([-1], np.int64))
