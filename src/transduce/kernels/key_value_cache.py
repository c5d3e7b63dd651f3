"""What the decoder remembers of many sentences, each with several hypotheses side by side."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

STRIDE = 16
"""Room is made for so many positions at a time, and attention is to all of it, the rest masked: oneDNN builds a kernel
for each number, and copies what is not contiguous."""

_FEWEST_KEYS = 16
_FEWEST_MULTIPLICATIONS = 400
"""For fewer keys than the widest register has numbers, and for smaller products, torch adds up in another order."""


def room_for_source(length: int, d_head: int) -> int:
    """Positions for keys and values of a source, so that what attention adds up does not depend on its batch.

    Without it, a short sentence would be computed otherwise beside a longer one, whose length it is padded to.

    Args:
        length: of the longest source of the batch.
        d_head: width of a key or of a value, the narrower of the two.
    """
    return max(length, _FEWEST_KEYS, -(-_FEWEST_MULTIPLICATIONS // d_head))


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one attention, in the layout of its products; positions of the target are added in place.

    Args:
        keys: `heads` rows for each sentence in turn.
        values: likewise.
        num_heads: rows of a sentence.
    """

    keys: Float[Tensor, "rows positions d_k"]
    values: Float[Tensor, "rows positions d_v"]
    num_heads: int

    @property
    def room(self) -> int:
        """Positions, written or not."""
        return self.keys.size(1)

    @classmethod
    def of(
        cls,
        keys: Float[Tensor, "sentences heads positions d_k"],
        values: Float[Tensor, "sentences heads positions d_v"],
        room: int,
    ) -> "LayerCache":
        """That of some positions, with zeros behind them up to `room`."""
        sentences, heads, length, d_k = keys.shape
        if room == length:
            return cls(keys.flatten(0, 1).contiguous(), values.flatten(0, 1).contiguous(), heads)
        rows = sentences * heads
        cache = cls(keys.new_zeros(rows, room, d_k), values.new_zeros(rows, room, values.size(3)), heads)
        cache.write(0, keys, values)
        return cache

    def write(
        self,
        start: int,
        keys: Float[Tensor, "sentences heads positions d_k"],
        values: Float[Tensor, "sentences heads positions d_v"],
    ) -> None:
        """Fills the positions from `start` on."""
        sentences, heads, width, _ = keys.shape
        self.keys.view(sentences, heads, self.room, -1).narrow(2, start, width).copy_(keys)
        self.values.view(sentences, heads, self.room, -1).narrow(2, start, width).copy_(values)

    def select(self, sentences: Int[Tensor, " kept"]) -> "LayerCache":
        """Some of the sentences."""
        heads = torch.arange(self.num_heads, device=sentences.device)
        rows = (sentences[:, None] * self.num_heads + heads).flatten()
        return LayerCache(self.keys.index_select(0, rows), self.values.index_select(0, rows), self.num_heads)

    def with_room(self, positions: int) -> "LayerCache":
        """The same with so many positions more behind it."""
        # Zeros, as what is masked must be numbers all the same.
        keys, values = (F.pad(part, (0, 0, 0, positions)) for part in (self.keys, self.values))
        return LayerCache(keys, values, self.num_heads)


@dataclass(frozen=True)
class SideBySideState:
    """Every hypothesis adds its own key and value behind those of its sentence, and none is ever moved or copied.

    Which of them a hypothesis may look at, its own ancestors, is in `visible`: to reorder hypotheses is to reorder
    the rows of this small matrix.

    Args:
        memory: for each layer, keys and values of the memory.
        past: for each layer, keys and values of all hypotheses so far, and room for more.
        source: added to the scores of the memory: 0 at real tokens, else the least number of its type; None if all
            sentences are equally long.
        visible: added to the scores of the past, likewise; the least number where nothing is written yet.
        used: positions of `past` that hold something.
        length: tokens of each hypothesis so far.
    """

    memory: tuple[LayerCache, ...]
    past: tuple[LayerCache, ...]
    source: Float[Tensor, "sentences 1 1 source"] | None
    visible: Float[Tensor, "sentences width room"]
    used: int = 0
    length: int = 0

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "SideBySideState":
        """See `search.SearchState`."""
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

    def grown(self, width: int) -> "SideBySideState":
        """The state with one token more for each of `width` hypotheses, whose keys and values are still to be written.

        Each sees its ancestors and itself.
        """
        used, past, visible = self.used + width, self.past, self.visible
        least = torch.finfo(visible.dtype).min  # not -inf, of which a softmax of nothing else is NaN
        if used > visible.size(2):
            room = -(-width // STRIDE) * STRIDE
            past = tuple(layer.with_room(room) for layer in past)
            visible = torch.cat([visible, visible.new_full((*visible.shape[:2], room), least)], dim=2)
        own = torch.full((width, width), least, dtype=visible.dtype, device=visible.device).fill_diagonal_(0)
        visible.narrow(2, self.used, width).copy_(own)
        return replace(self, past=past, visible=visible, used=used, length=self.length + 1)
