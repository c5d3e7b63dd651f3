"""The training text: all corpora one after the other, repeated pairs, and pairs held out for validation."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool

from transduce.errors import CorpusError

Pair: TypeAlias = tuple[str, str]
Item = TypeVar("Item")

_PAIRS_AT_A_TIME = 10_000


def iterate_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in order, in lists of at most 10,000."""
    iterator = iter(items)
    while chunk := list(islice(iterator, _PAIRS_AT_A_TIME)):
        yield chunk


def is_blank(pair: Pair) -> bool:
    """Whether a side of the pair has no text."""
    return not all(side.strip() for side in pair)


def choose_held_out(pairs: Iterable[Pair], count: int, is_clean: Callable[[Pair], bool]) -> list[Pair]:
    """The `count` distinct clean pairs with the smallest SHA-256.

    This random choice does not depend on the order of the corpus and changes little when it grows.
    """
    chosen: dict[int, Pair] = {}
    largest_first: list[int] = []  # the digests in `chosen`, negated, as a heap
    for pair in pairs:
        digest = _order_digest(pair)
        if digest in chosen or not is_clean(pair):
            continue
        chosen[digest] = pair
        heapq.heappush(largest_first, -digest)
        if len(chosen) > count:
            del chosen[-heapq.heappop(largest_first)]
    return [chosen[digest] for digest in sorted(chosen)]


def _order_digest(pair: Pair) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(pair).encode()).digest(), "big")


_NUM_FILES = 64
_ENTRY = np.dtype([("digest", "<u8", 2), ("index", "<i8")])


class RepetitionFinder:
    """Finds repeated pairs in little memory: digests go to 64 files, equal ones to the same, compared file by file.

    Digests have 16 bytes, whatever the length of a pair: that two of 10^12 pairs share one has odds of 10^-15. Of ten
    million pairs, a file takes 4 MB.
    """

    def __init__(self, folder: Path) -> None:
        self._files = [folder / f"{number:02}.bin" for number in range(_NUM_FILES)]
        self._num_pairs = 0

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs, and record them."""
        for chunk in iterate_chunks(pairs):
            self._add(chunk)
            yield from chunk

    def _add(self, pairs: Sequence[Pair]) -> None:
        digests = np.frombuffer(b"".join(map(_equality_digest, pairs)), np.uint8).reshape(-1, 16)
        entries = np.empty(len(pairs), _ENTRY)
        entries["digest"] = digests.view("<u8")
        entries["index"] = np.arange(self._num_pairs, self._num_pairs + len(pairs))
        numbers = digests[:, 0] % _NUM_FILES
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=_NUM_FILES))
        for path, part in zip(self._files, np.split(entries[order], ends[:-1]), strict=True):
            with path.open("ab") as file:
                file.write(part.tobytes())
        self._num_pairs += len(pairs)

    def repeats(self) -> Bool[np.ndarray, "pairs"]:
        """Whether each of the pairs, in their order, is the same as an earlier one."""
        repeats = np.zeros(self._num_pairs, bool)
        for path in self._files if self._num_pairs else []:
            entries = np.fromfile(path, _ENTRY)
            # Sorting is stable: of equal pairs, the earliest comes first.
            entries = entries[np.lexsort(entries["digest"].T)]
            same = (entries["digest"][1:] == entries["digest"][:-1]).all(axis=1)
            repeats[entries["index"][1:][same]] = True
        return repeats


def _equality_digest(pair: Pair) -> bytes:
    # No kept text has a line break, so that the border between the sides is clear.
    return blake2b("\n".join(pair).encode(), digest_size=16).digest()


@dataclass(frozen=True)
class TrainingText:
    """The pairs of all corpora that share no side with a held-out pair; validation files may share sides."""

    corpora: Sequence[Iterable[Pair]]
    num_pairs: Sequence[int]
    """The number of pairs of each corpus, held-out pairs included."""
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
