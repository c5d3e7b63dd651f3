"""Hashes of lines by their words, and of what is left of them without one word: equal words have equal hashes.

Lines that differ by one word are found without comparing each with each (see `near_duplicates`). A hash has 64 bits:
the probability that any two of 40 million different ones are equal is 10^-4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt64

from transduce.doctor.texts import Side, divide_lines

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
    """Hashes of neighbouring lines, of which those with fewer than the minimum of words are left out of all but
    `whole`.
    """

    whole: UInt64[np.ndarray, " lines"]
    """Of the words of each line, in their order."""
    without_one: UInt64[np.ndarray, " words"]
    """For each word, of the other words of its line."""
    without_one_here: UInt64[np.ndarray, " words"]
    """The same, and of the position of the word."""
    rows: Int64[np.ndarray, " words"]
    """The line of each word."""


def scatter(numbers: Int64[np.ndarray, " numbers"]) -> UInt64[np.ndarray, " numbers"]:
    """Different hashes for different numbers, whose first bits look random enough for `HashIndex`."""
    return numbers.view(np.uint64) * np.uint64(_BASE)


def hash_lines(side: Side, min_words: int) -> Iterator[LineHashes]:
    """The hashes of all lines, some thousand at a time; lines of fewer than `min_words` words give only `whole`.

    The hash of a line is the sum of random numbers for its words, times a power for the position, modulo 2^64. Without
    a word, the powers of the words behind it are one less.
    """
    for first, end in divide_lines(len(side)):
        starts = side.starts[first : end + 1]
        words = side.words[starts[0] : starts[-1]]
        num_words = np.diff(starts)
        position = np.arange(len(words)) - np.repeat(starts[:-1] - starts[0], num_words)
        powers = np.full(int(num_words.max(initial=0)) + 1, _BASE, np.uint64)
        powers[0] = 1
        powers = np.multiply.accumulate(powers)
        terms = mix(words.astype(np.uint64)) * powers[position]
        sums = np.zeros(len(words) + 1, np.uint64)
        np.cumsum(terms, out=sums[1:])
        ends = starts - starts[0]
        total = sums[ends[1:]] - sums[ends[:-1]]
        is_long = np.repeat(num_words >= min_words, num_words)
        row = np.repeat(np.arange(end - first), num_words)[is_long]
        before = (sums[:-1][is_long]) - sums[ends[row]]
        behind = total[row] - before - terms[is_long]
        without_one = mix(before + behind * np.uint64(_INVERSE))
        place = position[is_long].astype(np.uint64)
        yield LineHashes(
            whole=mix(total),
            without_one=without_one,
            without_one_here=mix(without_one ^ mix(place)),
            rows=row + first,
        )


def hash_whole_lines(side: Side) -> UInt64[np.ndarray, " lines"]:
    """The hash of the words of each line, in their order."""
    return np.concatenate([hashes.whole for hashes in hash_lines(side, 2**31)])


_BITMAP_BITS = 22


class HashIndex:
    """Finds which of many hashes are equal to one of some others, the keys, all of which look random."""

    def __init__(self, keys: UInt64[np.ndarray, " keys"]) -> None:
        self.keys, self.group_of_key = np.unique(keys, return_inverse=True)
        """The different keys in order, and which of them each of the keys is."""
        # Most hashes are not among the keys: their first bits say so, without a search.
        self._bitmap = np.zeros(1 << _BITMAP_BITS, bool)
        self._bitmap[self.keys >> np.uint64(64 - _BITMAP_BITS)] = True

    def find(
        self, hashes: UInt64[np.ndarray, " hashes"]
    ) -> tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]:
        """The indices of the hashes that are equal to a key, and for each of them the number of the key."""
        possible = np.flatnonzero(self._bitmap[hashes >> np.uint64(64 - _BITMAP_BITS)])
        groups = np.searchsorted(self.keys, hashes[possible])
        groups[groups == len(self.keys)] = 0
        is_equal = self.keys[groups] == hashes[possible]
        return possible[is_equal], groups[is_equal]


class HashLookup:
    """Finds, for each of some keys, an item whose hash is equal to it."""

    def __init__(self, keys: UInt64[np.ndarray, " keys"]) -> None:
        self._index = HashIndex(keys)
        self._item_of_group = np.full(len(self._index.keys), -1)

    def add(
        self, hashes: UInt64[np.ndarray, " hashes"], items: Int64[np.ndarray, " hashes"]
    ) -> Int64[np.ndarray, " found"]:
        """Add items by their hashes, of which the last is kept if several are equal; returns those equal to a key."""
        found, groups = self._index.find(hashes)
        self._item_of_group[groups] = items[found]
        return found

    @property
    def items(self) -> Int64[np.ndarray, " keys"]:
        """The item of each key; -1 if none was added whose hash is equal to it."""
        return self._item_of_group[self._index.group_of_key]
