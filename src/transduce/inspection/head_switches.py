"""Heads that are on and heads that are off, other ones for each sentence of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.inspection.network_parts import AttentionName, Head
from transduce.inspection.passes import Place
from transduce.kernels.attention import pad_keys
from transduce.model import KeysAndValues, MultiHeadAttention
from transduce.model.attention import Mask, Queries


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
        """See `passes.Attend`."""
        attended = attention.score.attend(queries, *pad_keys(*keys_and_values, mask))
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
