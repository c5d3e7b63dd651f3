"""What the decoder remembers from one token to the next."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transduce.model.attention import KeysAndValues


@dataclass(frozen=True)
class DecoderState:
    """Keys and values that need not be computed again, as a value: passed in, returned, reordered, never changed.

    Args:
        memory: for each layer, keys and values of the memory; computed once.
        past: for each layer, keys and values of the target positions so far.
        source_mask: True at real source tokens; [rows, source].
        length: number of target positions so far.
    """

    memory: tuple[KeysAndValues, ...]
    past: tuple[KeysAndValues, ...]
    source_mask: Bool[Tensor, "rows source"]
    length: int

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


def appended(past: KeysAndValues, new: KeysAndValues) -> KeysAndValues:
    """`past` with the position `new` behind it."""
    return KeysAndValues(torch.cat([past.keys, new.keys], dim=2), torch.cat([past.values, new.values], dim=2))
