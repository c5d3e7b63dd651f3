"""The Transformer (paper, Figure 1)."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.errors import ConfigError, UserError
from transduce.kernels.batch_invariance import pad_keys
from transduce.model.attention import Attend, KeysAndValues, MultiHeadAttention, attention_weights
from transduce.model.embeddings import LearnedPositions, OutputProjection, TokenEmbedding, make_positions
from transduce.model.encoder_decoder import EncoderDecoder
from transduce.model.stacks import Decoder, DecoderState, Encoder
from transduce.model.sublayers import FeedForward, GatedFeedForward


class Transformer(EncoderDecoder):
    """Encoder and decoder of attention and feed-forward networks, with positions added to the embeddings (paper 3)."""

    def __init__(self, config: TransformerConfig) -> None:
        if config.architecture != "transformer":
            raise ConfigError(
                f'model.architecture = "{config.architecture}" is no Transformer: make the network by '
                "transduce.baselines.make_encoder_decoder"
            )
        super().__init__(config)
        self.positions = make_positions(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = OutputProjection(config, self.target_embedding)
        initialize(self)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a source or a target, `</s>` included; unlimited unless positions are learned."""
        return self.positions.limit

    def encode(
        self,
        source_ids: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder output (the memory), one vector per source token; `attend` computes self-attention."""
        memory: Tensor = self.encoder(self._embed(self.source_embedding, source_ids), source_mask, attend)
        return memory

    def decode_hidden(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend = MultiHeadAttention.attend,
    ) -> Float[Tensor, "batch target d_model"]:
        """The decoder's output before the projection to logits, for a loss that never holds all logits.

        `attend` computes self-attention and encoder-decoder attention.
        """
        inputs = self._embed(self.target_embedding, self.shift_right(target_ids))
        hidden: Tensor = self.decoder(inputs, target_mask, memory, source_mask, attend)
        return hidden

    def decode_layers(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
        attend: Attend,
    ) -> Iterator[Float[Tensor, "batch target d_model"]]:
        """The output of each decoder layer in turn; `attend` computes self-attention and encoder-decoder attention."""
        inputs = self._embed(self.target_embedding, self.shift_right(target_ids))
        return self.decoder.iterate_layers(inputs, target_mask, memory, source_mask, attend)

    def start(
        self, memory: Float[Tensor, "rows source d_model"], source_mask: Bool[Tensor, "rows source"]
    ) -> DecoderState:
        """The initial state of `decode_step`."""
        return self.decoder.start(memory, source_mask)

    def decode_step(
        self, last_ids: Int[Tensor, " rows"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows vocabulary"], DecoderState]:
        """Logits of the next token after `last_ids` (`<pad>` at the start), and the state that includes them.

        The logits are those of `decode`, but earlier positions are not computed again.
        """
        inputs = self._embed(self.target_embedding, last_ids[:, None], start=state.length)
        hidden, state = self.decoder.step(inputs, state)
        return self.projection(hidden.squeeze(1)), state

    def _embed(self, embedding: TokenEmbedding, ids: Tensor, start: int = 0) -> Tensor:
        return self.embed(embedding, ids, self.positions(ids.size(1), start))


def as_transformer(model: EncoderDecoder, purpose: str) -> Transformer:
    """The model itself if it is a Transformer, for functions that read its layers and heads.

    Args:
        model: a network of any architecture.
        purpose: what needs a Transformer, for the message, as in "inspecting".

    Raises:
        UserError: the model has another architecture.
    """
    if isinstance(model, Transformer):
        return model
    raise UserError(
        f'model.architecture = "{model.config.architecture}": {purpose} needs a Transformer, as other networks have '
        'neither its layers nor its heads: use a model trained with model.architecture = "transformer"'
    )


@torch.no_grad()
def initialize(model: nn.Module) -> None:
    """Draw the initial values of all parts of `model`, except normalisations, which start as the identity.

    The paper does not give them; these follow its authors' code: matrices uniform with the variance of Glorot &
    Bengio 2010, biases zero, embeddings normal with variance 1/d_model, which sqrt(d_model) brings to variance 1.
    """
    for part in model.modules():
        match part:
            case MultiHeadAttention():
                # W^Q, W^K and W^V are stored as one matrix, but drawn as three.
                widths = [part.query_width, part.query_width, part.num_heads * part.d_v]
                for matrix in torch.split(part.projection.weight, widths):
                    nn.init.xavier_uniform_(matrix)
                nn.init.zeros_(part.projection.bias)
                _initialize(part.output)
                for matrix in part.score.parameters():
                    nn.init.xavier_uniform_(matrix)
            case FeedForward():
                _initialize(part.inner, part.outer)
            case GatedFeedForward():
                _initialize(part.inner, part.gate, part.outer)
            case TokenEmbedding() | OutputProjection():
                nn.init.normal_(part.weight, std=part.weight.size(1) ** -0.5)
                nn.init.zeros_(part.weight[-1])
                if isinstance(part, OutputProjection) and part.bias is not None:
                    nn.init.zeros_(part.bias)
            case LearnedPositions():
                nn.init.normal_(part.table, std=part.table.size(1) ** -0.5)


def _initialize(*maps: nn.Linear) -> None:
    for linear in maps:
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)


def cross_attention_weights(
    model: Transformer,
    source_ids: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    target_ids: Int[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
) -> Iterator[Float[Tensor, "batch heads target source"]]:
    """The weights of encoder-decoder attention (paper 3.2.3), from the first decoder layer to the last.

    Fused attention does not return weights, so they are computed separately during a forward pass. Row t of a layer's
    weights belongs to the position that reads token t - 1 and predicts token t. Every row sums to 1; padding of the
    source has weight 0. Only one layer's weights are held at a time, in the model's own precision.
    """
    seen: dict[MultiHeadAttention, Tensor] = {}

    def attend(attention: MultiHeadAttention, queries: Tensor, memory: KeysAndValues, mask: Tensor) -> Tensor:
        if attention in cross_attentions:
            keys, _, padded_mask = pad_keys(*memory, mask)
            seen[attention] = attention_weights(attention.score, queries, keys, padded_mask)[..., : mask.size(-1)]
        return attention.attend(queries, memory, mask)

    cross_attentions = [layer.cross_attention for layer in model.decoder.layers]
    memory = model.encode(source_ids, source_mask)
    outputs = model.decode_layers(target_ids, target_mask, memory, source_mask, attend)
    for attention, _ in zip(cross_attentions, outputs, strict=True):
        yield seen.pop(attention)
