"""The network in compiled code, for processors: float32 or int8, several times as fast as PyTorch's operations."""

from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.kernels.device import ComputePrecision
from transduce.kernels.native.decoding import (
    AttentionSizes,
    DecoderCache,
    PackedAttention,
    PackedLayer,
    PackedStack,
    PackedTransformer,
)
from transduce.kernels.native.library import Library, find_library
from transduce.kernels.native.packing import Floats, PackedMatrix, PackedNormalization, Places, address
from transduce.model import (
    Decoder,
    DecoderLayer,
    DotScore,
    Encoder,
    EncoderLayer,
    LayerNormalization,
    MultiHeadAttention,
    ResidualConnection,
    TokenEmbedding,
    Transformer,
)
from transduce.search import BeamStep, BestContinuations
from transduce.translation.engines.inference_model import Network, has_inference_model, make_torch_network

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIRST_POSITIONS = 256
"""Rows of the table of positions that are computed at once."""


def make_network(model: Transformer, precision: ComputePrecision) -> Network[Any]:
    """The network of `model` with its weights as they are now, computed in this precision.

    In float32 and int8 on a processor it is `CompiledModel`, where the library of compiled kernels is there; else see
    `make_torch_network`.

    Raises:
        ConfigError: `TRANSDUCE_KERNELS` names no level of instruction sets, or one that is not there.
    """
    weight = model.source_embedding.weight
    is_float32 = weight.dtype == precision.compute_dtype == torch.float32 and not precision.is_mixed
    if weight.device.type == "cpu" and is_float32 and has_inference_model(model.config):
        library = find_library()
        if library is not None:
            return CompiledModel(model, library, is_int8=precision.is_int8)
    return make_torch_network(model, precision)


class CompiledState:
    """State of the compiled decoder for a batch; selecting and stepping modify it in place and return it.

    Args:
        cache: keys and values.
    """

    def __init__(self, cache: DecoderCache) -> None:
        self.cache = cache

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "CompiledState":
        """The state for the selected sentences and hypotheses; see `search.SearchState`."""
        self.cache.select(None if sentences is None else sentences.tolist(), parents.tolist())
        return self


class CompiledModel:
    """A Transformer in compiled code, see `Network`: with dot products as attention scores, and layer normalisation.

    Embeddings are shared with the model, all other weights are packed copies. What a sentence gets is the same, to the
    last bit, in every batch. Methods may be called by several threads at a time, as the library holds no lock of
    Python's while it computes.

    Args:
        model: the weights, in float32 on a processor.
        library: the level of instruction sets.
        is_int8: whether linear layers multiply integers of 8 bits.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, library: Library, *, is_int8: bool = False) -> None:
        config = model.config
        score = cast("DotScore", model.encoder.layers[0].self_attention.score)
        packer = _Packer(
            library, AttentionSizes(config.num_heads, config.d_k, config.d_v, score.scale), is_int8=is_int8
        )
        self._packed = PackedTransformer(
            library,
            encoder=packer.pack_stack(model.encoder, model.source_embedding),
            decoder=packer.pack_stack(model.decoder, model.target_embedding),
            projection=packer.pack(model.projection.weight, model.projection.addend, bias_fill=-np.inf),
            attention=packer.sizes,
            embedding_scale=model.source_embedding.scale,
            activation=config.activation,
            is_pre_norm=config.norm_order == "pre",
        )
        self._make_positions = model.positions
        self._tables = [_PositionTable(self._compute_positions(min(_FIRST_POSITIONS, model.positions.limit)))]

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> CompiledState:
        """Read the source; see `Network`."""
        mask = source_mask.numpy()
        _, places = mask.nonzero()
        table = self._find_table(mask.shape[1])
        lengths = mask.sum(axis=1)
        return CompiledState(self._packed.read_source(source_ids.numpy()[mask], places, lengths, table.positions))

    @torch.no_grad()
    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: CompiledState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], CompiledState]:
        """One step of the search; see `Network`."""
        log_probs = torch.empty(*last_ids.shape, self._packed.vocabulary)
        position = self._find_position(state.cache.length)
        state.cache.step(last_ids.flatten().tolist(), position, log_probs.data_ptr())
        return log_probs, state

    def step_best(self, step: BeamStep, state: CompiledState) -> tuple[list[BestContinuations], CompiledState]:
        """One step of a beam search, with its choice of continuations; see `search.BestStepFunction`."""
        cache = state.cache
        if step.parents is not None:
            cache.select(step.sentences, step.parents)
        found = cache.step_best(
            list(chain.from_iterable(step.last_ids)),
            self._find_position(cache.length),
            sums=list(chain.from_iterable(step.sums)),
            limits=step.limits,
            count=step.num_best,
            end_id=step.end_id,
        )
        scores, parents, ids = (part.tolist() for part in found)
        return list(zip(scores, parents, ids, strict=True)), state

    def _find_position(self, place: int) -> int:
        """The address of the numbers that mark a position."""
        table = self._find_table(place + 1)
        return table.address + place * table.stride

    def _find_table(self, length: int) -> "_PositionTable":
        """A table of at least this many positions; tables are never freed, as another thread may still read it."""
        table = self._tables[-1]
        if length > table.length:
            limit = self._make_positions.limit
            table = _PositionTable(self._compute_positions(length if length > limit else min(2 * length, limit)))
            self._tables.append(table)
        return table

    @torch.no_grad()
    def _compute_positions(self, length: int) -> Floats:
        positions: Floats = self._make_positions(length).contiguous().numpy().copy()
        return positions


class _PositionTable:
    """Positional encodings of the first positions, [length, d_model], with their memory address and row stride."""

    def __init__(self, positions: Floats) -> None:
        self.positions, self.length = positions, len(positions)
        self.address, self.stride = address(positions), positions.strides[0]


class _Packer:
    """Packs the parts of a model for a level of instruction sets."""

    def __init__(self, library: Library, sizes: AttentionSizes, *, is_int8: bool) -> None:
        self.library, self.sizes, self.is_int8 = library, sizes, is_int8

    def pack(self, weight: Tensor, bias: Tensor | None, **layout: Any) -> PackedMatrix:  # noqa: ANN401 - of PackedMatrix
        """A linear layer."""
        addend = None if bias is None else bias.detach().numpy()
        return PackedMatrix(self.library, weight.detach().numpy(), addend, is_int8=self.is_int8, **layout)

    def pack_stack(self, stack: Encoder | Decoder, embedding: TokenEmbedding) -> PackedStack:
        """The encoder or the decoder."""
        layers = [self.pack_layer(layer) for layer in cast("Iterable[EncoderLayer | DecoderLayer]", stack.layers)]
        norm = None if stack.final is None else _pack_norm(cast("LayerNormalization", stack.final))
        return PackedStack(layers, embedding.weight.detach().numpy(), norm)

    def pack_layer(self, layer: EncoderLayer | DecoderLayer) -> PackedLayer:
        """A layer of either."""
        cross_attention = None
        if isinstance(layer, DecoderLayer):
            cross_attention = self.pack_attention(
                layer.cross_attention, layer.cross_attention_residual, is_cross_attention=True
            )
        inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
        return PackedLayer(
            self.pack_attention(layer.self_attention, layer.self_attention_residual, is_cross_attention=False),
            self.pack(inner.weight, inner.bias),
            self.pack(outer.weight, outer.bias),
            _pack_norm(cast("LayerNormalization", layer.feed_forward_residual.normalization)),
            cross_attention,
        )

    def pack_attention(
        self, attention: MultiHeadAttention, residual: ResidualConnection, *, is_cross_attention: bool
    ) -> PackedAttention:
        """An attention, with queries, keys and values of each head at their padded places."""
        queries, values = self.sizes.queries, self.sizes.values
        weight, bias, width = attention.projection.weight, attention.projection.bias, attention.query_width
        memory = None
        if is_cross_attention:
            projection = self.pack(weight[:width], bias[:width], outputs=queries)
            memory = self.pack(weight[width:], bias[width:], outputs=_join(queries, values))
        else:
            projection = self.pack(weight, bias, outputs=_join(queries, queries, values))
        output = self.pack(attention.output.weight, attention.output.bias, inputs=values)
        return PackedAttention(
            projection, output, _pack_norm(cast("LayerNormalization", residual.normalization)), memory
        )


def _join(*parts: Places) -> Places:
    return Places.side_by_side(parts)


def _pack_norm(norm: LayerNormalization) -> PackedNormalization:
    return PackedNormalization(norm.gain.detach().numpy(), norm.bias.detach().numpy())
