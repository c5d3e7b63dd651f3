"""The decoder: a stack of N identical layers with one sub-layer more (paper 3.1, Figure 1, right), and its state."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model.attention import (
    KeysAndValues,
    Mask,
    MultiHeadAttention,
    causal_attention_mask,
    source_attention_mask,
)
from transduce.model.sublayers import FeedForward, ResidualConnection, make_normalization


@dataclass(frozen=True)
class DecoderState:
    """The key-value cache of decoding token by token; immutable: steps return a new one."""

    memory: tuple[KeysAndValues, ...]
    """Of the memory, for each layer."""
    past: tuple[KeysAndValues, ...]
    """Of the target positions so far, for each layer."""
    source_mask: Bool[Tensor, "rows source"]
    """True at real source tokens."""
    length: int
    """Number of target positions so far."""

    def reorder(self, index: Int[Tensor, " chosen"]) -> "DecoderState":
        """The state whose row i is row `index[i]` of this one: rows may be dropped, repeated and exchanged."""

        def choose(layers: tuple[KeysAndValues, ...]) -> tuple[KeysAndValues, ...]:
            return tuple(
                KeysAndValues(keys.index_select(0, index), values.index_select(0, index)) for keys, values in layers
            )

        return replace(
            self,
            memory=choose(self.memory),
            past=choose(self.past),
            source_mask=self.source_mask.index_select(0, index),
        )


def _append(past: KeysAndValues, new: KeysAndValues) -> KeysAndValues:
    return KeysAndValues(torch.cat([past.keys, new.keys], dim=2), torch.cat([past.values, new.values], dim=2))


class DecoderLayer(nn.Module):
    """Masked self-attention, encoder-decoder attention, feed-forward network, each within a residual connection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = ResidualConnection(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = ResidualConnection(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = ResidualConnection(config)

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        attention_masks: tuple[Bool[Tensor, "1 1 target target"], Bool[Tensor, "batch 1 1 source"]],
    ) -> Float[Tensor, "batch target d_model"]:
        """The layer's output at all positions; the two attention masks are the causal one and that of the source."""
        causal_mask, source_mask = attention_masks
        x = self.self_attention_residual(x, target_mask, lambda x: self.self_attention.self_attention(x, causal_mask))
        return self._beyond_self_attention(x, target_mask, self.cross_attention.project_memory(memory), source_mask)

    def step(
        self,
        x: Float[Tensor, "rows 1 d_model"],
        past: KeysAndValues,
        memory: KeysAndValues,
        source_mask: Mask,
    ) -> tuple[Float[Tensor, "rows 1 d_model"], KeysAndValues]:
        """The output at one new position after `past`, and the keys and values that include it."""
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        grown = past

        def attend(x: Tensor) -> Tensor:
            nonlocal grown
            queries, new = self.self_attention.project(x)
            grown = _append(past, new)
            everything = real.new_ones(1, 1, 1, grown.keys.size(2))
            return self.self_attention.attend(queries, grown, everything)

        x = self.self_attention_residual(x, real, attend)
        return self._beyond_self_attention(x, real, memory, source_mask), grown

    def _beyond_self_attention(
        self, x: Tensor, target_mask: Tensor, memory: KeysAndValues, source_mask: Tensor
    ) -> Tensor:
        x = self.cross_attention_residual(
            x,
            target_mask,
            lambda x: self.cross_attention.attend(self.cross_attention.project_queries(x), memory, source_mask),
        )
        x = self.feed_forward_residual(x, target_mask, self.feed_forward)
        return x  # noqa: RET504 - the two lines are the rest of the layer


class Decoder(nn.Module):
    """N layers; with pre-norm, one more normalisation at the end."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = config.num_heads, config.d_k, config.d_v
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.final = make_normalization(config) if config.norm_order == "pre" else None

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The output of the stack for the embedded target `x`, given the memory."""
        masks = causal_attention_mask(x.size(1), x.device), source_attention_mask(source_mask)
        for layer in self.layers:
            x = layer(x, target_mask, memory, masks)
        return x if self.final is None else self.final(x, target_mask)

    def start(
        self, memory: Float[Tensor, "rows source d_model"], source_mask: Bool[Tensor, "rows source"]
    ) -> DecoderState:
        """The state before the first token."""
        rows = memory.size(0)
        nothing = KeysAndValues(
            memory.new_empty(rows, self.num_heads, 0, self.d_k), memory.new_empty(rows, self.num_heads, 0, self.d_v)
        )
        return DecoderState(
            memory=tuple(layer.cross_attention.project_memory(memory) for layer in self._layers()),
            past=(nothing,) * len(self.layers),
            source_mask=source_mask,
            length=0,
        )

    def step(
        self, x: Float[Tensor, "rows 1 d_model"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows 1 d_model"], DecoderState]:
        """The output at one new position, and the state that includes it."""
        attention_mask = source_attention_mask(state.source_mask)
        pasts = []
        for layer, past, memory in zip(self._layers(), state.past, state.memory, strict=True):
            x, grown = layer.step(x, past, memory, attention_mask)
            pasts.append(grown)
        if self.final is not None:
            x = self.final(x, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))
        return x, replace(state, past=tuple(pasts), length=state.length + 1)

    def _layers(self) -> Iterable[DecoderLayer]:
        # nn.ModuleList does not know the type of its items.
        return cast("Iterable[DecoderLayer]", self.layers)
