"""A recurrent encoder-decoder with additive attention (Bahdanau, Cho & Bengio 2015, called RNNsearch there).

A bidirectional recurrent network reads the source; another writes the target, one token after the other, and before
each token attends to the source from the state that it is in. Equations are cited from the paper's appendix A. Its
letters: h_j is the annotation of source position j (a row of the memory), s_i the decoder's state at target position i,
c_i the context, y_i the target token and E y_i its embedding; n is the width of a state, here d_model.

Departures from the paper:

- Embeddings have width d_model too, and the same initial values as the Transformer's; in the paper, they have 620
  numbers where a state has 1000.
- The maxout layer has d_model outputs, not d_model / 2, as its output is compared with the target embeddings.
- The maxout layer reads s_i, as equation 4 of the paper says; its appendix writes s_{i-1} there.
- There may be several layers. Each encoder layer reads both directions of the one below. Each decoder layer reads the
  state of the one below in place of the embedding, and the same context, which the state of the first layer decides.
- Dropout, which the paper does not have, applies to embeddings, between layers, and to the output of the maxout layer,
  but not to what a layer passes on to itself (Zaremba et al. 2014).
- Products with inputs, the key of each source position, W_s and the maxout layer have a bias; the paper omits biases
  from its equations.
- Embeddings are multiplied by sqrt(d_model), and the start of a target is the zero vector, as in the Transformer.
- Unless `tied_embeddings` is "none", the projection's matrix is that of the target embeddings, and with "three_way",
  the default, of the source's too; it is drawn as the Transformer's, not with 0.01.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.batch_invariance import KEY_PADDING_MULTIPLE, compute_elementwise, count_padding, linear
from transduce.kernels.linear import Linear
from transduce.model import EncoderDecoder, OutputProjection
from transduce.model.transformer import initialize


class GatedRecurrentUnit(nn.Module):
    """One recurrent layer: a state that each input changes as far as two gates let it (Cho et al. 2014; A.1.1).

    For an input x and a state s:

    - update gate z = σ(W_z x + U_z s): how much of the state is replaced;
    - reset gate r = σ(W_r x + U_r s): how much of the state the candidate is computed from;
    - candidate s' = tanh(W x + U (r ∘ s));
    - new state (1 - z) ∘ s + z ∘ s'.

    `torch.nn.GRU` computes r ∘ (U s) instead, and exchanges z and 1 - z.
    """

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.input = Linear(input_width, 3 * width)  # W_z, W_r and W, one below the other
        self.recurrent_weight = nn.Parameter(torch.empty(3 * width, width))  # U_z, U_r and U

    def step(
        self, products: Float[Tensor, "rows three_widths"], state: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "rows width"]:
        """The state after one more input; `products` are those of the input, from `self.input`."""
        weight = self.recurrent_weight.to(state.dtype)
        of_gates, of_candidate = torch.split(products, [2 * self.width, self.width], dim=-1)
        gates = compute_elementwise(torch.sigmoid, of_gates + linear(state, weight[: 2 * self.width]))
        update, reset = gates.chunk(2, dim=-1)
        candidate = compute_elementwise(torch.tanh, of_candidate + linear(reset * state, weight[2 * self.width :]))
        return (1 - update) * state + update * candidate

    def forward(
        self,
        inputs: Float[Tensor, "batch length input_width"],
        mask: Bool[Tensor, "batch length"],
        *,
        is_reversed: bool = False,
    ) -> Float[Tensor, "batch length width"]:
        """The state after each position of a sentence, from a state of zeros; padding leaves the state as it is.

        Args:
            inputs: what is read at each position.
            mask: True at real positions.
            is_reversed: whether the sentence is read from its end.
        """
        # Unbound at once: the gradient of a slice would be a tensor as large as all steps, for every step.
        steps = list(zip(self.input(inputs).unbind(1), mask.unbind(1), strict=True))
        state = inputs.new_zeros(inputs.size(0), self.width)
        states = []
        for products, is_real in steps[::-1] if is_reversed else steps:
            state = torch.where(is_real[:, None], self.step(products, state), state)
            states.append(state)
        return torch.stack(states[::-1] if is_reversed else states, dim=1)


class BidirectionalLayer(nn.Module):
    """Two recurrent layers, of which one reads the sentence from its start, the other from its end (A.2.1)."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.left_to_right = GatedRecurrentUnit(input_width, width)
        self.right_to_left = GatedRecurrentUnit(input_width, width)

    def forward(
        self, inputs: Float[Tensor, "batch source input_width"], mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source two_widths"]:
        """The states of both directions, side by side: what precedes each position and what follows it."""
        return torch.cat([self.left_to_right(inputs, mask), self.right_to_left(inputs, mask, is_reversed=True)], dim=-1)


class AdditiveAttention(nn.Module):
    """Additive attention (A.1.2): the mean of annotations h_j, weighted by softmax(v·tanh(W_a s_{i-1} + U_a h_j))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.empty(width, width))  # W_a
        self.key = Linear(2 * width, width)  # U_a
        self.hidden_weight = nn.Parameter(torch.empty(1, width))  # v

    def forward(
        self,
        state: Float[Tensor, "rows width"],
        keys: Float[Tensor, "rows source width"],
        memory: Float[Tensor, "rows source two_widths"],
        source_mask: Bool[Tensor, "rows source"],
    ) -> Float[Tensor, "rows two_widths"]:
        """The context for a decoder state; `keys` are U_a h_j, which are the same for every target position."""
        query_weight, hidden_weight = self.query_weight.to(state.dtype), self.hidden_weight.to(state.dtype)
        hidden = compute_elementwise(torch.tanh, linear(state, query_weight)[:, None] + keys)
        scores = linear(hidden, hidden_weight).squeeze(-1)
        weights = scores.masked_fill(~source_mask, -torch.inf).softmax(dim=-1)
        return (weights[:, None] @ memory).squeeze(1)


@dataclass(frozen=True)
class RecurrentState:
    """What the recurrent decoder keeps between steps; immutable: a step returns a new one."""

    layers: tuple[Float[Tensor, "rows d_model"], ...]
    """The state of each decoder layer."""
    keys: Float[Tensor, "rows source d_model"]
    """U_a h_j, the part of attention that depends on the source alone."""
    memory: Float[Tensor, "rows source two_d_model"]
    """The annotations h_j."""
    source_mask: Bool[Tensor, "rows source"]
    """True at real source tokens."""

    def reorder(self, index: Int[Tensor, " chosen"]) -> "RecurrentState":
        """The state whose row i is row `index[i]` of this one: rows may be dropped, repeated and exchanged."""
        return RecurrentState(
            layers=tuple(layer.index_select(0, index) for layer in self.layers),
            keys=self.keys.index_select(0, index),
            memory=self.memory.index_select(0, index),
            source_mask=self.source_mask.index_select(0, index),
        )


class RecurrentNetwork(EncoderDecoder):
    """RNNsearch: a bidirectional recurrent encoder, and a recurrent decoder with attention (Bahdanau et al. 2015).

    Reading and writing take one step after the other for every token: O(n) sequential operations (Vaswani et al. 2017,
    Table 1). Settings it reads: vocabulary, num_encoder_layers, num_decoder_layers (Bahdanau et al. have one of each),
    d_model, dropout, tied_embeddings, output_bias.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        width = config.d_model
        encoder = [BidirectionalLayer(2 * width if i else width, width) for i in range(config.num_encoder_layers)]
        self.encoder = cast("list[BidirectionalLayer]", nn.ModuleList(encoder))
        decoder = [GatedRecurrentUnit(3 * width, width) for _ in range(config.num_decoder_layers)]
        self.decoder = cast("list[GatedRecurrentUnit]", nn.ModuleList(decoder))
        initial = [Linear(width, width) for _ in range(config.num_decoder_layers)]  # W_s
        self.initial_states = cast("list[Linear]", nn.ModuleList(initial))
        self.attention = AdditiveAttention(width)
        self.maxout = Linear(4 * width, 2 * width)  # U_o, V_o and C_o, side by side
        self.projection = OutputProjection(config, self.target_embedding)
        initialize_recurrent(self)

    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source two_d_model"]:
        """The annotations (the memory): for each source token, the states of both directions."""
        x = self.embed(self.source_embedding, source_ids)
        for number, layer in enumerate(self.encoder):
            x = layer(self.dropout(x) if number else x, source_mask)
        return x

    def decode_hidden(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],  # noqa: ARG002 - padding is at the end: no real token reads it
        memory: Float[Tensor, "batch source two_d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The output of the maxout layer, before the projection to logits."""
        embedded = self.embed(self.target_embedding, self.shift_right(target_ids))
        state = self.start(memory, source_mask)
        states, contexts = [], []
        for token in embedded.unbind(1):
            context, state = self._advance(token, state)
            states.append(state.layers[-1])
            contexts.append(context)
        return self._compute_hidden(torch.stack(states, dim=1), embedded, torch.stack(contexts, dim=1))

    def start(
        self, memory: Float[Tensor, "rows source two_d_model"], source_mask: Bool[Tensor, "rows source"]
    ) -> RecurrentState:
        """The initial state: s_0 = tanh(W_s h←_1), of the state that has read the source from its end to its start."""
        at_start = memory[:, 0, self.config.d_model :]
        if padding := count_padding(memory, memory.size(1), KEY_PADDING_MULTIPLE):  # as in `pad_keys`
            memory, source_mask = F.pad(memory, (0, 0, 0, padding)), F.pad(source_mask, (0, padding))
        return RecurrentState(
            layers=tuple(compute_elementwise(torch.tanh, layer(at_start)) for layer in self.initial_states),
            keys=self.attention.key(memory),
            memory=memory,
            source_mask=source_mask,
        )

    def decode_step(
        self, last_ids: Int[Tensor, " rows"], state: RecurrentState
    ) -> tuple[Float[Tensor, "rows vocabulary"], RecurrentState]:
        """Logits of the next token after `last_ids` (`<pad>` at the start), and the state that includes them."""
        token = self.embed(self.target_embedding, last_ids[:, None]).squeeze(1)
        context, state = self._advance(token, state)
        return self.projection(self._compute_hidden(state.layers[-1], token, context)), state

    def _advance(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The context c_i and the state s_i, from the embedding of the previous token and the state s_{i-1} (A.2.2)."""
        context = self.attention(state.layers[0], state.keys, state.memory, state.source_mask)
        layers: list[Tensor] = []
        for unit, previous in zip(self.decoder, state.layers, strict=True):
            below = self.dropout(layers[-1]) if layers else token
            layers.append(unit.step(unit.input(torch.cat([below, context], dim=-1)), previous))
        return context, replace(state, layers=tuple(layers))

    def _compute_hidden(self, states: Tensor, tokens: Tensor, contexts: Tensor) -> Tensor:
        """The greater of each two neighbours of U_o s_i + V_o E y_{i-1} + C_o c_i (A.2.2; Goodfellow et al. 2013)."""
        pairs = self.maxout(torch.cat([states, tokens, contexts], dim=-1)).unflatten(-1, (self.config.d_model, 2))
        hidden: Tensor = self.dropout(pairs.amax(dim=-1))
        return hidden


@torch.no_grad()
def initialize_recurrent(network: RecurrentNetwork) -> None:
    """Draw the initial values as the paper does (B.1).

    Recurrent matrices are random orthogonal ones, W_a and U_a normal with standard deviation 0.001, all other matrices
    normal with 0.01; v and all biases are zero. Embeddings and projection are drawn as the Transformer's.
    """
    initialize(network)
    for part in network.modules():
        match part:
            case Linear():
                nn.init.normal_(part.weight, std=0.01)
                nn.init.zeros_(part.bias)
            case GatedRecurrentUnit():
                for matrix in part.recurrent_weight.chunk(3):
                    nn.init.orthogonal_(matrix)
    nn.init.normal_(network.attention.query_weight, std=0.001)
    nn.init.normal_(network.attention.key.weight, std=0.001)
    nn.init.zeros_(network.attention.hidden_weight)
