"""Pairs of the training text that are set aside for validation."""

import hashlib
import heapq
from collections.abc import Callable, Iterable

from transduce.data.chunks import Pair


def is_blank(pair: Pair) -> bool:
    """Whether a side of the pair has no text."""
    return not all(side.strip() for side in pair)


def choose_held_out(pairs: Iterable[Pair], count: int, is_clean: Callable[[Pair], bool]) -> list[Pair]:
    """Of the distinct clean pairs, the `count` with the smallest SHA-256.

    That is a random choice which does not depend on the order of the corpus and changes little when it grows.
    """
    chosen: dict[int, Pair] = {}
    largest_first: list[int] = []  # the digests in `chosen`, negated, as a heap
    for pair in pairs:
        digest = _digest(pair)
        if digest in chosen or not is_clean(pair):
            continue
        chosen[digest] = pair
        heapq.heappush(largest_first, -digest)
        if len(chosen) > count:
            del chosen[-heapq.heappop(largest_first)]
    return [chosen[digest] for digest in sorted(chosen)]


def _digest(pair: Pair) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(pair).encode()).digest(), "big")
