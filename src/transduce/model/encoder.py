"""The encoder: a stack of N identical layers (paper 3.1, Figure 1, left)."""

from collections.abc import Sequence
from typing import cast

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model.attention import Attend, Mask, MultiHeadAttention, source_attention_mask
from transduce.model.sublayers import FeedForward, ResidualConnection, make_normalization


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each within a residual connection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = ResidualConnection(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = ResidualConnection(config)

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attention_mask: Mask,
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch source d_model"]:
        """The layer's output; both masks are of the real positions, in the shapes for sub-layers and for attention."""
        attention = self.self_attention
        x = self.self_attention_residual(
            x, source_mask, lambda x: attend(attention, *attention.project(x), attention_mask)
        )
        x = self.feed_forward_residual(x, source_mask, self.feed_forward)
        return x  # noqa: RET504 - the two lines are the layer


class Encoder(nn.Module):
    """N layers; with pre-norm, one more normalisation at the end."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.layers = cast("Sequence[EncoderLayer]", layers)  # of which nn.ModuleList does not know the type
        self.final = make_normalization(config) if config.norm_order == "pre" else None

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch source d_model"]:
        """The memory, from the embedded source `x`."""
        attention_mask = source_attention_mask(source_mask)
        for layer in self.layers:
            x = layer(x, source_mask, attention_mask, attend)
        return x if self.final is None else self.final(x, source_mask)
