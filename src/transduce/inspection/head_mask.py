"""Heads that are on and heads that are off, other ones for each sentence of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.inspection.document import AttentionName, Head
from transduce.inspection.forward_pass import Place, decoder_layers, encode, to_memory
from transduce.model import DecoderLayer, KeysAndValues, MultiHeadAttention, Transformer
from transduce.model.attention import Mask, Queries, with_room


@dataclass(frozen=True)
class HeadSwitches:
    """Attends like the model, but what a head that is off has attended to is nothing: as if its rows of W^O were zero.

    Args:
        on: 1 for heads that are on, 0 for those that are off, for each sentence.
    """

    on: dict[AttentionName, Float[Tensor, "sentences layers heads"]]

    @classmethod
    def off(
        cls, config: TransformerConfig, heads: Sequence[Sequence[Head]], device: torch.device | str = "cpu"
    ) -> "HeadSwitches":
        """All heads are on but, for each sentence, the given ones."""
        on = {name: torch.ones(len(heads), layers, config.num_heads) for name, layers in num_layers(config).items()}
        for row, off in enumerate(heads):
            for head in off:
                on[head.attention][row, head.layer, head.head] = 0
        return cls({name: switches.to(device) for name, switches in on.items()})

    def select(self, sentences: Int[Tensor, " kept"]) -> "HeadSwitches":
        """Those of some of the sentences."""
        return HeadSwitches({name: switches.index_select(0, sentences) for name, switches in self.on.items()})

    def __call__(
        self,
        place: Place,
        attention: MultiHeadAttention,
        queries: Queries,
        keys_and_values: KeysAndValues,
        mask: Mask,
    ) -> Float[Tensor, "batch query d_model"]:
        attended = attention.score.attend(queries, *with_room(*keys_and_values, mask))
        attended = attended * self.on[place.attention][:, place.layer, :, None, None]
        outputs: Tensor = attention.output(attended.transpose(1, 2).flatten(2))
        return outputs


def all_heads(config: TransformerConfig) -> list[Head]:
    """Every head of the model: within the encoder, within the decoder, and from one to the other."""
    return [
        Head(attention=attention, layer=layer, head=head)
        for attention, layers in num_layers(config).items()
        for layer in range(layers)
        for head in range(config.num_heads)
    ]


def num_layers(config: TransformerConfig) -> dict[AttentionName, int]:
    """Layers that have each of the three attentions."""
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    return {"encoder": encoder, "decoder": decoder, "encoder_decoder": decoder}


@dataclass(frozen=True)
class SwitchedState:
    """What is remembered of each sentence; keys and values of all its hypotheses lie behind each other.

    Args:
        switches: which heads are on.
        memory: for each layer, keys and values of the memory.
        past: for each layer, keys and values of all hypotheses so far.
        visible: which of `past` a hypothesis may look at: its ancestors.
        source_mask: True at real tokens.
        length: tokens of each hypothesis so far.
    """

    switches: HeadSwitches
    memory: tuple[KeysAndValues, ...]
    past: tuple[KeysAndValues, ...]
    visible: Bool[Tensor, "sentences width past"]
    source_mask: Bool[Tensor, "sentences source"]
    length: int = 0

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "SwitchedState":
        if sentences is None:
            index = parents[:, :, None].expand(-1, -1, self.visible.size(2))
            return replace(self, visible=self.visible.gather(1, index))

        def kept(layers: tuple[KeysAndValues, ...]) -> tuple[KeysAndValues, ...]:
            return tuple(KeysAndValues(*(part.index_select(0, sentences) for part in layer)) for layer in layers)

        return SwitchedState(
            self.switches.select(sentences),
            kept(self.memory),
            kept(self.past),
            self.visible[sentences[:, None], parents],
            self.source_mask.index_select(0, sentences),
            self.length,
        )


class SwitchedNetwork:
    """See `translation.network.Network`; to be used in evaluation mode, with as many sentences as there are switches.

    With all heads on it computes what the model computes.
    """

    def __init__(self, model: Transformer, switches: HeadSwitches) -> None:
        self.model, self.switches = model, switches

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> SwitchedState:
        memory = encode(self.model, source_ids, source_mask, self.switches)
        state = self.model.start(memory, source_mask)
        return SwitchedState(
            self.switches, state.memory, state.past, source_mask.new_empty(len(source_ids), 1, 0), source_mask
        )

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: SwitchedState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], SwitchedState]:
        model, width = self.model, last_ids.size(1)
        own = torch.eye(width, dtype=torch.bool, device=last_ids.device).expand(len(last_ids), -1, -1)
        visible = torch.cat([state.visible.expand(-1, width, -1), own], dim=2)
        real = torch.ones_like(last_ids, dtype=torch.bool)
        x = model.target_embedding(last_ids) + model.positions(1, state.length)
        grown = []
        for number, layer in enumerate(decoder_layers(model)):
            x, past = _step(layer, x, state, visible, number)
            x = to_memory(
                layer,
                x,
                real,
                state.memory[number],
                state.source_mask,
                Place("encoder_decoder", number),
                state.switches,
            )
            x = layer.feed_forward_residual(x, real, layer.feed_forward)
            grown.append(past)
        if model.decoder.final is not None:
            x = model.decoder.final(x, real)
        log_probs = model.projection(x).float().log_softmax(dim=-1)
        return log_probs, replace(state, past=tuple(grown), visible=visible, length=state.length + 1)


def _step(
    layer: DecoderLayer, x: Tensor, state: SwitchedState, visible: Tensor, number: int
) -> tuple[Tensor, KeysAndValues]:
    """Self-attention of one new position of every hypothesis, and the keys and values that include it."""
    attention, real = layer.self_attention, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    # With post-norm, what is projected is the input itself; with pre-norm, what the normalisation makes of it.
    inputs = x if layer.self_attention_residual.post else layer.self_attention_residual.normalization(x, real)
    queries, new = attention.project(inputs)
    grown = KeysAndValues(*(torch.cat(parts, dim=2) for parts in zip(state.past[number], new, strict=True)))
    attended = state.switches(Place("decoder", number), attention, queries, grown, visible[:, None])
    return layer.self_attention_residual(x, real, lambda _: attended), grown
