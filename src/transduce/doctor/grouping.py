"""Groups of pairs that differ by at most one word on both sides, directly or through other pairs of the group.

Comparing each pair with each would take quadratic time. Instead, each line belongs to several small families of lines,
and pairs whose lines belong to the same two families are joined.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from transduce.doctor.corpus.hashing import WORDS_AT_A_TIME, hash_lines, hash_replacements, hash_whole_lines
from transduce.doctor.corpus.texts import Side, Text

Rows = Int64[np.ndarray, " rows"]
Members = Int64[np.ndarray, " members"]
Near = Int64[np.ndarray, " near"]


class _Families(NamedTuple):
    """The families of the distinct lines of one side: lines with the same words, apart from one that may differ.

    There is a family for each sequence of words, of the line with just these words and of all lines with one word more
    somewhere; and one for each sequence with a gap, of all lines with any word in the gap. Two lines differ by at most
    one word if and only if they have a family in common and are not both longer than its sequence of words.
    """

    starts: Int64[np.ndarray, " lines_and_end"]
    """Where the memberships of each line begin, and where those of the last one end."""
    numbers: Members
    """For each membership of a line in a family, the number of the family."""
    is_longer: Bool[np.ndarray, " members"]
    """Whether the line has one word more than the sequence of the family."""

    def expand(self, lines: Rows) -> tuple[Members, Members]:
        """All memberships of some lines: for each, the line's index in `lines`, and the index of the membership."""
        counts = np.diff(self.starts)[lines]
        offsets = np.repeat(self.starts[lines] - np.cumsum(counts) + counts, counts)
        return np.repeat(np.arange(len(lines)), counts), offsets + np.arange(len(offsets))


def group_pairs(text: Text, rows: Rows) -> Rows:
    """For each of some pairs, the position in `rows` of the first pair of its group.

    A group has all pairs that differ from another one of it by at most one word on each side: the word is replaced,
    inserted or left out. Case, punctuation and spaces do not count.
    """
    if not len(rows):
        return rows
    source_lines, sources = _find_families(text.source.select(rows))
    target_lines, targets = _find_families(text.target.select(rows))
    both = source_lines * len(targets.starts) + target_lines
    _, first_of_same, same = np.unique(both, return_index=True, return_inverse=True)
    first = first_of_same[same]
    pairs = np.sort(first_of_same)  # one of all pairs with the same words
    for pair, other in _find_near_pairs(sources, source_lines[pairs], targets, target_lines[pairs]):
        _join(first, pairs[pair], pairs[other])
    return first


def _find_families(side: Side) -> tuple[Rows, _Families]:
    """For each line the number of its sequence of words, and the families of these sequences."""
    whole, first, line_of_row = np.unique(hash_whole_lines(side), return_index=True, return_inverse=True)
    distinct = side.select(first)
    numbers, lines = [np.arange(len(whole))], [np.arange(len(whole))]
    for hashes in hash_lines(distinct, min_words=1):
        shorter = np.minimum(np.searchsorted(whole, hashes.after_deletion), len(whole) - 1)
        is_line = whole[shorter] == hashes.after_deletion
        numbers.append(shorter[is_line])
        lines.append(hashes.rows[is_line])
    num_whole, num_families = sum(map(len, numbers)), len(whole)
    for keys, rows in hash_replacements(distinct, min_words=1):
        _, family, counts = np.unique(keys, return_inverse=True, return_counts=True)
        is_shared = counts[family] > 1
        numbers.append(family[is_shared] + num_families)
        lines.append(rows[is_shared])
        num_families += len(counts)
    all_numbers, all_lines = np.concatenate(numbers), np.concatenate(lines)
    member = np.arange(len(all_lines))
    order = np.argsort(all_lines, kind="stable")
    starts = np.searchsorted(all_lines[order], np.arange(len(whole) + 1))
    is_longer = (member >= len(whole)) & (member < num_whole)
    return line_of_row, _Families(starts, all_numbers[order], is_longer[order])


def _find_near_pairs(
    sources: _Families, source_lines: Rows, targets: _Families, target_lines: Rows
) -> Iterator[tuple[Near, Near]]:
    """Find two pairs at a time, by their indices, that are near on both sides.

    Not all of these are found, but enough to connect each pair with all that are near to it, through others.
    """
    pair, member = sources.expand(source_lines)
    _, family, counts = np.unique(sources.numbers[member], return_inverse=True, return_counts=True)
    shared = np.flatnonzero(counts[family] > 1)
    shared = shared[np.argsort(family[shared], kind="stable")]
    pair, member, family = pair[shared], member[shared], family[shared]
    # Each membership in a family of the source stands beside all families of the target: some million at a time.
    end = np.cumsum(np.diff(targets.starts)[target_lines[pair]])
    part = end[np.searchsorted(family, family)] // WORDS_AT_A_TIME
    for some in np.split(np.arange(len(pair)), np.flatnonzero(np.diff(part)) + 1):
        index, target_member = targets.expand(target_lines[pair[some]])
        members, source_member = pair[some][index], member[some][index]
        both = sources.numbers[source_member] * (targets.numbers.max() + 1) + targets.numbers[target_member]
        kind = sources.is_longer[source_member] + 2 * targets.is_longer[target_member]
        order = np.argsort(both * 4 + kind, kind="stable")
        yield _connect(both[order], kind[order], members[order])


def _connect(family: Members, kind: Members, members: Members) -> tuple[Near, Near]:
    """Connect pairs of the same family on both sides with the first pair of their family, if they are near to it.

    The arrays are sorted by family, then kind. The kind is 0 for pairs with just the words of the family, to which all
    others are near; 1 with a longer source and 2 with a longer target, which are near to each other; and 3 if both are
    longer.
    """
    _, start, number = np.unique(family, return_index=True, return_inverse=True)
    first = start[number]
    has_longer_target = np.maximum.reduceat(kind == 2, start) if len(start) else np.zeros(0, bool)
    is_near = (kind[first] == 0) | ((kind[first] == 1) & (kind < 3) & has_longer_target[number])
    is_near &= members != members[first]
    return members[is_near], members[first[is_near]]


def _join(first: Rows, pairs: Near, others: Near) -> None:
    """Join the groups of `pairs` with those of `others`; `first` has the first pair of each pair's group."""
    while len(pairs):
        one, other = first[pairs], first[others]
        np.minimum.at(first, one, other)
        np.minimum.at(first, other, one)
        while (first[first] != first).any():
            first[:] = first[first]
        is_apart = first[pairs] != first[others]
        pairs, others = pairs[is_apart], others[is_apart]
