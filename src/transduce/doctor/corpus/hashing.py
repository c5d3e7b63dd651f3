"""Hashes of lines by their words, and of what is left of them without one word: equal words have equal hashes.

Lines that differ by one word are found without comparing each with each (see `find_near_lines`). A hash has 64 bits:
the probability that any two of 40 million different ones are equal is 10^-4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt64

from transduce.doctor.corpus.texts import Side, divide_lines

WORDS_AT_A_TIME = 4_000_000
"""Hashes that are sorted at a time."""

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)


def mix(values: UInt64[np.ndarray, " values"]) -> UInt64[np.ndarray, " values"]:
    """Numbers that look random, different for different values (splitmix64, Steele et al. 2014)."""
    values = values + np.uint64(_BASE)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


@dataclass(frozen=True)
class LineHashes:
    """Hashes of consecutive lines. The arrays with an item for each word leave out lines with too few words."""

    whole: UInt64[np.ndarray, " lines"]
    """For each line, a hash of its words in their order."""
    rows: Int64[np.ndarray, " words"]
    """For each word, the index of its line."""
    _position: Int64[np.ndarray, " words"]
    _sum_without_one: UInt64[np.ndarray, " words"]

    @property
    def after_deletion(self) -> UInt64[np.ndarray, " words"]:
        """For each word, the hash of its line without this word: equal to `whole` of the line that is left."""
        return mix(self._sum_without_one)

    @property
    def with_gap(self) -> UInt64[np.ndarray, " words"]:
        """For each word, the hash of its line with a gap in its place: equal for lines that differ in it alone."""
        positions = mix(np.arange(self._position.max(initial=0) + 1).astype(np.uint64))
        return mix(self._sum_without_one ^ positions[self._position])


def hash_lines(side: Side, min_words: int) -> Iterator[LineHashes]:
    """The hashes of all lines, some thousand at a time; lines of fewer than `min_words` words give only `whole`.

    The hash of a line comes from a sum of random numbers for its words, times a power for the position, modulo 2^64.
    Without a word, the powers of the words behind it are one less.
    """
    for first, end in divide_lines(len(side)):
        starts = side.starts[first : end + 1]
        words = side.words[starts[0] : starts[-1]]
        num_words = np.diff(starts)
        ends = starts - starts[0]
        position = np.arange(len(words)) - np.repeat(ends[:-1], num_words)
        powers = np.full(int(num_words.max(initial=0)) + 1, _BASE, np.uint64)
        powers[0] = 1
        powers = np.multiply.accumulate(powers)
        terms = mix(words.astype(np.uint64)) * powers[position]
        sums = np.zeros(len(words) + 1, np.uint64)
        np.cumsum(terms, out=sums[1:])
        total = sums[ends[1:]] - sums[ends[:-1]]
        long = np.flatnonzero(np.repeat(num_words >= min_words, num_words))
        row = np.repeat(np.arange(end - first), np.where(num_words >= min_words, num_words, 0))
        before = sums[long] - sums[ends[row]]
        behind = total[row] - before - terms[long]
        yield LineHashes(mix(total), row + first, position[long], before + behind * np.uint64(_INVERSE))


def hash_whole_lines(side: Side) -> UInt64[np.ndarray, " lines"]:
    """The hash of the words of each line, in their order."""
    return np.concatenate([hashes.whole for hashes in hash_lines(side, 2**31)])


def hash_replacements(
    side: Side, min_words: int
) -> Iterator[tuple[UInt64[np.ndarray, " words"], Int64[np.ndarray, " words"]]]:
    """`LineHashes.with_gap` of all words, in some parts, each with the lines; equal hashes are in one part."""
    num_parts = len(side.words) // WORDS_AT_A_TIME + 1
    for part in range(num_parts):
        chosen = [_select_part(hashes.with_gap, hashes.rows, part, num_parts) for hashes in hash_lines(side, min_words)]
        keys, rows = (np.concatenate(arrays) for arrays in zip(*chosen, strict=True))
        yield keys, rows


def _select_part(
    keys: UInt64[np.ndarray, " keys"], rows: Int64[np.ndarray, " keys"], part: int, num_parts: int
) -> tuple[UInt64[np.ndarray, " chosen"], Int64[np.ndarray, " chosen"]]:
    chosen = keys % np.uint64(num_parts) == part
    return keys[chosen], rows[chosen]


_BITMAP_BITS = 22


class HashLookup:
    """Finds, for each of some keys, an item whose hash is equal to it."""

    def __init__(self, keys: UInt64[np.ndarray, " keys"]) -> None:
        self._keys, self._group_of_key = np.unique(keys, return_inverse=True)
        self._item_of_group = np.full(len(self._keys), -1)
        # Most hashes are not among the keys: their first bits say so, without a search.
        self._bitmap = np.zeros(1 << _BITMAP_BITS, bool)
        self._bitmap[self._keys >> np.uint64(64 - _BITMAP_BITS)] = True

    def add(
        self, hashes: UInt64[np.ndarray, " hashes"], items: Int64[np.ndarray, " hashes"]
    ) -> Int64[np.ndarray, " found"]:
        """Add items by their hashes; of several items with the hash of a key, the last is kept.

        Returns the positions in `items` of those whose hash is equal to a key.
        """
        possible = np.flatnonzero(self._bitmap[hashes >> np.uint64(64 - _BITMAP_BITS)])
        groups = np.searchsorted(self._keys, hashes[possible])
        groups[groups == len(self._keys)] = 0
        is_equal = self._keys[groups] == hashes[possible]
        found: Int64[np.ndarray, " found"] = possible[is_equal]
        self._item_of_group[groups[is_equal]] = items[found]
        return found

    @property
    def items(self) -> Int64[np.ndarray, " keys"]:
        """The item of each key; -1 if none was added whose hash is equal to it."""
        items: Int64[np.ndarray, " keys"] = self._item_of_group[self._group_of_key]
        return items
