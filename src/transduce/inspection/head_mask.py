"""Head masks: attention in which some heads add nothing, and the network as a search uses it, with such a mask."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.inspection.document import AttentionName, Head
from transduce.inspection.forward_pass import Place, cross_attend, decoder_layers, encode
from transduce.kernels.attention import pad_keys
from transduce.model import DecoderLayer, KeysAndValues, MultiHeadAttention, Transformer
from transduce.model.attention import Mask, Queries


@dataclass(frozen=True)
class HeadMask:
    """Which heads of each attention are kept, for each sentence of a batch; called, it computes attention so.

    A masked head adds nothing, as if its rows of W^O were zero.

    Args:
        kept: 1 for heads that are kept, 0 for masked ones.
    """

    kept: dict[AttentionName, Float[Tensor, "sentences layers heads"]]

    @classmethod
    def without(
        cls, config: TransformerConfig, heads: Sequence[Sequence[Head]], device: torch.device | str = "cpu"
    ) -> "HeadMask":
        """The mask without, for each sentence, the given heads."""
        kept = {name: torch.ones(len(heads), layers, config.num_heads) for name, layers in count_layers(config).items()}
        for row, masked in enumerate(heads):
            for head in masked:
                kept[head.attention][row, head.layer, head.head] = 0
        return cls({name: values.to(device) for name, values in kept.items()})

    def select(self, sentences: Int[Tensor, " kept"]) -> "HeadMask":
        """The mask of some of the sentences."""
        return HeadMask({name: values.index_select(0, sentences) for name, values in self.kept.items()})

    def __call__(
        self,
        place: Place,
        attention: MultiHeadAttention,
        queries: Queries,
        keys_and_values: KeysAndValues,
        mask: Mask,
    ) -> Float[Tensor, "batch query d_model"]:
        attended = attention.score.attend(queries, *pad_keys(*keys_and_values, mask))
        attended = attended * self.kept[place.attention][:, place.layer, :, None, None]
        outputs: Tensor = attention.output(attended.transpose(1, 2).flatten(2))
        return outputs


def list_heads(config: TransformerConfig) -> list[Head]:
    """Every head of the model: of the encoder, of the decoder, and of cross-attention."""
    return [
        Head(attention=attention, layer=layer, head=head)
        for attention, layers in count_layers(config).items()
        for layer in range(layers)
        for head in range(config.num_heads)
    ]


def count_layers(config: TransformerConfig) -> dict[AttentionName, int]:
    """The number of layers with each of the three attentions."""
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    return {"encoder": encoder, "decoder": decoder, "encoder_decoder": decoder}


@dataclass(frozen=True)
class HeadMaskedState:
    """The state of a search; keys and values of all hypotheses of a sentence lie behind each other.

    Args:
        head_mask: which heads are kept.
        memory: for each layer, keys and values of the memory.
        past: for each layer, keys and values of all hypotheses so far.
        visible: which of `past` a hypothesis may look at: its ancestors.
        source_mask: True at real tokens.
        length: tokens of each hypothesis so far.
    """

    head_mask: HeadMask
    memory: tuple[KeysAndValues, ...]
    past: tuple[KeysAndValues, ...]
    visible: Bool[Tensor, "sentences width past"]
    source_mask: Bool[Tensor, "sentences source"]
    length: int = 0

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "HeadMaskedState":
        if sentences is None:
            index = parents[:, :, None].expand(-1, -1, self.visible.size(2))
            return replace(self, visible=self.visible.gather(1, index))

        def kept(layers: tuple[KeysAndValues, ...]) -> tuple[KeysAndValues, ...]:
            return tuple(KeysAndValues(*(part.index_select(0, sentences) for part in layer)) for layer in layers)

        return HeadMaskedState(
            self.head_mask.select(sentences),
            kept(self.memory),
            kept(self.past),
            self.visible[sentences[:, None], parents],
            self.source_mask.index_select(0, sentences),
            self.length,
        )


class HeadMaskedNetwork:
    """The network as `translation.network.Network`, with a head mask for as many sentences as the mask has.

    The model must be in evaluation mode. With all heads kept, the network computes what the model computes.
    """

    def __init__(self, model: Transformer, head_mask: HeadMask) -> None:
        self.model, self.head_mask = model, head_mask

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> HeadMaskedState:
        memory = encode(self.model, source_ids, source_mask, self.head_mask)
        state = self.model.start(memory, source_mask)
        return HeadMaskedState(
            self.head_mask, state.memory, state.past, source_mask.new_empty(len(source_ids), 1, 0), source_mask
        )

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: HeadMaskedState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], HeadMaskedState]:
        model, width = self.model, last_ids.size(1)
        own = torch.eye(width, dtype=torch.bool, device=last_ids.device).expand(len(last_ids), -1, -1)
        visible = torch.cat([state.visible.expand(-1, width, -1), own], dim=2)
        real = torch.ones_like(last_ids, dtype=torch.bool)
        x = model.target_embedding(last_ids) + model.positions(1, state.length)
        grown = []
        for number, layer in enumerate(decoder_layers(model)):
            x, past = _self_attend_step(layer, x, state, visible, number)
            x = cross_attend(
                layer,
                x,
                real,
                state.memory[number],
                state.source_mask,
                Place("encoder_decoder", number),
                state.head_mask,
            )
            x = layer.feed_forward_residual(x, real, layer.feed_forward)
            grown.append(past)
        if model.decoder.final is not None:
            x = model.decoder.final(x, real)
        log_probs = model.projection(x).float().log_softmax(dim=-1)
        return log_probs, replace(state, past=tuple(grown), visible=visible, length=state.length + 1)


def _self_attend_step(
    layer: DecoderLayer, x: Tensor, state: HeadMaskedState, visible: Tensor, number: int
) -> tuple[Tensor, KeysAndValues]:
    """Self-attention of one new position of every hypothesis, and the keys and values that include it."""
    attention, real = layer.self_attention, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    # With post-norm, what is projected is the input itself; with pre-norm, what the normalisation makes of it.
    inputs = x if layer.self_attention_residual.post else layer.self_attention_residual.normalization(x, real)
    queries, new = attention.project(inputs)
    grown = KeysAndValues(*(torch.cat(parts, dim=2) for parts in zip(state.past[number], new, strict=True)))
    attended = state.head_mask(Place("decoder", number), attention, queries, grown, visible[:, None])
    return layer.self_attention_residual(x, real, lambda _: attended), grown
