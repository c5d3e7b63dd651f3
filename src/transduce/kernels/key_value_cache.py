"""The key-value cache of a decoder that follows several hypotheses of many sentences at a time."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.batch_invariance import MIN_MULTIPLICATIONS

STRIDE = 16
"""Positions by which a cache grows at a time. Attention is to all of them, unused ones masked: oneDNN builds a kernel
for each number of positions, and copies tensors that are not contiguous."""

_MIN_KEYS = 16
"""Minimum number of keys, as many as the widest register holds."""


def compute_source_capacity(length: int, d_head: int) -> int:
    """Number of positions to which keys and values of a source are padded, so that results do not depend on the batch.

    With fewer, a short sentence alone could be summed in another order, and round differently, than padded to the
    length of a longer one.

    Args:
        length: number of tokens of the longest source of the batch.
        d_head: width of a key or of a value, the narrower of the two.
    """
    return max(length, _MIN_KEYS, -(-MIN_MULTIPLICATIONS // d_head))


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of one attention, in the layout of its matrix products; new positions are written in place.

    Args:
        keys: keys; `num_heads` consecutive rows for each sentence.
        values: values, in the same layout.
        num_heads: number of rows of a sentence.
    """

    keys: Float[Tensor, "rows positions d_k"]
    values: Float[Tensor, "rows positions d_v"]
    num_heads: int

    @property
    def capacity(self) -> int:
        """Number of positions, written or not."""
        return self.keys.size(1)

    @classmethod
    def from_positions(
        cls,
        keys: Float[Tensor, "sentences heads positions d_k"],
        values: Float[Tensor, "sentences heads positions d_v"],
        capacity: int,
    ) -> "KeyValueCache":
        """A cache of these positions, with zeros after them up to `capacity`."""
        sentences, heads, length, d_k = keys.shape
        if capacity == length:
            return cls(keys.flatten(0, 1).contiguous(), values.flatten(0, 1).contiguous(), heads)
        rows = sentences * heads
        cache = cls(keys.new_zeros(rows, capacity, d_k), values.new_zeros(rows, capacity, values.size(3)), heads)
        cache.write(0, keys, values)
        return cache

    def write(
        self,
        start: int,
        keys: Float[Tensor, "sentences heads positions d_k"],
        values: Float[Tensor, "sentences heads positions d_v"],
    ) -> None:
        """Write positions from `start` on."""
        sentences, heads, width, _ = keys.shape
        self.keys.view(sentences, heads, self.capacity, -1).narrow(2, start, width).copy_(keys)
        self.values.view(sentences, heads, self.capacity, -1).narrow(2, start, width).copy_(values)

    def select(self, sentences: Int[Tensor, " kept"]) -> "KeyValueCache":
        """The cache of some of the sentences."""
        heads = torch.arange(self.num_heads, device=sentences.device)
        rows = (sentences[:, None] * self.num_heads + heads).flatten()
        return KeyValueCache(self.keys.index_select(0, rows), self.values.index_select(0, rows), self.num_heads)

    def grow(self, positions: int) -> "KeyValueCache":
        """The cache with more unused positions at its end."""
        # Zeros: masked positions must be finite as well.
        keys, values = (F.pad(part, (0, 0, 0, positions)) for part in (self.keys, self.values))
        return KeyValueCache(keys, values, self.num_heads)


@dataclass(frozen=True)
class BeamDecoderState:
    """Keys and values of all hypotheses of a beam, in which no key or value is ever moved or copied.

    Every hypothesis appends its key and value to those of its sentence. `visible` says which of them, its own
    ancestors, a hypothesis attends to: reordering hypotheses is reordering the rows of this small matrix.

    Args:
        memory: for each layer, keys and values of the memory.
        past: for each layer, keys and values of all hypotheses so far, and unused positions after them.
        source: additive cross-attention mask: 0 at real source tokens, the dtype's minimum at padding. None if no
            source is padded.
        visible: additive self-attention mask: 0 at the hypothesis's own past tokens, the dtype's minimum elsewhere.
        used: number of positions of `past` that are written.
        length: tokens of each hypothesis so far.
    """

    memory: tuple[KeyValueCache, ...]
    past: tuple[KeyValueCache, ...]
    source: Float[Tensor, "sentences 1 1 source"] | None
    visible: Float[Tensor, "sentences width capacity"]
    used: int = 0
    length: int = 0

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "BeamDecoderState":
        """The state of some sentences, whose hypothesis j goes on from `parents[:, j]`; see `search.SearchState`."""
        if sentences is None:
            index = parents[:, :, None].expand(-1, -1, self.visible.size(2))
            return replace(self, visible=self.visible.gather(1, index))
        return replace(
            self,
            memory=tuple(layer.select(sentences) for layer in self.memory),
            past=tuple(layer.select(sentences) for layer in self.past),
            source=None if self.source is None else self.source.index_select(0, sentences),
            visible=self.visible[sentences[:, None], parents],
        )

    def extend(self, width: int) -> "BeamDecoderState":
        """The state with one more token of each of `width` hypotheses, which attends to its ancestors and itself.

        Keys and values of the token are still to be written.
        """
        used, past, visible = self.used + width, self.past, self.visible
        least = torch.finfo(visible.dtype).min  # not -inf, of which a softmax of nothing else is NaN
        if used > visible.size(2):
            more = -(-width // STRIDE) * STRIDE
            past = tuple(layer.grow(more) for layer in past)
            visible = torch.cat([visible, visible.new_full((*visible.shape[:2], more), least)], dim=2)
        own = torch.full((width, width), least, dtype=visible.dtype, device=visible.device).fill_diagonal_(0)
        visible.narrow(2, self.used, width).copy_(own)
        return replace(self, past=past, visible=visible, used=used, length=self.length + 1)
