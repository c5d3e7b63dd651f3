"""Attention: the ways to compare a query with a key, and many heads side by side (paper 3.2).

Axes: `batch` sentences, `heads`, `query` and `key` positions, `d_k` width of a query or key, `d_v` width of a value.
A mask is True where a query may attend to a key; no row of it is ever all False.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.batch_invariance import compute_elementwise, linear, pad_keys, pad_width
from transduce.kernels.layers import MAX_FEW_KEYS, attend_to_few_keys
from transduce.kernels.linear import Linear, is_avx512_forbidden
from transduce.model.embeddings import RotaryPositions

Mask = Bool[Tensor, "#batch #heads #query key"]
Queries = Float[Tensor, "batch heads query d_k"]
Keys = Float[Tensor, "batch heads key d_k"]
Values = Float[Tensor, "batch heads key d_v"]
Scores = Float[Tensor, "batch heads query key"]
Attended = Float[Tensor, "batch heads query d_v"]


class KeysAndValues(NamedTuple):
    """The keys and values of every head for all positions that can be attended to."""

    keys: Keys
    values: Values


def source_attention_mask(source_mask: Bool[Tensor, "batch source"]) -> Bool[Tensor, "batch 1 1 source"]:
    """The mask that lets every query attend to every real token of the source."""
    return source_mask[:, None, None, :]


def causal_attention_mask(length: int, device: torch.device) -> Bool[Tensor, "1 1 {length} {length}"]:
    """The mask by which each target position attends to itself and to the positions before it (paper 3.2.3).

    Padding is at the end of a sentence, so this mask also prevents real tokens from attending to it.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class DotScore(nn.Module):
    """The score q·k of a query and a key, divided by sqrt(d_k) if `scaled` (paper 3.2.1, eq. 1).

    For components of mean 0 and variance 1, q·k has variance d_k; the division brings it back to 1.
    """

    def __init__(self, d_k: int, *, scaled: bool) -> None:
        super().__init__()
        self.scale = d_k**-0.5 if scaled else 1.0

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """One score for every pair of a query and a key."""
        return queries @ keys.transpose(-2, -1) * self.scale

    def attend(self, queries: Queries, keys: Keys, values: Values, mask: Mask) -> Attended:
        """The attention-weighted sum of the values, by PyTorch's fused attention.

        On a CPU, another way is taken where it is faster, with gradients and few keys, and where the fused one fails.
        """
        keys, values, mask = pad_keys(keys, values, mask)
        is_faster = torch.is_grad_enabled() and keys.size(2) <= MAX_FEW_KEYS
        is_fused_broken = queries.dtype != torch.float32 and is_avx512_forbidden()
        if queries.device.type == "cpu" and (is_faster or is_fused_broken):
            return attend_to_few_keys(queries, keys, values, mask, self.scale)
        padded = pad_width(queries), pad_width(keys), pad_width(values)
        attended = F.scaled_dot_product_attention(*padded, attn_mask=mask, scale=self.scale)
        return attended[..., : values.size(-1)]


class AdditiveScore(nn.Module):
    """The score v·tanh(W q + U k) of a query and a key (Bahdanau et al. 2015).

    It is "a feed-forward network with a single hidden layer" (paper 3.2.1). The hidden layer has width d_k; its
    matrices are shared by the heads.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.empty(d_k, d_k))
        self.key_weight = nn.Parameter(torch.empty(d_k, d_k))
        self.hidden_weight = nn.Parameter(torch.empty(1, d_k))

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """One score for every pair of a query and a key; needs memory for d_k numbers for each pair."""
        query_weight, key_weight, hidden_weight = (
            weight.to(queries.dtype) for weight in (self.query_weight, self.key_weight, self.hidden_weight)
        )
        hidden = linear(queries, query_weight).unsqueeze(-2) + linear(keys, key_weight).unsqueeze(-3)
        return linear(compute_elementwise(torch.tanh, hidden), hidden_weight).squeeze(-1)

    def attend(self, queries: Queries, keys: Keys, values: Values, mask: Mask) -> Attended:
        """The attention-weighted sum of the values."""
        keys, values, mask = pad_keys(keys, values, mask)
        attended = attention_weights(self, queries, keys, mask) @ pad_width(values)
        return attended[..., : values.size(-1)]


class RelativeScore(nn.Module):
    """The score q·(k + a) of a query and a key, with a learned vector a for their distance (Shaw et al. 2018, eq. 4).

    Self-attention uses it with `positions = "relative"`. The n queries belong to the last n of the key positions: all
    positions in training, the newest one when decoding step by step. A second learned vector for the distance is added
    to each value (eq. 3). All heads share the vectors; distances beyond `max_relative_distance`, in either direction,
    share the vector of that distance.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = config.d_k**-0.5 if config.attention_score == "scaled_dot" else 1.0
        self.max_distance = config.max_relative_distance
        num_distances = 2 * config.max_relative_distance + 1
        self.relative_keys = nn.Parameter(torch.empty(num_distances, config.d_k))
        self.relative_values = nn.Parameter(torch.empty(num_distances, config.d_v))

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """One score for every pair of a query and a key, in float32 at least."""
        return self._score(queries, keys, self._find_distances(queries, keys))

    def attend(self, queries: Queries, keys: Keys, values: Values, mask: Mask) -> Attended:
        """The attention-weighted sum of the values and of the vectors of their distances."""
        distances = self._find_distances(queries, keys)
        keys, values, mask = pad_keys(keys, values, mask)
        distances = F.pad(distances, (0, keys.size(2) - distances.size(1)))
        weights = self._score(queries, keys, distances).masked_fill(~mask, -torch.inf).softmax(dim=-1)
        of_distances = weights.new_zeros(*weights.shape[:3], len(self.relative_values))
        of_distances = of_distances.scatter_add(3, distances.expand_as(weights), weights)
        vectors = self.relative_values.to(values.dtype)
        of_values = (weights.to(values.dtype) @ pad_width(values))[..., : values.size(-1)]
        return of_values + linear(of_distances.to(values.dtype), vectors.T)

    def _score(self, queries: Queries, keys: Keys, distances: Int[Tensor, "query key"]) -> Scores:
        """q·k + q·a, where the second product is computed once for each distance."""
        # In bfloat16 the gradients of all distances that share a vector would be added up too coarsely.
        wide = torch.promote_types(queries.dtype, torch.float32)
        products = (pad_width(queries) @ pad_width(keys).transpose(-2, -1)).to(wide)
        of_distances = linear(queries, self.relative_keys.to(queries.dtype)).to(wide)
        return (products + of_distances.gather(3, distances.expand_as(products))) * self.scale

    def _find_distances(self, queries: Queries, keys: Keys) -> Int[Tensor, "query key"]:
        """For each query and key the row of the vectors of their distance."""
        key_positions = torch.arange(keys.size(2), device=keys.device)
        query_positions = key_positions[keys.size(2) - queries.size(2) :]
        distances = key_positions - query_positions[:, None]
        return distances.clamp(-self.max_distance, self.max_distance) + self.max_distance


AttentionScore = DotScore | AdditiveScore | RelativeScore

ATTENTION_SCORES: dict[str, Callable[[int], AttentionScore]] = {
    "scaled_dot": partial(DotScore, scaled=True),
    "dot": partial(DotScore, scaled=False),
    "additive": AdditiveScore,
}
"""For each value of `model.attention_score`, the function that makes the score from d_k, without relative positions."""


def attention_weights(score: AttentionScore, queries: Queries, keys: Keys, mask: Mask) -> Scores:
    """softmax(score(Q, K)), the weights by which attention sums the values (paper 3.2.1, eq. 1).

    A score's `attend` returns these weights times the values, if possible without materialising the weights; with
    relative positions, times the sums of the values and the vectors of their distances.
    """
    scores: Tensor = score(queries, keys)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (paper 3.2.2).

    W^Q, W^K and W^V of all heads are stacked in one matrix, so that self-attention projects all of them by one product.
    The three uses (paper 3.2.3) are `project` and then `attend` in the encoder and, with a causal mask, in the decoder,
    and `project_queries`, `project_memory` and then `attend` for the encoder-decoder attention.

    Args:
        config: the settings of the network.
        is_self_attention: whether it is self-attention of the encoder or decoder, to which relative and rotary
            positions apply; False for encoder-decoder attention.
    """

    def __init__(self, config: TransformerConfig, *, is_self_attention: bool = False) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = config.num_heads, config.d_k, config.d_v
        self.query_width = config.num_heads * config.d_k
        self.projection = Linear(config.d_model, 2 * self.query_width + config.num_heads * config.d_v)
        self.score: AttentionScore = (
            RelativeScore(config)
            if is_self_attention and config.positions == "relative"
            else ATTENTION_SCORES[config.attention_score](config.d_k)
        )
        self.output = Linear(config.num_heads * config.d_v, config.d_model)
        is_rotary = is_self_attention and config.positions == "rotary"
        self.rotary_positions = RotaryPositions(config.d_k) if is_rotary else None

    def project(
        self, inputs: Float[Tensor, "batch query d_model"], position: int | None = None
    ) -> tuple[Queries, KeysAndValues]:
        """Queries, keys and values of every head, from the same inputs.

        The rows of a sentence are at positions 0, 1, 2...; if `position` is given, every row is at that position, as in
        one step of decoding. Only rotary positions read it.
        """
        width = self.query_width
        parts = torch.split(self.projection(inputs), [width, width, self.num_heads * self.d_v], dim=-1)
        queries, keys, values = map(self._heads, parts)
        if self.rotary_positions is not None:
            queries, keys = (self.rotary_positions(part, position) for part in (queries, keys))
        return queries, KeysAndValues(keys, values)

    def project_queries(self, inputs: Float[Tensor, "batch query d_model"]) -> Queries:
        """Queries alone, for the decoder's side of the encoder-decoder attention."""
        return self._heads(self.projection(inputs, slice(None, self.query_width)))

    def project_memory(self, memory: Float[Tensor, "batch key d_model"]) -> KeysAndValues:
        """Keys and values alone, for the encoder's side: the same for every position of the target."""
        projected = self.projection(memory, slice(self.query_width, None))
        keys, values = torch.split(projected, [self.query_width, self.num_heads * self.d_v], dim=-1)
        return KeysAndValues(self._heads(keys), self._heads(values))

    def attend(
        self, queries: Queries, keys_and_values: KeysAndValues, mask: Mask
    ) -> Float[Tensor, "batch query d_model"]:
        """Attention in every head, the heads side by side, and the output projection W^O."""
        attended = self.score.attend(queries, *keys_and_values, mask)
        outputs: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return outputs

    def _heads(self, projected: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch heads length d_head"]:
        return torch.unflatten(projected, -1, (self.num_heads, -1)).transpose(1, 2)


Attend = Callable[[MultiHeadAttention, Queries, KeysAndValues, Mask], Tensor]
"""A function that computes an attention: `MultiHeadAttention.attend`, or another that observes or changes it."""
