"""Head masks: attention in which some heads add nothing, and the model with such a mask, for searches and targets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.inspection.document import AttentionName, Head
from transduce.kernels.attention import pad_keys
from transduce.model import DecoderLayer, DecoderState, EncoderLayer, KeysAndValues, MultiHeadAttention, Transformer
from transduce.model.attention import Attend, Mask, Queries


class Place(NamedTuple):
    """One of the model's attentions; layers from 0."""

    attention: AttentionName
    layer: int


def list_attentions(model: Transformer) -> dict[MultiHeadAttention, Place]:
    """Every attention of the model: those of the encoder, those of the decoder, and cross-attentions."""
    # nn.ModuleList does not know the type of its items.
    encoder_layers = cast("Iterable[EncoderLayer]", model.encoder.layers)
    decoder_layers = list(cast("Iterable[DecoderLayer]", model.decoder.layers))
    return {
        **{layer.self_attention: Place("encoder", number) for number, layer in enumerate(encoder_layers)},
        **{layer.self_attention: Place("decoder", number) for number, layer in enumerate(decoder_layers)},
        **{layer.cross_attention: Place("encoder_decoder", number) for number, layer in enumerate(decoder_layers)},
    }


def count_layers(config: TransformerConfig) -> dict[AttentionName, int]:
    """The number of layers with each of the three attentions."""
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    return {"encoder": encoder, "decoder": decoder, "encoder_decoder": decoder}


def list_heads(config: TransformerConfig) -> list[Head]:
    """Every head of the model: of the encoder, of the decoder, and of cross-attention."""
    return [
        Head(attention=attention, layer=layer, head=head)
        for attention, layers in count_layers(config).items()
        for layer in range(layers)
        for head in range(config.num_heads)
    ]


@dataclass(frozen=True)
class HeadMask:
    """Which heads of each attention are kept, for each sentence of a batch; called, it computes attention so.

    A masked head adds nothing, as if its rows of W^O were zero.

    Args:
        kept: 1 for heads that are kept, 0 for masked ones.
    """

    kept: dict[MultiHeadAttention, Float[Tensor, "sentences heads"]]

    @classmethod
    def without(cls, model: Transformer, heads: Sequence[Sequence[Head]]) -> "HeadMask":
        """The mask without, for each sentence, the given heads."""
        attentions = list_attentions(model)
        kept = {place: torch.ones(len(heads), model.config.num_heads) for place in attentions.values()}
        for row, masked in enumerate(heads):
            for head in masked:
                kept[Place(head.attention, head.layer)][row, head.head] = 0
        return cls({one: kept[place].to(one.output.weight.device) for one, place in attentions.items()})

    def select(self, sentences: Int[Tensor, " kept"]) -> "HeadMask":
        """The mask of some of the sentences."""
        return HeadMask({one: values.index_select(0, sentences) for one, values in self.kept.items()})

    def __call__(
        self, attention: MultiHeadAttention, queries: Queries, keys_and_values: KeysAndValues, mask: Mask
    ) -> Float[Tensor, "batch query d_model"]:
        attended = attention.score.attend(queries, *pad_keys(*keys_and_values, mask))
        attended = attended * self.kept[attention][:, :, None, None]
        outputs: Tensor = attention.output(attended.transpose(1, 2).flatten(2))
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
    memory = model.encode(source_ids, source_mask, attend)
    return list(model.decode_layers(target_ids, target_mask, memory, source_mask, attend))


def log_probabilities(
    model: Transformer, output: Float[Tensor, "batch target d_model"]
) -> Float[Tensor, "batch target vocabulary"]:
    """The log-probabilities that the output projection computes from the output of a decoder layer.

    The final normalisation of the stack, if it has one, comes first. From the output of the last layer, these are the
    log-probabilities of the model.
    """
    if model.decoder.final is not None:
        output = model.decoder.final(output, torch.ones(output.shape[:2], dtype=torch.bool, device=output.device))
    logits: Tensor = model.projection(output)
    return logits.float().log_softmax(dim=-1)


@dataclass(frozen=True)
class HeadMaskedState:
    """The state of a search, in which all hypotheses of a sentence have one cache.

    Args:
        head_mask: which heads are kept.
        cache: keys and values of a sentence; those of its hypotheses lie behind each other.
        visible: which of the cached positions a hypothesis may look at: its ancestors.
    """

    head_mask: HeadMask
    cache: DecoderState
    visible: Bool[Tensor, "sentences width past"]

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "HeadMaskedState":
        if sentences is None:
            index = parents[:, :, None].expand(-1, -1, self.visible.size(2))
            return replace(self, visible=self.visible.gather(1, index))
        visible = self.visible[sentences[:, None], parents]
        return HeadMaskedState(self.head_mask.select(sentences), self.cache.reorder(sentences), visible)


class HeadMaskedNetwork:
    """The model as a `Network` for searches, with a head mask for as many sentences as the mask has.

    The model must be in evaluation mode. With all heads kept, the network computes what the model computes.
    """

    def __init__(self, model: Transformer, head_mask: HeadMask) -> None:
        self.model, self.head_mask = model, head_mask

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> HeadMaskedState:
        memory = self.model.encode(source_ids, source_mask, self.head_mask)
        cache = self.model.start(memory, source_mask)
        return HeadMaskedState(self.head_mask, cache, source_mask.new_empty(len(source_ids), 1, 0))

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: HeadMaskedState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], HeadMaskedState]:
        model, width = self.model, last_ids.size(1)
        own = torch.eye(width, dtype=torch.bool, device=last_ids.device).expand(len(last_ids), -1, -1)
        visible = torch.cat([state.visible.expand(-1, width, -1), own], dim=2)
        x = model.target_embedding(last_ids) + model.positions(1, state.cache.length)
        hidden, cache = model.decoder.step(x, state.cache, visible[:, None], state.head_mask)
        log_probs = model.projection(hidden).float().log_softmax(dim=-1)
        return log_probs, replace(state, cache=cache, visible=visible)
