"""The forward pass of a Transformer, sub-layer by sub-layer, with a function that computes every attention.

The parts are the model's. Only the order in which `Encoder.forward` and `Decoder.forward` call them is written again,
so that no part of the network has to know about inspection.
"""

from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.inspection.document import AttentionName
from transduce.model import (
    DecoderLayer,
    EncoderLayer,
    KeysAndValues,
    MultiHeadAttention,
    Transformer,
    causal_attention_mask,
    source_attention_mask,
)
from transduce.model.attention import Mask, Queries


class Place(NamedTuple):
    """One of the model's attentions; layers from 0."""

    attention: AttentionName
    layer: int


@runtime_checkable
class Attend(Protocol):
    """A function that computes an attention, as `MultiHeadAttention.attend` does, and may record or change it."""

    def __call__(
        self,
        place: Place,
        attention: MultiHeadAttention,
        queries: Queries,
        keys_and_values: KeysAndValues,
        mask: Mask,
    ) -> Float[Tensor, "batch query d_model"]:
        """The output of the attention."""
        ...


def encode(
    model: Transformer,
    source_ids: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    attend: Attend,
) -> Float[Tensor, "batch source d_model"]:
    """The memory, as `Transformer.encode` computes it in evaluation."""
    mask = source_attention_mask(source_mask)
    x = model.source_embedding(source_ids) + model.positions(source_ids.size(1))
    for number, layer in enumerate(cast("list[EncoderLayer]", list(model.encoder.layers))):
        x = _self_attend(layer, x, source_mask, mask, Place("encoder", number), attend)
        x = layer.feed_forward_residual(x, source_mask, layer.feed_forward)
    memory: Tensor = x if model.encoder.final is None else model.encoder.final(x, source_mask)
    return memory


def decode(
    model: Transformer,
    target_ids: Int[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
    memory: Float[Tensor, "batch source d_model"],
    source_mask: Bool[Tensor, "batch source"],
    attend: Attend,
) -> list[Float[Tensor, "batch target d_model"]]:
    """The output of each decoder layer, as `Transformer.decode` computes it in evaluation."""
    causal_mask = causal_attention_mask(target_ids.size(1), target_ids.device)
    x = model.target_embedding(model.shift_right(target_ids)) + model.positions(target_ids.size(1))
    outputs = []
    for number, layer in enumerate(decoder_layers(model)):
        x = _self_attend(layer, x, target_mask, causal_mask, Place("decoder", number), attend)
        memory_keys_and_values = layer.cross_attention.project_memory(memory)
        x = cross_attend(
            layer, x, target_mask, memory_keys_and_values, source_mask, Place("encoder_decoder", number), attend
        )
        x = layer.feed_forward_residual(x, target_mask, layer.feed_forward)
        outputs.append(x)
    return outputs


def run_forced(
    model: Transformer,
    source_ids: Int[Tensor, "batch source"],
    target_ids: Int[Tensor, "batch target"],
    attend: Attend,
) -> list[Float[Tensor, "batch target d_model"]]:
    """The output of each decoder layer for a given target (forced decoding); sides without padding."""
    source_mask = torch.ones_like(source_ids, dtype=torch.bool)
    target_mask = torch.ones_like(target_ids, dtype=torch.bool)
    memory = encode(model, source_ids, source_mask, attend)
    return decode(model, target_ids, target_mask, memory, source_mask, attend)


def log_probabilities(
    model: Transformer, output: Float[Tensor, "batch target d_model"]
) -> Float[Tensor, "batch target vocabulary"]:
    """The log-probabilities that the output projection computes from the output of a decoder layer.

    The final normalisation of the stack, if it has one, comes first. From the output of the last layer, these are the
    log-probabilities of the model.
    """
    final = model.decoder.final
    if final is not None:
        output = final(output, torch.ones(output.shape[:2], dtype=torch.bool, device=output.device))
    logits: Tensor = model.projection(output)
    found: Tensor = logits.float().log_softmax(dim=-1)
    return found


def decoder_layers(model: Transformer) -> list[DecoderLayer]:
    """The layers of the decoder, first to last."""
    return cast("list[DecoderLayer]", list(model.decoder.layers))  # nn.ModuleList does not know what it holds


def _self_attend(
    layer: EncoderLayer | DecoderLayer, x: Tensor, real: Tensor, mask: Tensor, place: Place, attend: Attend
) -> Tensor:
    attention = layer.self_attention
    changed: Tensor = layer.self_attention_residual(
        x, real, lambda x: attend(place, attention, *attention.project(x), mask)
    )
    return changed


def cross_attend(
    layer: DecoderLayer,
    x: Float[Tensor, "batch target d_model"],
    real: Bool[Tensor, "batch target"],
    memory_keys_and_values: KeysAndValues,
    source_mask: Bool[Tensor, "batch source"],
    place: Place,
    attend: Attend,
) -> Float[Tensor, "batch target d_model"]:
    """Cross-attention of a decoder layer, within its residual connection."""
    attention, mask = layer.cross_attention, source_attention_mask(source_mask)
    changed: Tensor = layer.cross_attention_residual(
        x, real, lambda x: attend(place, attention, attention.project_queries(x), memory_keys_and_values, mask)
    )
    return changed
