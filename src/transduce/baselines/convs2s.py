"""Convolutional sequence to sequence learning, ConvS2S (Gehring, Auli, Grangier, Yarats & Dauphin 2017).

Layers are convolutions with gated linear units. With kernel width k, l layers see l·(k - 1) + 1 positions. Every
decoder layer attends to the source. Sections and letters are those of that paper: w is an embedded token and p its
position, e = w + p, z_j the encoder's output at source position j, h_i the output of a decoder layer at target position
i, g_i the embedding of the previous target token there, c_i the context, and m the number of source tokens.

Departures from the paper:

- Embeddings and all layers have width d_model; in the paper, layers may be wider. Of the linear mappings between both,
  those that section 3.2 lists are there: from the source embeddings, to the encoder's output, from h_i for attention,
  and to the decoder's output. A mapping from the target embeddings and one from the context, which only different
  widths need, are not.
- The sum of each residual connection is multiplied by sqrt(0.5), so that it keeps the variance of its terms, and so are
  the three of attention: queries, values, and h_i + c_i. The paper says it of residual blocks alone (3.4), its authors'
  code does it. The order of the sums is the paper's; in the code, c_i is added before the residual sum of the layer.
- Embeddings are multiplied by sqrt(d_model), as the Transformer's are, and drawn smaller in proportion.
- The start of a target has no embedding but its position.
- Initial embeddings from co-occurrence, where training is asked for them, are as long as the Transformer's: about 1.
- The projection to logits is not weight-normalised, and has a bias only with `output_bias`. Unless `tied_embeddings` is
  "none", its matrix is that of the target embeddings, and with "three_way", the default, of the source's too.
"""

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.baselines.convolution import gather_windows
from transduce.config import TransformerConfig
from transduce.kernels.batch_invariance import compute_elementwise, linear
from transduce.model import (
    DotScore,
    Dropout,
    EncoderDecoder,
    LearnedPositions,
    OutputProjection,
    TokenEmbedding,
    source_attention_mask,
)
from transduce.model.transformer import initialize

SUM_SCALE = math.sqrt(0.5)
"""Factor that gives a sum of two independent numbers of the same variance that variance."""

EMBEDDING_DEVIATION = 0.1
"""Standard deviation of embedded tokens and of positions at the start (3.5)."""


class WeightNormalizedLinear(nn.Module):
    """x W^T + b, where a row of W is a learned direction v, brought to a learned length g: g · v / |v|.

    Salimans & Kingma 2016. At the start g is |v|.

    Args:
        inputs: number of inputs.
        outputs: number of outputs.
        kept: share of the inputs that dropout before it keeps; the variance of W is multiplied by it (3.5).
        has_gate: whether a gated linear unit follows, which halves its input roughly: the variance of W is four times
            as large (3.5).
    """

    def __init__(self, inputs: int, outputs: int, *, kept: float = 1.0, has_gate: bool = False) -> None:
        super().__init__()
        self.deviation = math.sqrt((4 if has_gate else 1) * kept / inputs)
        self.direction = nn.Parameter(torch.empty(outputs, inputs))
        self.length = nn.Parameter(torch.empty(outputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Draw W from a normal distribution with the standard deviation of section 3.5; biases are zero."""
        nn.init.normal_(self.direction, std=self.deviation)
        self.length.copy_(self.direction.norm(dim=1))
        nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Float[Tensor, "outputs inputs"]:
        """W, computed in the type of the parameters."""
        weight: Tensor = self.direction * (self.length / self.direction.norm(dim=1)).unsqueeze(1)
        return weight

    def forward(self, inputs: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """For any number of leading axes; computed in the type of the inputs."""
        return linear(inputs, self.weight.to(inputs.dtype), self.bias.to(inputs.dtype))


class GatedConvolution(nn.Module):
    """A convolution with two outputs, A and B, whose result is A ∘ σ(B): B is a gate (3.2; Dauphin et al. 2017)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.kernel_width = config.kernel_width
        window = config.kernel_width * config.d_model
        self.linear = WeightNormalizedLinear(window, 2 * config.d_model, kept=1 - config.dropout, has_gate=True)

    def forward(self, inputs: Float[Tensor, "batch padded d_model"]) -> Float[Tensor, "batch length d_model"]:
        """A vector for each window of `kernel_width` inputs."""
        outputs, gate = self.linear(gather_windows(inputs, self.kernel_width)).chunk(2, dim=-1)
        gated: Tensor = outputs * compute_elementwise(torch.sigmoid, gate)
        return gated


class ConvolutionalEncoderLayer(nn.Module):
    """An encoder layer: a convolution of each position and its neighbours, within a residual connection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.reach = config.kernel_width // 2
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(config)

    def forward(
        self, x: Float[Tensor, "batch source d_model"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source d_model"]:
        """The output of the layer. Beyond the ends of a sentence, in its padding too, the convolution reads zeros."""
        inputs = self.dropout(x).masked_fill(~source_mask.unsqueeze(-1), 0)
        outputs: Tensor = (self.convolution(F.pad(inputs, (0, 0, self.reach, self.reach))) + x) * SUM_SCALE
        return outputs


@dataclass(frozen=True)
class ConvolutionalState:
    """What the decoder of ConvS2S keeps between steps; immutable: a step returns a new one."""

    past: tuple[Float[Tensor, "rows before d_model"], ...]
    """For each layer, its inputs at the last `kernel_width` - 1 positions, which the next window reads."""
    memory: Float[Tensor, "rows source two_d_model"]
    """Keys and values of attention, side by side."""
    source_mask: Bool[Tensor, "rows source"]
    """True at real source tokens."""
    length: int
    """Number of target positions so far."""

    def reorder(self, index: Int[Tensor, " chosen"]) -> "ConvolutionalState":
        """The state whose row i is row `index[i]` of this one: rows may be dropped, repeated and exchanged."""
        return replace(
            self,
            past=tuple(layer.index_select(0, index) for layer in self.past),
            memory=self.memory.index_select(0, index),
            source_mask=self.source_mask.index_select(0, index),
        )


class ConvolutionalDecoderLayer(nn.Module):
    """A decoder layer: a convolution of each position and those before it, and attention, each residual (3.3)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(config)
        self.query = WeightNormalizedLinear(config.d_model, config.d_model)
        self.score = DotScore(config.d_model, scaled=False)

    def forward(
        self,
        x: Float[Tensor, "rows new d_model"],
        past: Float[Tensor, "rows before d_model"],
        embedded: Float[Tensor, "rows new d_model"],
        memory: Float[Tensor, "rows source two_d_model"],
        source_mask: Bool[Tensor, "rows source"],
    ) -> tuple[Float[Tensor, "rows new d_model"], Float[Tensor, "rows before d_model"]]:
        """The output at the new positions, and the inputs that the next position's window reads.

        Args:
            x: input at the new positions.
            past: the inputs of the convolution before them, zeros before the first.
            embedded: g, the embeddings of the previous target tokens.
            memory: keys and values of the source.
            source_mask: True at real source tokens.
        """
        inputs = torch.cat([past, self.dropout(x)], dim=1)
        x = (self.convolution(inputs) + x) * SUM_SCALE
        x = (self._attend((self.query(x) + embedded) * SUM_SCALE, memory, source_mask) + x) * SUM_SCALE
        return x, inputs[:, inputs.size(1) - past.size(1) :]

    def _attend(self, queries: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """The context c_i times m · sqrt(1/m): the variance of a mean of m values is an m-th of theirs (3.4)."""
        keys, values = memory.unsqueeze(1).chunk(2, dim=-1)
        mask = source_attention_mask(source_mask)
        contexts = self.score.attend(queries.unsqueeze(1), keys, values, mask).squeeze(1)
        return contexts * source_mask.sum(dim=1).sqrt().to(contexts.dtype)[:, None, None]


class ConvS2S(EncoderDecoder):
    """ConvS2S: a network of gated convolutions, with attention in each decoder layer (Gehring et al. 2017, Figure 1).

    A constant number of operations follow each other, however long a sentence is; O(n / k) layers connect all of its
    positions (Vaswani et al. 2017, Table 1). Settings it reads: vocabulary, num_encoder_layers, num_decoder_layers,
    d_model, kernel_width, max_positions, dropout, tied_embeddings, output_bias.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        width, kept = config.d_model, 1 - config.dropout
        self.source_positions = LearnedPositions(config)
        self.target_positions = LearnedPositions(config)
        self.encoder_input = WeightNormalizedLinear(width, width, kept=kept)
        encoder = [ConvolutionalEncoderLayer(config) for _ in range(config.num_encoder_layers)]
        self.encoder = cast("list[ConvolutionalEncoderLayer]", nn.ModuleList(encoder))
        self.encoder_output = WeightNormalizedLinear(width, width)
        decoder = [ConvolutionalDecoderLayer(config) for _ in range(config.num_decoder_layers)]
        self.decoder = cast("list[ConvolutionalDecoderLayer]", nn.ModuleList(decoder))
        self.decoder_output = WeightNormalizedLinear(width, width)
        self.projection = OutputProjection(config, self.target_embedding)
        initialize_embeddings(self)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a source or a target, `</s>` included: the number of learned positions."""
        return self.config.max_positions

    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source two_d_model"]:
        """The memory: for each source token its key z_j and, beside it, its value z_j + e_j (3.3).

        Gradients of z_j are divided by the number of decoder layers, each of which attends to it (3.4).
        """
        embedded = self._embed(self.source_embedding, self.source_positions, source_ids)
        x = self.encoder_input(embedded)
        for layer in self.encoder:
            x = layer(x, source_mask)
        keys = self.encoder_output(x)
        if keys.requires_grad:
            keys.register_hook(lambda gradient: gradient / self.config.num_decoder_layers)
        return torch.cat([keys, (keys + embedded) * SUM_SCALE], dim=-1)

    def decode_hidden(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],  # noqa: ARG002 - padding is at the end: no real token reads it
        memory: Float[Tensor, "batch source two_d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The decoder's output before the projection to logits."""
        hidden, _ = self._advance(self.shift_right(target_ids), self.start(memory, source_mask))
        return hidden

    def start(
        self, memory: Float[Tensor, "rows source two_d_model"], source_mask: Bool[Tensor, "rows source"]
    ) -> ConvolutionalState:
        """The initial state of `decode_step`: before the first token there are zeros."""
        nothing = memory.new_zeros(memory.size(0), self.config.kernel_width - 1, self.config.d_model)
        return ConvolutionalState((nothing,) * len(self.decoder), memory, source_mask, length=0)

    def decode_step(
        self, last_ids: Int[Tensor, " rows"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "rows vocabulary"], ConvolutionalState]:
        """Logits of the next token after `last_ids` (`<pad>` at the start), and the state that includes them."""
        hidden, state = self._advance(last_ids[:, None], state)
        return self.projection(hidden.squeeze(1)), state

    def _embed(self, embedding: TokenEmbedding, positions: LearnedPositions, ids: Tensor, start: int = 0) -> Tensor:
        return self.embed(embedding, ids, positions(ids.size(1), start))

    def _advance(self, ids: Tensor, state: ConvolutionalState) -> tuple[Tensor, ConvolutionalState]:
        """The output at new positions, whose previous tokens are `ids`, and the state that includes them."""
        x = embedded = self._embed(self.target_embedding, self.target_positions, ids, start=state.length)
        pasts = []
        for layer, past in zip(self.decoder, state.past, strict=True):
            x, last = layer(x, past, embedded, state.memory, state.source_mask)
            pasts.append(last)
        hidden = self.dropout(self.decoder_output(x))
        return hidden, replace(state, past=tuple(pasts), length=state.length + ids.size(1))


@torch.no_grad()
def initialize_embeddings(network: ConvS2S) -> None:
    """Draw the initial values of embeddings, of positions and of an untied projection (Gehring et al. 2017, 3.5).

    Embeddings and positions have standard deviation 0.1. As `TokenEmbedding` multiplies by sqrt(d_model), its weights
    are smaller by that factor. The projection's inputs pass dropout: its standard deviation is
    sqrt((1 - dropout) / d_model).
    """
    initialize(network)
    if network.config.tied_embeddings == "none":
        network.projection.weight.mul_(math.sqrt(1 - network.config.dropout))
    for embedding in {network.source_embedding, network.target_embedding}:
        embedding.weight.mul_(EMBEDDING_DEVIATION)
    for positions in (network.source_positions, network.target_positions):
        nn.init.normal_(positions.table, std=EMBEDDING_DEVIATION)
