"""Validation and test text that is also in the training text, in full, on one side, or but for one word."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from transduce.doctor.checks.duplicates import MIN_COMPARED_WORDS, hash_pairs
from transduce.doctor.corpus.hashing import HashLookup, hash_lines, hash_whole_lines
from transduce.doctor.corpus.texts import Side, Text
from transduce.doctor.findings import (
    NUM_SAMPLES,
    Finding,
    PairReference,
    format_pairs,
    grade,
    mark_differences,
)
from transduce.pages import sample_evenly

MIN_LEAKAGE_SHARE = 0.01
"""Share of a text's pairs from which leakage is a finding: one in a hundred moves a score by less than its error."""

MIN_NEAR_LEAKAGE_SHARE = 0.02
"""Share of a text's pairs that differ by one word from training pairs from which it is a finding: short sentences of
the same kind do so by chance."""

MIN_SERIOUS_SHARE = 0.05
"""Share of a text's pairs from which leakage is serious: scores on that text mislead."""


@dataclass(frozen=True)
class Leakage:
    """The pairs of one text that another text has, too.

    Each array has, for every pair of the first text, the index of a matching pair of the second; -1 if none matches.
    """

    pairs: Int64[np.ndarray, " pairs"]
    """Pairs with the same source and the same target, as they are written."""
    source: Int64[np.ndarray, " pairs"]
    """Pairs whose source has the same words."""
    target: Int64[np.ndarray, " pairs"]
    """Pairs whose target has the same words."""
    near_source: Int64[np.ndarray, " pairs"]
    """Pairs whose source differs by one word."""
    near_target: Int64[np.ndarray, " pairs"]
    """Pairs whose target differs by one word."""

    def count(self) -> dict[str, int]:
        """Number of pairs of each kind."""
        return {name: int((found >= 0).sum()) for name, found in vars(self).items()}


def measure_leakage(text: Text, other: Text) -> Leakage:
    """Find the pairs of `text` that are in `other`, which may be much larger."""
    lookup = HashLookup(hash_pairs(text))
    lookup.add(hash_pairs(other), np.arange(len(other)))
    source, near_source = _find_lines(text.source, other.source)
    target, near_target = _find_lines(text.target, other.target)
    return Leakage(np.where(text.has_text, lookup.items, -1), source, target, near_source, near_target)


def _find_lines(side: Side, other: Side) -> tuple[Int64[np.ndarray, " lines"], Int64[np.ndarray, " lines"]]:
    """For each line, the index of a line of `other` with the same words, and of one that differs by one word; or -1.

    Lines of fewer than `MIN_COMPARED_WORDS` words are not searched for a difference by one word.
    """
    whole = hash_whole_lines(side)
    parts = list(hash_lines(side, MIN_COMPARED_WORDS))
    rows = np.concatenate([part.rows for part in parts])
    same, one_more = HashLookup(whole), HashLookup(whole)
    replaced = HashLookup(np.concatenate([part.with_gap for part in parts]))
    one_less = HashLookup(np.concatenate([part.after_deletion for part in parts]))
    first = 0
    for hashes in hash_lines(other, MIN_COMPARED_WORDS):
        lines = first + np.arange(len(hashes.whole))
        is_long = other.num_words[lines] >= MIN_COMPARED_WORDS
        same.add(hashes.whole, lines)
        one_less.add(hashes.whole[is_long], lines[is_long])
        one_more.add(hashes.after_deletion, hashes.rows)
        replaced.add(hashes.with_gap, hashes.rows)
        first += len(lines)
    near = one_more.items
    for lookup in (replaced, one_less):
        is_found = lookup.items >= 0
        near[rows[is_found]] = lookup.items[is_found]
    near[(same.items >= 0) | (side.num_words < MIN_COMPARED_WORDS)] = -1
    return np.where(side.num_words > 0, same.items, -1), near


def find_leakage(text: Text, other: Text, leakage: Leakage) -> Iterator[Finding]:
    """Find pairs of a validation or test text that are in another text, too, by which a model is trained or chosen."""
    counts = leakage.count()
    is_known = leakage.source >= 0
    rows = np.flatnonzero(is_known | (leakage.target >= 0))
    share = len(rows) / len(text)
    if len(rows):
        partner = np.where(leakage.pairs >= 0, leakage.pairs, np.where(is_known, leakage.source, leakage.target))
        yield Finding(
            name="leakage",
            severity=grade(share, MIN_LEAKAGE_SHARE, MIN_SERIOUS_SHARE),
            text=text,
            summary=f"{format_pairs(len(rows), share)} are in the {other.name} text, too: {counts['pairs']:,} as they "
            f"are, {counts['source']:,} with the same source, {counts['target']:,} with the same target",
            advice=f"scores on this text would be too good: leave these pairs out of the {other.name} text, or "
            f"take other {text.name} text",
            rows=rows,
            samples=_pair_up(text, other, rows, partner),
        )
    is_near = (leakage.near_source >= 0) & (leakage.target < 0)
    rows = np.flatnonzero(is_near)
    share = len(rows) / len(text)
    if len(rows):
        both = int((is_near & (leakage.near_target >= 0)).sum())
        yield Finding(
            name="near_leakage",
            severity=grade(share, MIN_NEAR_LEAKAGE_SHARE, MIN_SERIOUS_SHARE),
            text=text,
            summary=f"{format_pairs(len(rows), share)} have a source that differs by one word from one of the "
            f"{other.name} text; in {both:,} of them, the target does so, too",
            advice="scores on this text would be better than on new text: take text from other documents, or leave the "
            "similar pairs out",
            rows=rows,
            samples=_pair_up(text, other, rows, leakage.near_source),
            mark=mark_differences,
        )


def _pair_up(
    text: Text, other: Text, rows: Int64[np.ndarray, " rows"], partner: Int64[np.ndarray, " pairs"]
) -> tuple[tuple[PairReference, ...], ...]:
    return tuple(
        (PairReference(text, int(row)), PairReference(other, int(partner[row])))
        for row in rows[sample_evenly(range(len(rows)), NUM_SAMPLES)]
    )
