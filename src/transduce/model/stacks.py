"""The stacks of N identical layers, encoder and decoder (paper 3.1, Figure 1), and the state of decoding by token."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model.attention import (
    Attend,
    KeysAndValues,
    Mask,
    MultiHeadAttention,
    causal_attention_mask,
    source_attention_mask,
)
from transduce.model.sublayers import ResidualConnection, make_feed_forward, make_normalization


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each within a residual connection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, is_self_attention=True)
        self.self_attention_residual = ResidualConnection(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = ResidualConnection(config)

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attention_mask: Mask,
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch source d_model"]:
        """The output of the layer.

        Both masks are True at real tokens: `source_mask` has shape [batch, source], `attention_mask`
        [batch, 1, 1, source].
        """
        attention = self.self_attention
        x = self.self_attention_residual(
            x, source_mask, lambda x: attend(attention, *attention.project(x), attention_mask)
        )
        x = self.feed_forward_residual(x, source_mask, self.feed_forward)
        return x  # noqa: RET504 - the two lines are the layer


class Encoder(nn.Module):
    """The encoder stack: N identical layers; with pre-norm, a final normalisation follows."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.layers = cast("list[EncoderLayer]", layers)  # nn.ModuleList does not keep the element type
        self.final = make_normalization(config) if config.norm_order == "pre" else None

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder output (the memory) for the embedded source `x`."""
        attention_mask = source_attention_mask(source_mask)
        for layer in self.layers:
            x = layer(x, source_mask, attention_mask, attend)
        return x if self.final is None else self.final(x, source_mask)


@dataclass(frozen=True)
class DecoderState:
    """The key-value cache of decoding token by token; immutable: steps return a new one."""

    memory: tuple[KeysAndValues, ...]
    """Keys and values of the encoder output, one entry per layer."""
    past: tuple[KeysAndValues, ...]
    """Keys and values of the decoded target tokens, one entry per layer."""
    source_mask: Bool[Tensor, "rows source"]
    """True at real source tokens."""
    length: int
    """Number of target positions so far."""

    def reorder(self, index: Int[Tensor, " chosen"]) -> "DecoderState":
        """The state whose row i is row `index[i]` of this one: rows may be dropped, repeated and exchanged."""

        def choose(layers: tuple[KeysAndValues, ...]) -> tuple[KeysAndValues, ...]:
            return tuple(KeysAndValues(*(part.index_select(0, index) for part in layer)) for layer in layers)

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
        self.self_attention = MultiHeadAttention(config, is_self_attention=True)
        self.self_attention_residual = ResidualConnection(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = ResidualConnection(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = ResidualConnection(config)

    def forward(
        self,
        x: Float[Tensor, "rows new d_model"],
        target_mask: Bool[Tensor, "rows new"],
        memory: Float[Tensor, "rows source d_model"] | KeysAndValues,
        attention_masks: tuple[Bool[Tensor, "#rows 1 #new visible"], Bool[Tensor, "rows 1 1 source"]],
        attend: Attend = MultiHeadAttention.attend,
        past: KeysAndValues | None = None,
        position: int | None = None,
    ) -> tuple[Float[Tensor, "rows new d_model"], KeysAndValues | None]:
        """The output and the self-attention cache.

        Without `past`, outputs cover all positions and the cache is None. With `past`, outputs cover only the new
        positions, and the cache includes them.

        Args:
            x: input at the new positions.
            target_mask: True at real tokens among them.
            memory: the encoder output, or its keys and values if they are already computed.
            attention_masks: the mask of all target positions, the new ones last, and the mask of the source.
            attend: computes self-attention and encoder-decoder attention.
            past: keys and values of earlier target positions.
            position: with `past`, the number of the new position, which all of `x` has.
        """
        visible_mask, source_mask = attention_masks
        of_memory = memory if isinstance(memory, KeysAndValues) else self.cross_attention.project_memory(memory)
        present: KeysAndValues | None = None

        def attend_to_target(x: Tensor) -> Tensor:
            nonlocal present
            queries, visible = self.self_attention.project(x, position)
            if past is not None:
                visible = present = _append(past, visible)
            return attend(self.self_attention, queries, visible, visible_mask)

        def attend_to_memory(x: Tensor) -> Tensor:
            return attend(self.cross_attention, self.cross_attention.project_queries(x), of_memory, source_mask)

        x = self.self_attention_residual(x, target_mask, attend_to_target)
        x = self.cross_attention_residual(x, target_mask, attend_to_memory)
        return self.feed_forward_residual(x, target_mask, self.feed_forward), present


class Decoder(nn.Module):
    """The decoder stack: N identical layers; with pre-norm, a final normalisation follows."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = config.num_heads, config.d_k, config.d_v
        layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.layers = cast("list[DecoderLayer]", layers)  # nn.ModuleList does not keep the element type
        self.final = make_normalization(config) if config.norm_order == "pre" else None

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch target d_model"]:
        """The output of the stack for the embedded target `x`, given the memory."""
        output = x
        for of_layer in self.iterate_layers(x, target_mask, memory, source_mask, attend):
            output = of_layer
        return output if self.final is None else self.final(output, target_mask)

    def iterate_layers(
        self,
        x: Float[Tensor, "batch target d_model"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend = MultiHeadAttention.attend,
    ) -> Iterator[Float[Tensor, "batch target d_model"]]:
        """The output of each layer in turn for the embedded target `x`, without the final normalisation."""
        masks = causal_attention_mask(x.size(1), x.device), source_attention_mask(source_mask)
        for layer in self.layers:
            x, _ = layer(x, target_mask, memory, masks, attend)
            yield x

    def start(
        self, memory: Float[Tensor, "rows source d_model"], source_mask: Bool[Tensor, "rows source"]
    ) -> DecoderState:
        """The state before the first token."""
        rows = memory.size(0)
        nothing = KeysAndValues(
            memory.new_empty(rows, self.num_heads, 0, self.d_k), memory.new_empty(rows, self.num_heads, 0, self.d_v)
        )
        return DecoderState(
            memory=tuple(layer.cross_attention.project_memory(memory) for layer in self.layers),
            past=(nothing,) * len(self.layers),
            source_mask=source_mask,
            length=0,
        )

    def step(
        self,
        x: Float[Tensor, "rows new d_model"],
        state: DecoderState,
        visible_mask: Mask | None = None,
        attend: Attend = MultiHeadAttention.attend,
    ) -> tuple[Float[Tensor, "rows new d_model"], DecoderState]:
        """The output at the new position, and the state that includes it.

        Args:
            x: the input at the new position; a row has an entry for each hypothesis that shares the cache of the row.
            state: the cache of earlier positions.
            visible_mask: True where a hypothesis may attend, over all cached positions and then the new ones. Needed
                only where several hypotheses of a sentence share one cache. Default: one hypothesis, which attends to
                every position; relative positions allow no other, as distances are counted along the cache.
            attend: computes self-attention and encoder-decoder attention.
        """
        if visible_mask is None:
            visible_mask = state.source_mask.new_ones(1, 1, 1, state.length + 1)
        masks = visible_mask, source_attention_mask(state.source_mask)
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        pasts = []
        for layer, past, memory in zip(self.layers, state.past, state.memory, strict=True):
            x, grown = layer(x, real, memory, masks, attend, past, state.length)
            pasts.append(grown)
        if self.final is not None:
            x = self.final(x, real)
        return x, replace(state, past=tuple(pasts), length=state.length + 1)
