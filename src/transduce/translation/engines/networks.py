"""Networks for searches: log-probabilities of the next token, for the hypotheses of many sentences.

`InferenceModel` computes the formulas of `model/` in as few operations as they allow. Translating one sentence, nearly
all time goes into starting operations; translating many, into moving numbers. So it has no modules, its weights are
laid out once, and keys and values are written where matrix products read them. Tests hold it to the model within 1e-5.

Axes: `rows` are the hypotheses of one sentence after the other, `sentences` times `width`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.bundle import collect_model_tensors
from transduce.kernels.batch_invariance import pad_to_row_multiple
from transduce.kernels.device import ComputePrecision
from transduce.kernels.key_value_cache import BeamDecoderState, KeyValueCache, compute_source_capacity
from transduce.kernels.native.decoding import DecoderCache
from transduce.kernels.native.library import Library, find_library
from transduce.model import (
    DecoderLayer,
    DotScore,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    MultiHeadAttention,
    ResidualConnection,
    Transformer,
)
from transduce.model.encoder_decoder import State
from transduce.model.sublayers import ACTIVATIONS, EPSILON
from transduce.search.beam import LastIds, LogProbs, StateT
from transduce.translation.engines.compiled_engine import CompiledModel
from transduce.translation.engines.engine import has_inference_model

SourceIds = Int[Tensor, "sentences source"]
SourceMask = Bool[Tensor, "sentences source"]


@runtime_checkable
class Network(Protocol[StateT]):
    """A model that computes the probabilities of a search step by step."""

    def start(self, source_ids: SourceIds, source_mask: SourceMask) -> StateT:
        """Read the source, of which `source_mask` marks the real tokens; returns the state before the first token."""
        ...

    def step(self, last_ids: LastIds, state: StateT) -> tuple[LogProbs, StateT]:
        """One step of a search, see `search.StepFunction`; before the first token, the last id is `<pad>`."""
        ...


def make_network(model: EncoderDecoder, precision: ComputePrecision) -> Network[Any]:
    """The network of `model` with its weights as they are now, computed in this precision.

    In float32 and int8 on a processor it is `CompiledNetwork`, where the library of compiled kernels is there; else
    `InferenceModel`. What these do not support (see `has_inference_model`) is computed by the model itself in float32.

    Raises:
        ConfigError: `TRANSDUCE_KERNELS` names no level of instruction sets, or one that is not there.
    """
    if not has_inference_model(model.config) or not isinstance(model, Transformer):
        return ModelNetwork(model)
    weight = model.source_embedding.weight
    is_float32 = weight.dtype == precision.compute_dtype == torch.float32 and not precision.is_mixed
    library = find_library() if weight.device.type == "cpu" and is_float32 else None
    if library is None:
        return InferenceModel(model, precision)
    return CompiledNetwork.from_model(model, library, is_int8=precision.is_int8)


def make_ensemble(networks: Sequence[Network[Any]]) -> Network[Any]:
    """A network that averages the probabilities of several networks; a single one is returned unchanged."""
    return networks[0] if len(networks) == 1 else Ensemble(networks)


@dataclass(frozen=True)
class _States:
    states: tuple[Any, ...]

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_States":
        """The states for the selected sentences and hypotheses; see `search.SearchState`."""
        return _States(tuple(state.select(sentences, parents) for state in self.states))


class Ensemble:
    """Several networks with one vocabulary: each token's probability is the mean of theirs."""

    def __init__(self, networks: Sequence[Network[Any]]) -> None:
        self.networks = networks

    def start(self, source_ids: SourceIds, source_mask: SourceMask) -> _States:
        """Read the source; see `Network`."""
        return _States(tuple(network.start(source_ids, source_mask) for network in self.networks))

    def step(self, last_ids: LastIds, state: _States) -> tuple[LogProbs, _States]:
        """One step of the search; see `Network`."""
        pairs = zip(self.networks, state.states, strict=True)
        log_probs, states = zip(*(network.step(last_ids, own) for network, own in pairs), strict=True)
        mean = torch.stack([part.float() for part in log_probs]).logsumexp(dim=0) - math.log(len(states))
        return mean, _States(states)


@dataclass(frozen=True)
class _RowsState:
    """The state of a model, whose rows are the hypotheses of one sentence after the other, `width` for each."""

    state: State
    width: int

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_RowsState":
        """The states for the selected sentences and hypotheses; see `search.SearchState`."""
        if sentences is None:
            sentences = torch.arange(len(parents), device=parents.device)
        rows = (sentences[:, None] * self.width + parents).flatten()
        return _RowsState(self.state.reorder(rows), parents.size(1))


class ModelNetwork:
    """The model itself, in evaluation mode, with a row for each hypothesis: the plain reference of `InferenceModel`."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model

    def start(self, source_ids: SourceIds, source_mask: SourceMask) -> _RowsState:
        """Read the source; see `Network`."""
        source_ids, source_mask = pad_to_row_multiple(source_ids, source_mask, self.model.pad_id, self.model.max_length)
        return _RowsState(self.model.start(self.model.encode(source_ids, source_mask), source_mask), 1)

    def step(self, last_ids: LastIds, state: _RowsState) -> tuple[LogProbs, _RowsState]:
        """One step of the search; see `Network`."""
        logits, rows = self.model.decode_step(last_ids.flatten(), state.state)
        log_probs = logits.float().log_softmax(dim=-1)
        return log_probs.view(*last_ids.shape, -1), _RowsState(rows, last_ids.size(1))


@contextmanager
def evaluation_mode(models: Sequence[EncoderDecoder]) -> Iterator[None]:
    """A context in which the models are in evaluation mode; after it, each is in its former mode."""
    training = [model for model in models if model.training]
    for model in training:
        model.eval()
    try:
        yield
    finally:
        for model in training:
            model.train()


@dataclass(frozen=True)
class CompiledState:
    """State of the compiled decoder for a batch; selecting and stepping modify its cache in place and return it."""

    cache: DecoderCache

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "CompiledState":
        """The state for the selected sentences and hypotheses; see `search.SearchState`."""
        self.cache.select(None if sentences is None else sentences.tolist(), parents.tolist())
        return self


class CompiledNetwork:
    """A `CompiledModel` as a `Network`."""

    def __init__(self, model: CompiledModel) -> None:
        self.model = model

    @classmethod
    def from_model(cls, model: Transformer, library: Library, *, is_int8: bool = False) -> "CompiledNetwork":
        """Pack the weights of a float32 model on the CPU; the embeddings are not copied."""
        weights = {name: tensor.detach().numpy() for name, tensor in collect_model_tensors(model).items()}
        return cls(CompiledModel(model.config, weights, library, is_int8=is_int8))

    def start(self, source_ids: SourceIds, source_mask: SourceMask) -> CompiledState:
        """Read the source; see `Network`."""
        mask = source_mask.numpy()
        _, positions = mask.nonzero()
        ids, lengths = source_ids.numpy()[mask], mask.sum(axis=1)
        return CompiledState(self.model.encode(ids, positions, lengths, mask.shape[1]))

    @torch.no_grad()
    def step(self, last_ids: LastIds, state: CompiledState) -> tuple[LogProbs, CompiledState]:
        """One step of the search; see `Network`."""
        log_probs = torch.empty(*last_ids.shape, self.model.vocabulary, dtype=torch.float32, device="cpu")
        self.model.step(last_ids.flatten().tolist(), state.cache, log_probs.data_ptr())
        return log_probs, state


_ROWS_AT_A_TIME = 64
"""Number of rows whose logits are computed at a time, so that they fit into the processor's cache."""


class _Normalization:
    def __init__(self, normalization: LayerNormalization, dtype: torch.dtype) -> None:
        self.gain, self.bias = normalization.gain.detach().to(dtype), normalization.bias.detach().to(dtype)

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.layer_norm(inputs, self.gain.shape, self.gain, self.bias, EPSILON)


class _Residual:
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)); the sub-layer adds the residual by itself."""

    def __init__(self, residual: ResidualConnection, dtype: torch.dtype) -> None:
        self.post = residual.post
        self.normalization = _Normalization(cast("LayerNormalization", residual.normalization), dtype)

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        if self.post:
            return self.normalization(sublayer(x, x))
        return sublayer(self.normalization(x), x)


class _FeedForward:
    def __init__(self, network: FeedForward, precision: ComputePrecision) -> None:
        self.inner = precision.make_linear(network.inner.weight, network.inner.bias)
        self.outer = precision.make_linear(network.outer.weight, network.outer.bias)
        self.activation = network.activation
        self.has_relu = network.activation is ACTIVATIONS["relu"]

    def __call__(self, inputs: Tensor, residual: Tensor) -> Tensor:
        hidden = self.inner.relu(inputs) if self.has_relu else self.activation(self.inner(inputs))
        return self.outer.add(hidden, residual)


class _Attention:
    """One attention, which projects queries, keys and values together, or those of another sequence apart."""

    def __init__(self, attention: MultiHeadAttention, precision: ComputePrecision, *, is_cross_attention: bool) -> None:
        self.scale = cast("DotScore", attention.score).scale
        self.num_heads, self.d_k, self.d_v = attention.num_heads, attention.d_k, attention.d_v
        weight, bias, width = attention.projection.weight, attention.projection.bias, attention.query_width
        self.widths = [width, width, attention.num_heads * attention.d_v]
        if is_cross_attention:
            self.queries = precision.make_linear(weight[:width], bias[:width])
            self.projection = precision.make_linear(weight[width:], bias[width:])
            self.widths = self.widths[1:]
        else:
            self.projection = precision.make_linear(weight, bias)
        self.output = precision.make_linear(attention.output.weight, attention.output.bias)

    def project(self, inputs: Tensor, sentences: int) -> list[Tensor]:
        """Queries, keys and values of all heads; of the memory, keys and values."""
        parts = self.projection(inputs).split_with_sizes(self.widths, dim=1)
        return [self.split_heads(part, sentences) for part in parts]

    def split_heads(self, projected: Tensor, sentences: int) -> Tensor:
        """[rows, heads * d_head] as [sentences, heads, positions, d_head], without copying."""
        return projected.view(sentences, -1, self.num_heads, projected.size(1) // self.num_heads).transpose(1, 2)

    def attend(self, queries: Tensor, cache: KeyValueCache, mask: Tensor | None, residual: Tensor) -> Tensor:
        """Attention of `queries` [sentences, heads, width, d_k] to all positions, and W^O.

        `mask` [sentences * heads, width or 1, positions] is added to the scores.
        """
        sentences, heads, width, d_k = queries.shape
        queries = queries.reshape(sentences * heads, width, d_k)
        # With beta = 0 the added tensor is not read, but its shape must fit.
        added, beta = (queries[:, :, :1], 0) if mask is None else (mask, 1)
        scores = torch.baddbmm(added, queries, cache.keys.transpose(1, 2), beta=beta, alpha=self.scale)
        attended = torch.bmm(scores.softmax(dim=-1), cache.values).view(sentences, heads, width, self.d_v)
        return self.output.add(attended.transpose(1, 2).reshape(sentences * width, heads * self.d_v), residual)


class _EncoderLayer:
    def __init__(self, layer: EncoderLayer, precision: ComputePrecision) -> None:
        self.attention = _Attention(layer.self_attention, precision, is_cross_attention=False)
        self.feed_forward = _FeedForward(cast("FeedForward", layer.feed_forward), precision)
        self.residuals = [
            _Residual(layer.self_attention_residual, precision.compute_dtype),
            _Residual(layer.feed_forward_residual, precision.compute_dtype),
        ]

    def __call__(self, x: Tensor, sentences: int, capacity: int, mask: Tensor | None) -> Tensor:
        attention = self.attention

        def attend(inputs: Tensor, residual: Tensor) -> Tensor:
            queries, keys, values = attention.project(inputs, sentences)
            return attention.attend(queries, KeyValueCache.from_positions(keys, values, capacity), mask, residual)

        x = self.residuals[0](x, attend)
        return self.residuals[1](x, self.feed_forward)


class _DecoderLayer:
    def __init__(self, layer: DecoderLayer, precision: ComputePrecision) -> None:
        self.self_attention = _Attention(layer.self_attention, precision, is_cross_attention=False)
        self.cross_attention = _Attention(layer.cross_attention, precision, is_cross_attention=True)
        self.feed_forward = _FeedForward(cast("FeedForward", layer.feed_forward), precision)
        self.residuals = [
            _Residual(layer.self_attention_residual, precision.compute_dtype),
            _Residual(layer.cross_attention_residual, precision.compute_dtype),
            _Residual(layer.feed_forward_residual, precision.compute_dtype),
        ]

    def project_memory(self, memory: Tensor, sentences: int, capacity: int) -> KeyValueCache:
        """Keys and values of the memory, which stay the same for every token."""
        keys, values = self.cross_attention.project(memory, sentences)
        return KeyValueCache.from_positions(keys, values, capacity)

    def __call__(
        self, x: Tensor, caches: Sequence[KeyValueCache], state: BeamDecoderState, masks: tuple[Tensor, Tensor | None]
    ) -> Tensor:
        (past, memory), (visible, source) = caches, masks
        sentences = past.keys.size(0) // past.num_heads
        width = len(x) // sentences

        def attend_to_past(inputs: Tensor, residual: Tensor) -> Tensor:
            queries, keys, values = self.self_attention.project(inputs, sentences)
            past.write(state.used - width, keys, values)
            return self.self_attention.attend(queries, past, visible, residual)

        def attend_to_memory(inputs: Tensor, residual: Tensor) -> Tensor:
            attention = self.cross_attention
            queries = attention.split_heads(attention.queries(inputs), sentences)
            return attention.attend(queries, memory, source, residual)

        x = self.residuals[0](x, attend_to_past)
        x = self.residuals[1](x, attend_to_memory)
        return self.residuals[2](x, self.feed_forward)


class InferenceModel:
    """A `Network` that computes a Transformer in few operations, if `has_inference_model` is true of its configuration.

    In float32 the weights are the model's own, in bfloat16 they are copies.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, precision: ComputePrecision) -> None:
        self.compute_dtype, self.num_heads = precision.compute_dtype, model.config.num_heads
        self.is_batch_invariant = precision.is_batch_invariant
        self.narrowest = min(model.config.d_k, model.config.d_v)
        self.source_embedding, self.target_embedding = model.source_embedding.weight, model.target_embedding.weight
        self.scale = model.source_embedding.scale
        self.positions = model.positions
        self.encoder = [_EncoderLayer(layer, precision) for layer in model.encoder.layers]
        self.decoder = [_DecoderLayer(layer, precision) for layer in model.decoder.layers]
        self.after_encoder, self.after_decoder = (
            None if stack.final is None else _Normalization(cast("LayerNormalization", stack.final), self.compute_dtype)
            for stack in (model.encoder, model.decoder)
        )
        self.vocabulary = model.config.vocabulary
        self.projection = precision.make_linear(model.projection.weight, model.projection.addend)

    def start(self, source_ids: SourceIds, source_mask: SourceMask) -> BeamDecoderState:
        """Read the source; see `Network`."""
        if self.is_batch_invariant:
            source_ids, source_mask = pad_to_row_multiple(
                source_ids, source_mask, self.vocabulary - 1, self.positions.limit
            )
        sentences, length = source_ids.shape
        capacity = compute_source_capacity(length, self.narrowest) if self.is_batch_invariant else length
        x = self._embed(source_ids, self.source_embedding, self.positions(length).repeat(sentences, 1))
        source = None
        if capacity > length or not source_mask.all():
            least = torch.finfo(self.compute_dtype).min
            source = x.new_full((sentences, 1, 1, capacity), least)
            source[:, 0, 0, :length].masked_fill_(source_mask, 0)
        mask = None if source is None else self._repeat_for_heads(source)
        for layer in self.encoder:
            x = layer(x, sentences, capacity, mask)
        if self.after_encoder is not None:
            x = self.after_encoder(x)
        empty = [
            KeyValueCache(
                x.new_empty(sentences * self.num_heads, 0, layer.self_attention.d_k),
                x.new_empty(sentences * self.num_heads, 0, layer.self_attention.d_v),
                self.num_heads,
            )
            for layer in self.decoder
        ]
        memory = tuple(layer.project_memory(x, sentences, capacity) for layer in self.decoder)
        return BeamDecoderState(memory, tuple(empty), source, x.new_empty(sentences, 1, 0))

    def step(self, last_ids: LastIds, state: BeamDecoderState) -> tuple[LogProbs, BeamDecoderState]:
        """One step of the search, with log-probabilities in the compute type; `<pad>` has -inf."""
        sentences, width = last_ids.shape
        x = self._embed(last_ids, self.target_embedding, self.positions(1, state.length))
        state = state.extend(width)
        # One mask for the heads of all layers.
        visible = self._repeat_for_heads(state.visible[:, None])
        source = None if state.source is None else self._repeat_for_heads(state.source)
        for layer, *caches in zip(self.decoder, state.past, state.memory, strict=True):
            x = layer(x, caches, state, (visible, source))
        if self.after_decoder is not None:
            x = self.after_decoder(x)
        return self._log_probs(x).view(sentences, width, -1), state

    def _embed(self, ids: Tensor, embedding: Tensor, positions: Tensor) -> Float[Tensor, "rows d_model"]:
        return torch.add(positions, F.embedding(ids.flatten(), embedding), alpha=self.scale).to(self.compute_dtype)

    def _repeat_for_heads(self, mask: Float[Tensor, "sentences 1 width keys"]) -> Float[Tensor, "rows width keys"]:
        return mask.expand(-1, self.num_heads, -1, -1).flatten(0, 1)

    def _log_probs(self, x: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows vocabulary"]:
        if len(x) <= _ROWS_AT_A_TIME or x.device.type != "cpu":
            return self.projection(x).log_softmax(dim=-1)
        found = x.new_empty(len(x), self.vocabulary)
        for first in range(0, len(x), _ROWS_AT_A_TIME):
            rows = slice(first, first + _ROWS_AT_A_TIME)
            torch.log_softmax(self.projection(x[rows]), dim=-1, out=found[rows])
        return found
