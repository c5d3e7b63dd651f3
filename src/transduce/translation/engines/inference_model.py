"""The network as a search wants it: log-probabilities of the next token, for the hypotheses of many sentences."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.key_value_cache import LayerCache, SideBySideState, room_for_source
from transduce.kernels.linear import in_whole_rows
from transduce.kernels.precision import Arithmetic
from transduce.model import (
    DecoderLayer,
    DecoderState,
    DotScore,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    MultiHeadAttention,
    ResidualConnection,
    Transformer,
)
from transduce.model.feed_forward import ACTIVATIONS
from transduce.model.normalization import EPSILON
from transduce.search.interface import StateT


@runtime_checkable
class Network(Protocol[StateT]):
    """A model with a state that a search can use."""

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> StateT:
        """Reads the source, of which `source_mask` marks the real tokens: the state before the first token."""
        ...

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: StateT
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], StateT]:
        """A `search.StepFunction`; before the first token, the last id is `<pad>`."""
        ...


def make_network(model: Transformer, arithmetic: Arithmetic) -> Network[Any]:
    """The network of `model` with its weights as they are now, computed as `arithmetic` says.

    What is rarely used, additive attention and batch normalisation, is computed by the model itself, in float32.
    """
    return PreparedNetwork(model, arithmetic) if is_prepared(model.config) else ModelNetwork(model)


def is_prepared(config: TransformerConfig) -> bool:
    """Whether `PreparedNetwork` knows everything that this network has."""
    return config.attention_score != "additive" and config.normalization == "layer"


def token_bytes(config: TransformerConfig, width: int) -> int:
    """What a step of the decoder needs for each token of one of `width` hypotheses, in numbers of two bytes at least.

    That is a key and a value in every layer; and where hypotheses lie side by side, for every other one whether it
    sees the token, once and for each head, and the score that it has in each head.
    """
    keys_and_values = config.num_decoder_layers * config.num_heads * (config.d_k + config.d_v)
    return 2 * (keys_and_values + (width * (1 + 2 * config.num_heads) if is_prepared(config) else 0))


def make_ensemble(networks: Sequence[Network[Any]]) -> Network[Any]:
    """One network of several; a single one is itself."""
    return networks[0] if len(networks) == 1 else Ensemble(networks)


@dataclass(frozen=True)
class _States:
    """That of each network."""

    states: tuple[Any, ...]

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_States":
        """See `search.SearchState`."""
        return _States(tuple(state.select(sentences, parents) for state in self.states))


class Ensemble:
    """Several networks with one vocabulary: each token's probability is the mean of theirs."""

    def __init__(self, networks: Sequence[Network[Any]]) -> None:
        self.networks = networks

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _States:
        """See `Network`."""
        return _States(tuple(network.start(source_ids, source_mask) for network in self.networks))

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _States
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _States]:
        """See `Network`."""
        pairs = zip(self.networks, state.states, strict=True)
        log_probs, states = zip(*(network.step(last_ids, own) for network, own in pairs), strict=True)
        mean = torch.stack([part.float() for part in log_probs]).logsumexp(dim=0) - math.log(len(states))
        return mean, _States(states)


@dataclass(frozen=True)
class _RowsState:
    """The state of the model itself, whose rows are the hypotheses of one sentence after the other."""

    state: DecoderState
    width: int

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_RowsState":
        """See `search.SearchState`."""
        if sentences is None:
            sentences = torch.arange(len(parents), device=parents.device)
        rows = (sentences[:, None] * self.width + parents).flatten()
        return _RowsState(self.state.reorder(rows), parents.size(1))


class ModelNetwork:
    """The model as it is, a row for each hypothesis; to be used in evaluation mode."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _RowsState:
        """See `Network`."""
        source_ids, source_mask = in_whole_rows(source_ids, source_mask, self.model.pad_id, self.model.longest)
        return _RowsState(self.model.start(self.model.encode(source_ids, source_mask), source_mask), 1)

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _RowsState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _RowsState]:
        """See `Network`."""
        logits, rows = self.model.decode_step(last_ids.flatten(), state.state)
        log_probs = logits.float().log_softmax(dim=-1)
        return log_probs.view(*last_ids.shape, -1), _RowsState(rows, last_ids.size(1))


@contextmanager
def evaluating(models: Sequence[Transformer]) -> Iterator[None]:
    """Within, the models are in evaluation mode; behind it, each is in the mode in which it was found."""
    training = [model for model in models if model.training]
    for model in training:
        model.eval()
    try:
        yield
    finally:
        for model in training:
            model.train()


_ROWS_AT_A_TIME = 64
"""Rows whose logits are computed at a time, so that they are still in the processor's cache when they are read."""


class _Normalization:
    def __init__(self, normalization: LayerNormalization, dtype: torch.dtype) -> None:
        self.gain, self.bias = normalization.gain.detach().to(dtype), normalization.bias.detach().to(dtype)

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.layer_norm(inputs, self.gain.shape, self.gain, self.bias, EPSILON)


class _Residual:
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)); the sub-layer adds to what it is given."""

    def __init__(self, residual: ResidualConnection, dtype: torch.dtype) -> None:
        self.post = residual.post
        self.normalization = _Normalization(cast("LayerNormalization", residual.normalization), dtype)

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        if self.post:
            return self.normalization(sublayer(x, x))
        return sublayer(self.normalization(x), x)


class _FeedForward:
    def __init__(self, network: FeedForward, arithmetic: Arithmetic) -> None:
        self.inner = arithmetic.product(network.inner.weight, network.inner.bias)
        self.outer = arithmetic.product(network.outer.weight, network.outer.bias)
        self.activation = network.activation
        self.is_rectifier = network.activation is ACTIVATIONS["relu"]

    def __call__(self, inputs: Tensor, residual: Tensor) -> Tensor:
        hidden = self.inner.rectified(inputs) if self.is_rectifier else self.activation(self.inner(inputs))
        return self.outer.plus(hidden, residual)


class _Attention:
    """The products of one attention: queries, keys and values together, or queries alone and the others alone."""

    def __init__(self, attention: MultiHeadAttention, arithmetic: Arithmetic, *, of_memory: bool) -> None:
        self.scale = cast("DotScore", attention.score).scale
        self.num_heads, self.d_k, self.d_v = attention.num_heads, attention.d_k, attention.d_v
        weight, bias, width = attention.projection.weight, attention.projection.bias, attention.query_width
        if of_memory:
            self.queries = arithmetic.product(weight[:width], bias[:width])
            self.keys_and_values = arithmetic.product(weight[width:], bias[width:])
        else:
            self.everything = arithmetic.product(weight, bias)
        self.widths = [width, width, attention.num_heads * attention.d_v]
        self.output = arithmetic.product(attention.output.weight, attention.output.bias)

    def heads(self, projected: Tensor, sentences: int, d_head: int) -> Tensor:
        """[sentences, heads, positions, d_head] of [rows, heads * d_head], without copying."""
        return projected.view(sentences, -1, self.num_heads, d_head).transpose(1, 2)

    def cache(self, keys: Tensor, values: Tensor, sentences: int, room: int) -> LayerCache:
        """Projected keys and values in the layout of the products below."""
        return LayerCache.of(self.heads(keys, sentences, self.d_k), self.heads(values, sentences, self.d_v), room)

    def attend(self, queries: Tensor, cache: LayerCache, mask: Tensor | None, residual: Tensor) -> Tensor:
        """Attention of `queries` [sentences, heads, width, d_k] to all positions, and W^O.

        `mask` [sentences * heads, width or 1, positions] is added to the scores.
        """
        sentences, heads, width, d_k = queries.shape
        queries = queries.reshape(sentences * heads, width, d_k)
        # With beta = 0 what would be added is not read, but has to have a fitting shape.
        added, beta = (queries[:, :, :1], 0) if mask is None else (mask, 1)
        scores = torch.baddbmm(added, queries, cache.keys.transpose(1, 2), beta=beta, alpha=self.scale)
        attended = torch.bmm(scores.softmax(dim=-1), cache.values).view(sentences, heads, width, self.d_v)
        return self.output.plus(attended.transpose(1, 2).reshape(sentences * width, heads * self.d_v), residual)


class _EncoderLayer:
    def __init__(self, layer: EncoderLayer, arithmetic: Arithmetic) -> None:
        self.attention = _Attention(layer.self_attention, arithmetic, of_memory=False)
        self.feed_forward = _FeedForward(layer.feed_forward, arithmetic)
        self.residuals = [
            _Residual(layer.self_attention_residual, arithmetic.dtype),
            _Residual(layer.feed_forward_residual, arithmetic.dtype),
        ]

    def __call__(self, x: Tensor, sentences: int, room: int, mask: Tensor | None) -> Tensor:
        attention = self.attention

        def attend(inputs: Tensor, residual: Tensor) -> Tensor:
            queries, keys, values = attention.everything(inputs).split_with_sizes(attention.widths, dim=1)
            cache = attention.cache(keys, values, sentences, room)
            queries = attention.heads(queries, sentences, attention.d_k)
            return attention.attend(queries, cache, mask, residual)

        x = self.residuals[0](x, attend)
        return self.residuals[1](x, self.feed_forward)


class _DecoderLayer:
    def __init__(self, layer: DecoderLayer, arithmetic: Arithmetic) -> None:
        self.self_attention = _Attention(layer.self_attention, arithmetic, of_memory=False)
        self.memory_attention = _Attention(layer.memory_attention, arithmetic, of_memory=True)
        self.feed_forward = _FeedForward(layer.feed_forward, arithmetic)
        self.residuals = [
            _Residual(layer.self_attention_residual, arithmetic.dtype),
            _Residual(layer.memory_attention_residual, arithmetic.dtype),
            _Residual(layer.feed_forward_residual, arithmetic.dtype),
        ]

    def read(self, memory: Tensor, sentences: int, room: int) -> LayerCache:
        """Keys and values of the memory, which stay the same for every token."""
        attention = self.memory_attention
        keys, values = attention.keys_and_values(memory).split_with_sizes(attention.widths[1:], dim=1)
        return attention.cache(keys, values, sentences, room)

    def __call__(
        self,
        x: Tensor,
        caches: Sequence[LayerCache],
        state: SideBySideState,
        masks: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        (past, memory), (visible, source) = caches, masks
        sentences = past.keys.size(0) // past.num_heads
        width = len(x) // sentences

        def attend_past(inputs: Tensor, residual: Tensor) -> Tensor:
            attention = self.self_attention
            queries, keys, values = attention.everything(inputs).split_with_sizes(attention.widths, dim=1)
            past.write(
                state.used - width,
                attention.heads(keys, sentences, attention.d_k),
                attention.heads(values, sentences, attention.d_v),
            )
            queries = attention.heads(queries, sentences, attention.d_k)
            return attention.attend(queries, past, visible, residual)

        def attend_memory(inputs: Tensor, residual: Tensor) -> Tensor:
            attention = self.memory_attention
            queries = attention.heads(attention.queries(inputs), sentences, attention.d_k)
            return attention.attend(queries, memory, source, residual)

        x = self.residuals[0](x, attend_past)
        x = self.residuals[1](x, attend_memory)
        return self.residuals[2](x, self.feed_forward)


class PreparedNetwork:
    """See `translation.network.Network`. In float32 the weights are the model's own, in bfloat16 they are copies.

    For networks with dot products for scores and layer normalisation.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, arithmetic: Arithmetic) -> None:
        self.dtype, self.num_heads = arithmetic.dtype, model.config.num_heads
        self.alike_in_every_batch = arithmetic.alike_in_every_batch
        self.narrowest = min(model.config.d_k, model.config.d_v)
        self.source_embedding, self.target_embedding = model.source_embedding.weight, model.target_embedding.weight
        self.scale = model.source_embedding.scale
        self.positions = model.positions
        self.encoder = [
            _EncoderLayer(layer, arithmetic) for layer in cast("Iterable[EncoderLayer]", model.encoder.layers)
        ]
        self.decoder = [
            _DecoderLayer(layer, arithmetic) for layer in cast("Iterable[DecoderLayer]", model.decoder.layers)
        ]
        self.after_encoder, self.after_decoder = (
            None if stack.final is None else _Normalization(cast("LayerNormalization", stack.final), self.dtype)
            for stack in (model.encoder, model.decoder)
        )
        self.vocabulary = model.config.vocabulary
        self.projection = arithmetic.product(model.projection.weight, model.projection.addend)

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> SideBySideState:
        """Reads the source."""
        if self.alike_in_every_batch:
            source_ids, source_mask = in_whole_rows(source_ids, source_mask, self.vocabulary - 1, self.positions.limit)
        sentences, length = source_ids.shape
        room = room_for_source(length, self.narrowest) if self.alike_in_every_batch else length
        x = self._embed(source_ids, self.source_embedding, self.positions(length).repeat(sentences, 1))
        source = None
        if room > length or not source_mask.all():
            least = torch.finfo(self.dtype).min
            source = x.new_full((sentences, 1, 1, room), least)
            source[:, 0, 0, :length].masked_fill_(source_mask, 0)
        mask = None if source is None else self._for_heads(source)
        for layer in self.encoder:
            x = layer(x, sentences, room, mask)
        if self.after_encoder is not None:
            x = self.after_encoder(x)
        nothing = [
            LayerCache(
                x.new_empty(sentences * self.num_heads, 0, layer.self_attention.d_k),
                x.new_empty(sentences * self.num_heads, 0, layer.self_attention.d_v),
                self.num_heads,
            )
            for layer in self.decoder
        ]
        memory = tuple(layer.read(x, sentences, room) for layer in self.decoder)
        return SideBySideState(memory, tuple(nothing), source, x.new_empty(sentences, 1, 0))

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: SideBySideState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], SideBySideState]:
        """Log-probabilities in the network's type; `<pad>` has -inf."""
        sentences, width = last_ids.shape
        x = self._embed(last_ids, self.target_embedding, self.positions(1, state.length))
        state = state.grown(width)
        # One mask for the heads of all layers.
        visible = self._for_heads(state.visible[:, None])
        source = None if state.source is None else self._for_heads(state.source)
        for layer, *caches in zip(self.decoder, state.past, state.memory, strict=True):
            x = layer(x, caches, state, (visible, source))
        if self.after_decoder is not None:
            x = self.after_decoder(x)
        return self._log_probs(x).view(sentences, width, -1), state

    def _embed(self, ids: Tensor, embedding: Tensor, positions: Tensor) -> Float[Tensor, "rows d_model"]:
        return torch.add(positions, F.embedding(ids.flatten(), embedding), alpha=self.scale).to(self.dtype)

    def _for_heads(self, mask: Float[Tensor, "sentences 1 width keys"]) -> Float[Tensor, "rows width keys"]:
        return mask.expand(-1, self.num_heads, -1, -1).flatten(0, 1)

    def _log_probs(self, x: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows vocabulary"]:
        if len(x) <= _ROWS_AT_A_TIME or x.device.type != "cpu":
            return self.projection(x).log_softmax(dim=-1)
        found = x.new_empty(len(x), self.vocabulary)
        for first in range(0, len(x), _ROWS_AT_A_TIME):
            rows = slice(first, first + _ROWS_AT_A_TIME)
            torch.log_softmax(self.projection(x[rows]), dim=-1, out=found[rows])
        return found
