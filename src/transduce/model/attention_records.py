"""Where the decoder looks in the source, made visible: computed on request, by a pass of its own.

Translation and training run fused attention, which never holds a weight; nothing in the network knows of this module.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.model.attention import attention_weights, causal_attention_mask, source_attention_mask, with_room
from transduce.model.decoder import DecoderLayer
from transduce.model.transformer import Transformer


def memory_attention_weights(
    model: Transformer,
    source_ids: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    target_ids: Int[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
) -> Iterator[Float[Tensor, "batch heads target source"]]:
    """The weights of encoder-decoder attention (paper 3.2.3), from the first decoder layer to the last.

    The decoder reads the given target, as in `Transformer.forward`: row t of a layer's weights belongs to the position
    that reads token t - 1 and predicts token t. Every row sums to 1; padding of the source has no weight. One layer's
    weights are held at a time, in the precision of the model's own.
    """
    memory = model.encode(source_ids, source_mask)
    masks = causal_attention_mask(target_ids.size(1), target_ids.device), source_attention_mask(source_mask)
    x = model.dropout(model.target_embedding(model.shift_right(target_ids)) + model.positions(target_ids.size(1)))
    for layer in cast("Iterable[DecoderLayer]", model.decoder.layers):
        x, weights = _layer_and_weights(layer, x, target_mask, memory, masks)
        yield weights


def _layer_and_weights(
    layer: DecoderLayer, x: Tensor, target_mask: Tensor, memory: Tensor, attention_masks: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """What `DecoderLayer.forward` makes of `x`, and the weights of its attention to the memory."""
    causal_mask, source_mask = attention_masks
    attention, memorized = layer.memory_attention, layer.memory_attention.project_memory(memory)
    seen = []

    def attend(x: Tensor) -> Tensor:
        # Within the residual connection: with pre-norm, queries are made of what has been normalised.
        queries = attention.project_queries(x)
        keys, _, mask = with_room(*memorized, source_mask)
        seen.append(attention_weights(attention.score, queries, keys, mask)[..., : memorized.keys.size(2)])
        return attention.attend(queries, memorized, source_mask)

    x = layer.self_attention_residual(x, target_mask, lambda x: layer.self_attention.self_attention(x, causal_mask))
    x = layer.memory_attention_residual(x, target_mask, attend)
    return layer.feed_forward_residual(x, target_mask, layer.feed_forward), seen[0]
