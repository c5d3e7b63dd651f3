"""The Transformer (paper, Figure 1)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model.decoder import Decoder
from transduce.model.dropout import Dropout
from transduce.model.embeddings import OutputProjection, TokenEmbedding
from transduce.model.encoder import Encoder
from transduce.model.initialization import initialize
from transduce.model.positions import make_positions
from transduce.model.state import DecoderState


class Transformer(nn.Module):
    """Encoder and decoder, their embeddings, and the projection to logits (paper 3).

    Token ids are from 0 to vocabulary - 1; the last is `<pad>`. Masks are True at real tokens; padding stands at the
    end. A target is given as it should come out, `</s>` included: the model itself shifts it right, so that the
    logits at position t are those of `target_ids[:, t]`, computed from the tokens before it.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = TokenEmbedding(config)
        shared = config.tied_embeddings == "three_way"
        self.target_embedding = self.source_embedding if shared else TokenEmbedding(config)
        self.positions = make_positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = OutputProjection(config, self.target_embedding)
        self.compute_dtype: torch.dtype | None = None  # the type of the weights, unless training asks for another
        initialize(self)

    @property
    def pad_id(self) -> int:
        """`<pad>`: fills the ends of short sentences; its embedding is the zero vector, behind which targets begin."""
        return self.config.vocabulary - 1

    @property
    def longest(self) -> int:
        """Most positions of a source or a target, `</s>` included; as good as none unless positions are learned."""
        return self.positions.limit

    @property
    def num_parameters(self) -> int:
        """Trainable numbers; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self,
        source_ids: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """Logits of every target token, given the source and the target tokens before it."""
        return self.decode(target_ids, target_mask, self.encode(source_ids, source_mask), source_mask)

    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source d_model"]:
        """The memory: one vector for each source token."""
        memory: Tensor = self.encoder(self._embed(self.source_embedding, source_ids), source_mask)
        return memory

    def decode(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """Logits of every target token, given the memory and the target tokens before it."""
        logits: Tensor = self.projection(self.decode_hidden(target_ids, target_mask, memory, source_mask))
        return logits

    def decode_hidden(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The decoder's output before the projection to logits, for a loss that never holds all logits at once."""
        inputs = self._embed(self.target_embedding, self.shift_right(target_ids))
        hidden: Tensor = self.decoder(inputs, target_mask, memory, source_mask)
        return hidden

    def start(
        self, memory: Float[Tensor, "rows source d_model"], source_mask: Bool[Tensor, "rows source"]
    ) -> DecoderState:
        """The state from which `decode_step` goes on, token by token."""
        return self.decoder.start(memory, source_mask)

    def decode_step(
        self, last_ids: Int[Tensor, " rows"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows vocabulary"], DecoderState]:
        """Logits of the next token after `last_ids` (`<pad>` at the start), and the state that includes them.

        Token by token this gives the logits of `decode`, without computing anything twice.
        """
        inputs = self._embed(self.target_embedding, last_ids[:, None], start=state.length)
        hidden, state = self.decoder.step(inputs, state)
        return self.projection(hidden.squeeze(1)), state

    def shift_right(self, target_ids: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """What the decoder reads: nothing (`<pad>`, the zero vector), then all target tokens but the last (3.1)."""
        return target_ids.roll(1, dims=1).index_fill(1, target_ids.new_zeros(1), self.pad_id)

    def _embed(self, embedding: TokenEmbedding, ids: Tensor, start: int = 0) -> Tensor:
        embedded = embedding(ids) + self.positions(ids.size(1), start)
        inputs: Tensor = self.dropout(embedded.to(self.compute_dtype or embedded.dtype))
        return inputs
