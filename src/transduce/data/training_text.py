"""The text to train on: all corpora, one after the other, without what the model is tested on."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from jaxtyping import Bool

from transduce.data.chunks import Pair
from transduce.errors import CorpusError


@dataclass(frozen=True)
class TrainingText:
    """The pairs of corpora that share no side with a held-out pair; with what validation files hold, they may."""

    corpora: Sequence[Iterable[Pair]]
    num_pairs: Sequence[int]
    """Of each corpus, those that are left out here included."""
    held_out: list[Pair]
    repeats: Bool[np.ndarray, "pairs"]
    """Whether each pair, in order through all corpora, is the same as an earlier one."""

    def __iter__(self) -> Iterator[Pair]:
        return (pair for number in range(len(self.corpora)) for pair, _ in self.of(number))

    def of(self, number: int, left_out: Counter[str] | None = None) -> Iterator[tuple[Pair, bool]]:
        """The pairs of corpus `number`, each with whether it is the same as an earlier one of any corpus.

        Args:
            number: which corpus, from 0.
            left_out: takes how many pairs are `held_out` themselves, and how many others are `like_held_out`: these
                repeat a held-out pair, or have one of its two sides.

        Raises:
            CorpusError: there are more or fewer than there were.
        """
        sources = {source for source, _ in self.held_out}
        targets = {target for _, target in self.held_out}
        held_out = set(self.held_out)
        start = sum(self.num_pairs[:number])
        repeats = map(bool, self.repeats[start : start + self.num_pairs[number]].tobytes())
        for pair, again in zip_longest(self.corpora[number], repeats):
            if pair is None or again is None:
                raise CorpusError(
                    f"corpus {number + 1} of {len(self.corpora)}: has changed while it was read: train once nothing "
                    f"writes to it any more"
                )
            if pair[0] not in sources and pair[1] not in targets:
                yield pair, again
            elif left_out is not None:
                left_out["held_out" if pair in held_out and not again else "like_held_out"] += 1
