"""The interface of every sequence-to-sequence network: a source becomes a memory, memory and target become logits."""

import sys
from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model.embeddings import OutputProjection, TokenEmbedding
from transduce.model.sublayers import Dropout


@runtime_checkable
class State(Protocol):
    """What a decoder keeps between steps. Immutable: a step returns a new one."""

    def reorder(self, index: Int[Tensor, " chosen"]) -> "State":
        """The state whose row i is row `index[i]` of this one: rows may be dropped, repeated and exchanged."""
        ...


class EncoderDecoder(nn.Module, ABC):
    """An encoder, a decoder, their embeddings, and the projection to logits (paper 3).

    Token ids are from 0 to vocabulary - 1; the last is `<pad>`. Masks are True at real tokens; padding is at the end.
    Targets include `</s>`, and the model itself shifts them right: the logits at position t are those of `target_ids[:,
    t]`, computed from the tokens before it.
    """

    projection: OutputProjection
    """To be made by each network, after its other parts, with `target_embedding`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = TokenEmbedding(config)
        shared = config.tied_embeddings == "three_way"
        self.target_embedding = self.source_embedding if shared else TokenEmbedding(config)
        self.dropout = Dropout(config.dropout)
        self.compute_dtype: torch.dtype | None = None  # the type of the weights, unless training sets another

    @abstractmethod
    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch positions width"]:
        """The encoder output (the memory)."""

    @abstractmethod
    def decode_hidden(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch positions width"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The decoder's output before the projection to logits, for a loss that never holds all logits."""

    @abstractmethod
    def start(self, memory: Float[Tensor, "rows positions width"], source_mask: Bool[Tensor, "rows source"]) -> Any:  # noqa: ANN401 - a `State` of the network's own
        """The initial state of `decode_step`, a `State`."""

    @abstractmethod
    def decode_step(
        self,
        last_ids: Int[Tensor, " rows"],
        state: Any,  # noqa: ANN401 - a `State` of the network's own
    ) -> tuple[Float[Tensor, "rows vocabulary"], Any]:
        """Logits of the next token after `last_ids` (`<pad>` at the start), and the state that includes them.

        The logits are those of `decode`, but earlier positions are not computed again.
        """

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a source or a target, `</s>` included."""
        return sys.maxsize

    @property
    def pad_id(self) -> int:
        """Id of `<pad>`, which fills short sentences; its embedding, the zero vector, starts every target."""
        return self.config.vocabulary - 1

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters. Shared matrices count once."""
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

    def decode(
        self,
        target_ids: Int[Tensor, "batch target"],
        target_mask: Bool[Tensor, "batch target"],
        memory: Float[Tensor, "batch positions width"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target vocabulary"]:
        """Logits of every target token, given the memory and the target tokens before it."""
        logits: Tensor = self.projection(self.decode_hidden(target_ids, target_mask, memory, source_mask))
        return logits

    def embed(
        self, embedding: TokenEmbedding, ids: Int[Tensor, "batch length"], positions: Tensor | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """The input of the encoder or the decoder: embedded tokens, plus `positions` if given, after dropout (5.4)."""
        embedded = embedding(ids) if positions is None else embedding(ids) + positions
        inputs: Tensor = self.dropout(embedded.to(self.compute_dtype or embedded.dtype))
        return inputs

    def shift_right(self, target_ids: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """The target as the decoder reads it: moved one place to the right, with `<pad>` first (paper 3.1, Figure 1).

        The last token is dropped; the embedding of `<pad>` is zero.
        """
        return target_ids.roll(1, dims=1).index_fill(1, target_ids.new_zeros(1), self.pad_id)
