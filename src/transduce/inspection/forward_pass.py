"""The Transformer's own forward pass, sub-layer by sub-layer, with whatever is to happen in its attentions.

The parts are the model's; only the order in which `Encoder.forward` and `Decoder.forward` call them is written down
once more, so that nothing in the network has to know who is looking.
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
    """What happens in an attention: `MultiHeadAttention.attend`, and what else there is to do."""

    def __call__(
        self,
        place: Place,
        attention: MultiHeadAttention,
        queries: Queries,
        keys_and_values: KeysAndValues,
        mask: Mask,
    ) -> Float[Tensor, "batch query d_model"]:
        """What the attention hands on."""
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
        x = _within_itself(layer, x, source_mask, mask, Place("encoder", number), attend)
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
    """What each layer of the decoder hands on, as `Transformer.decode` computes it in evaluation."""
    causal_mask = causal_attention_mask(target_ids.size(1), target_ids.device)
    x = model.target_embedding(model.shift_right(target_ids)) + model.positions(target_ids.size(1))
    outputs = []
    for number, layer in enumerate(decoder_layers(model)):
        x = _within_itself(layer, x, target_mask, causal_mask, Place("decoder", number), attend)
        memorized = layer.memory_attention.project_memory(memory)
        x = to_memory(layer, x, target_mask, memorized, source_mask, Place("encoder_decoder", number), attend)
        x = layer.feed_forward_residual(x, target_mask, layer.feed_forward)
        outputs.append(x)
    return outputs


def forced(
    model: Transformer,
    source_ids: Int[Tensor, "batch source"],
    target_ids: Int[Tensor, "batch target"],
    attend: Attend,
) -> list[Float[Tensor, "batch target d_model"]]:
    """What each layer of the decoder hands on when it is given the target; of sides without padding."""
    source_mask = torch.ones_like(source_ids, dtype=torch.bool)
    target_mask = torch.ones_like(target_ids, dtype=torch.bool)
    memory = encode(model, source_ids, source_mask, attend)
    return decode(model, target_ids, target_mask, memory, source_mask, attend)


def log_probabilities(
    model: Transformer, output: Float[Tensor, "batch target d_model"]
) -> Float[Tensor, "batch target vocabulary"]:
    """What the output projection makes of what a layer hands on, behind the stack's final normalisation if it has one.

    Of the last layer's, the model's own log-probabilities.
    """
    final = model.decoder.final
    if final is not None:
        output = final(output, torch.ones(output.shape[:2], dtype=torch.bool, device=output.device))
    logits: Tensor = model.projection(output)
    found: Tensor = logits.float().log_softmax(dim=-1)
    return found


def decoder_layers(model: Transformer) -> list[DecoderLayer]:
    """Those of the decoder, first to last."""
    return cast("list[DecoderLayer]", list(model.decoder.layers))  # nn.ModuleList does not know what it holds


def _within_itself(
    layer: EncoderLayer | DecoderLayer, x: Tensor, real: Tensor, mask: Tensor, place: Place, attend: Attend
) -> Tensor:
    attention = layer.self_attention
    changed: Tensor = layer.self_attention_residual(
        x, real, lambda x: attend(place, attention, *attention.project(x), mask)
    )
    return changed


def to_memory(
    layer: DecoderLayer,
    x: Float[Tensor, "batch target d_model"],
    real: Bool[Tensor, "batch target"],
    memorized: KeysAndValues,
    source_mask: Bool[Tensor, "batch source"],
    place: Place,
    attend: Attend,
) -> Float[Tensor, "batch target d_model"]:
    """The encoder-decoder attention of a layer, within its residual connection."""
    attention, mask = layer.memory_attention, source_attention_mask(source_mask)
    changed: Tensor = layer.memory_attention_residual(
        x, real, lambda x: attend(place, attention, attention.project_queries(x), memorized, mask)
    )
    return changed
