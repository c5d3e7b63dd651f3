"""ByteNet: dilated convolutions, without attention (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear
Time").

The decoder stands on the encoder: at target position t it reads column t of the encoder's output, and convolutions have
to bring there what it needs of the source. Time and memory grow linearly with the sentence. Sections are those of that
paper; s is the source, t the target, and d half of d_model, so that blocks have width 2d and are d wide inside.

A target may be longer than its source. So the source is padded to |t̂| = a|s| + b columns before it is encoded, with
a = 1.2 and b = 0 as in the paper, rounded up; a target that is longer still is written on without the encoder, and one
that ends earlier leaves columns unread (dynamic unfolding, 3.2).

Departures from the paper:

- Tokens are pieces of words, whatever the tokenizer makes; in the paper they are characters.
- The column and the embedding of the previous target token stand side by side, and a convolution of width 1 brings them
  to width 2d. The paper says only that the decoder is conditioned on the column.
- Dropout applies to embeddings and to the output of each block before it is added, too; in the paper, to the last
  layer before the projection.
- Matrices are drawn as the Transformer's are; the paper does not say how.
- Embeddings are multiplied by sqrt(d_model), as the Transformer's are, and the start of a target is the zero vector.
- Unless `tied_embeddings` is "none", the projection's matrix is that of the target embeddings, and with "three_way",
  the default, of the source's too.
"""

from dataclasses import dataclass, replace
from typing import TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.baselines.convolution import gather_windows
from transduce.config import TransformerConfig
from transduce.kernels.linear import Linear
from transduce.model import Dropout, EncoderDecoder, LayerNormalization, OutputProjection
from transduce.model.transformer import initialize

DILATIONS = (1, 2, 4, 8, 16)
"""Distances between the positions that a block reads, in one set of blocks; sets are repeated (3.5)."""

_Number = TypeVar("_Number", int, Tensor)


def count_columns(length: _Number) -> _Number:
    """Number of columns, |t̂| = 1.2 · `length`, rounded up (3.2), for a source of `length` tokens, or for several."""
    return -(-6 * length // 5)


class ResidualBlock(nn.Module):
    """A residual block: a dilated convolution of d_model / 2 channels between two of width 1 (Figure 3, left).

    Layer normalisation and relu precede each of the three.
    """

    def __init__(self, config: TransformerConfig, dilation: int) -> None:
        super().__init__()
        width, inner = config.d_model, config.d_model // 2
        self.kernel_width, self.dilation = config.kernel_width, dilation
        self.reduction_normalization = LayerNormalization(width)
        self.reduction = Linear(width, inner)
        self.convolution_normalization = LayerNormalization(inner)
        self.convolution = Linear(config.kernel_width * inner, inner)
        self.expansion_normalization = LayerNormalization(inner)
        self.expansion = Linear(inner, width)
        self.dropout = Dropout(config.dropout)

    @property
    def span(self) -> int:
        """Number of positions that the dilated convolution reaches to, besides its own."""
        return (self.kernel_width - 1) * self.dilation

    def reduce(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length inner"]:
        """The input of the dilated convolution."""
        inner = self.reduction(F.relu(self.reduction_normalization(x, mask)))
        return F.relu(self.convolution_normalization(inner, mask))

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Bool[Tensor, "batch length"],
        inputs: Float[Tensor, "batch padded inner"],
    ) -> Float[Tensor, "batch length d_model"]:
        """The output of the block for `x`, given `inputs`, the input of its convolution with `span` positions more."""
        inner = self.convolution(gather_windows(inputs, self.kernel_width, self.dilation))
        outputs: Tensor = x + self.dropout(self.expansion(F.relu(self.expansion_normalization(inner, mask))))
        return outputs


@dataclass(frozen=True)
class ByteNetState:
    """What the decoder of ByteNet keeps between steps; immutable: a step returns a new one."""

    past: tuple[Float[Tensor, "rows _ inner"], ...]
    """For each block, the input of its convolution at the last `span` positions, which the next window reads."""
    memory: Float[Tensor, "rows columns d_model"]
    """The columns of the encoder's output; zeros beyond |t̂|."""
    length: int
    """Number of target positions so far."""

    def reorder(self, index: Int[Tensor, " chosen"]) -> "ByteNetState":
        """The state whose row i is row `index[i]` of this one: rows may be dropped, repeated and exchanged."""
        return replace(
            self,
            past=tuple(block.index_select(0, index) for block in self.past),
            memory=self.memory.index_select(0, index),
        )


class ByteNet(EncoderDecoder):
    """ByteNet: a decoder of dilated convolutions on top of an encoder of such (Kalchbrenner et al. 2016, Figure 1).

    A constant number of operations follow each other, however long a sentence is; O(log(n)) blocks connect all of its
    positions while dilations double (Vaswani et al. 2017, Table 1). Settings it reads: vocabulary, num_encoder_layers
    and num_decoder_layers (blocks; Kalchbrenner et al. have 30 of each), d_model, kernel_width, dropout,
    tied_embeddings, output_bias.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.encoder = cast("list[ResidualBlock]", make_blocks(config, config.num_encoder_layers))
        self.decoder_input = Linear(2 * config.d_model, config.d_model)
        self.decoder = cast("list[ResidualBlock]", make_blocks(config, config.num_decoder_layers))
        self.output = Linear(config.d_model, config.d_model)
        self.projection = OutputProjection(config, self.target_embedding)
        initialize_bytenet(self)

    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch columns d_model"]:
        """The memory: |t̂| columns for each sentence, and zeros in its padding."""
        num_added = count_columns(source_ids.size(1)) - source_ids.size(1)
        embedded = self.embed(self.source_embedding, source_ids).masked_fill(~source_mask.unsqueeze(-1), 0)
        x = F.pad(embedded, (0, 0, 0, num_added))
        mask = torch.arange(x.size(1), device=x.device) < count_columns(source_mask.sum(dim=1, keepdim=True))
        padding = ~mask.unsqueeze(-1)
        for block in self.encoder:
            inputs = block.reduce(x, mask).masked_fill(padding, 0)
            x = block(x, mask, F.pad(inputs, (0, 0, block.span // 2, block.span // 2)))
        return x.masked_fill(padding, 0)

    def decode_hidden(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],  # noqa: ARG002 - padding is at the end: no real token reads it
        memory: Float[Tensor, "batch columns d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The output of the last layer before the projection to logits."""
        hidden, _ = self._advance(self.shift_right(target_ids), self.start(memory, source_mask))
        return hidden

    def start(
        self,
        memory: Float[Tensor, "rows columns d_model"],
        source_mask: Bool[Tensor, "rows source"],  # noqa: ARG002 - the memory is zero where there is no column
    ) -> ByteNetState:
        """The initial state of `decode_step`: before the first token there are zeros."""
        inner = self.config.d_model // 2
        past = tuple(memory.new_zeros(memory.size(0), block.span, inner) for block in self.decoder)
        return ByteNetState(past, memory, length=0)

    def decode_step(
        self, last_ids: Int[Tensor, " rows"], state: ByteNetState
    ) -> tuple[Float[Tensor, "rows vocabulary"], ByteNetState]:
        """Logits of the next token after `last_ids` (`<pad>` at the start), and the state that includes them."""
        hidden, state = self._advance(last_ids[:, None], state)
        return self.projection(hidden.squeeze(1)), state

    def _advance(self, ids: Tensor, state: ByteNetState) -> tuple[Tensor, ByteNetState]:
        """The output at new positions, whose previous tokens are `ids`, and the state that includes them."""
        end = state.length + ids.size(1)
        columns = state.memory[:, state.length : end]
        unfolded = F.pad(columns, (0, 0, 0, ids.size(1) - columns.size(1)))
        embedded = self.embed(self.target_embedding, ids)
        x = self.decoder_input(torch.cat([unfolded, embedded], dim=-1))
        mask = torch.ones_like(ids, dtype=torch.bool)
        pasts = []
        for block, past in zip(self.decoder, state.past, strict=True):
            inputs = torch.cat([past, block.reduce(x, mask)], dim=1)
            x = block(x, mask, inputs)
            pasts.append(inputs[:, inputs.size(1) - block.span :])
        hidden = self.dropout(self.output(x, should_apply_relu=True))
        return hidden, replace(state, past=tuple(pasts), length=end)


def make_blocks(config: TransformerConfig, number: int) -> nn.ModuleList:
    """A stack of blocks whose dilations double in each set."""
    return nn.ModuleList(ResidualBlock(config, DILATIONS[i % len(DILATIONS)]) for i in range(number))


@torch.no_grad()
def initialize_bytenet(network: ByteNet) -> None:
    """Draw matrices uniformly with the variance of Glorot & Bengio 2010; biases are zero, embeddings as elsewhere."""
    initialize(network)
    for part in network.modules():
        if isinstance(part, Linear):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
