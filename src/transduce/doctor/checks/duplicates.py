"""Repeated pairs, lines with several counterparts, and lines that differ from another line by one word."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, Shaped, UInt64

from transduce.config import TextConfig
from transduce.doctor.corpus.hashing import HashLookup, hash_lines, hash_replacements, hash_whole_lines, mix
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

MIN_COMPARED_WORDS = 5
"""Minimum number of words of lines that are compared with others: many shorter lines differ by one word."""

MIN_DUPLICATES_SHARE = 0.01
"""Minimum share of repeated pairs for a finding."""

MIN_SEVERAL_COUNTERPARTS_SHARE = 0.05
"""Minimum share of pairs whose source, or target, has several counterparts for a finding."""

MIN_BOILERPLATE_COUNTERPARTS = 20
"""Number of different counterparts from which a line counts as boilerplate."""

MIN_BOILERPLATE_SHARE = 0.001
"""Minimum share of pairs with boilerplate on a side for a finding."""

MIN_NEAR_DUPLICATES_SHARE = 0.005
"""Minimum share of pairs of which both sides differ from another line by one word for a finding."""


def hash_pairs(text: Text) -> UInt64[np.ndarray, " pairs"]:
    """A hash of both lines of each pair, as they are written."""
    source, target = (side.digests.astype(np.uint64) for side in text.sides.values())
    return mix(mix(source) + target)


def find_duplicates(text: Text, config: TextConfig) -> Iterator[Finding]:
    """Find pairs that are the same as an earlier one; those with a blank line are left out."""
    rows = np.flatnonzero(text.has_text)
    repeats, first = (rows[found] for found in find_repeats(hash_pairs(text)[rows]))
    share = len(repeats) / len(text)
    if len(repeats):
        is_dropped = config.drop_duplicates and text.is_training
        yield Finding(
            name="duplicate_pairs",
            severity=grade(share, MIN_DUPLICATES_SHARE, math.inf if is_dropped else 0.1),
            text=text,
            summary=f"{format_pairs(len(repeats), share)} repeat an earlier pair word for word",
            advice="training keeps one of each (text.drop_duplicates)"
            if is_dropped
            else "leave them out: set text.drop_duplicates to true for training text; in other text they count twice",
            rows=repeats,
            samples=_pair_up(text, first, repeats),
        )


def find_repeats(
    values: Shaped[np.ndarray, " items"],
) -> tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]:
    """Find the items that are equal to an earlier one, and for each of them the first that it is equal to."""
    order = np.argsort(values, kind="stable")
    is_same = np.zeros(len(values), bool)
    is_same[1:] = values[order[1:]] == values[order[:-1]]
    group_start = np.maximum.accumulate(np.where(is_same, 0, np.arange(len(values))))
    found = np.flatnonzero(is_same)
    repeats, first = order[found], order[group_start[found]]
    by_row = np.argsort(repeats)
    return repeats[by_row], first[by_row]


def _pair_up(
    text: Text, others: Int64[np.ndarray, " found"], rows: Int64[np.ndarray, " found"]
) -> tuple[tuple[PairReference, ...], ...]:
    """Some samples of two pairs each: one of `rows`, after the pair at the same position of `others`."""
    chosen = sample_evenly(range(len(rows)), NUM_SAMPLES)
    return tuple((PairReference(text, int(others[at])), PairReference(text, int(rows[at]))) for at in chosen)


def find_several_counterparts(text: Text) -> Iterator[Finding]:
    """Find lines with different translations, and lines that are the translation of different ones."""
    with_text = np.flatnonzero(text.has_text)
    _, first_of_equal = np.unique(hash_pairs(text)[with_text], return_index=True)
    distinct = with_text[first_of_equal]
    for side, other in (("source", "target"), ("target", "source")):
        lines = text.sides[side].digests[distinct]
        _, line, counts = np.unique(lines, return_inverse=True, return_counts=True)
        rows = np.sort(distinct[counts[line] > 1])
        frequent = np.sort(distinct[counts[line] >= MIN_BOILERPLATE_COUNTERPARTS])
        if len(frequent):
            yield _describe_repeated(text, side, other, frequent)
        share = len(rows) / len(text)
        if len(rows):
            repeats, first = find_repeats(text.sides[side].digests[rows])
            yield Finding(
                name=f"{side}_with_several_{other}s",
                severity=grade(share, MIN_SEVERAL_COUNTERPARTS_SHARE),
                text=text,
                summary=f"{format_pairs(len(rows), share)} have a {side} that occurs with more than one {other}",
                advice="free translations cause this; if the others are no translations of it, leave them out",
                rows=rows,
                samples=_pair_up(text, rows[first], rows[repeats]),
                mark=mark_differences,
            )


def _describe_repeated(text: Text, side: str, other: str, rows: Int64[np.ndarray, " rows"]) -> Finding:
    _, first, counts = np.unique(text.sides[side].digests[rows], return_index=True, return_counts=True)
    share = len(rows) / len(text)
    most = first[np.argsort(-counts, kind="stable")][:NUM_SAMPLES]
    if len(first) == 1:
        repeated = f"have the same {side}, which stands beside {counts[0]:,} different {other}s"
    else:
        repeated = (
            f"have one of {len(first):,} {side}s that stand beside {MIN_BOILERPLATE_COUNTERPARTS} or more different "
            f"{other}s, the most frequent one beside {counts.max():,}"
        )
    return Finding(
        name=f"repeated_{side}s",
        severity=grade(share, MIN_BOILERPLATE_SHARE, 0.02),
        text=text,
        summary=f"{format_pairs(len(rows), share)} {repeated}",
        advice=f"a line cannot be the translation of so many: it is boilerplate, as of a web page, or the {other}s do "
        "not belong to it; leave these pairs out",
        rows=rows,
        samples=tuple((PairReference(text, int(rows[at])),) for at in most),
    )


@dataclass(frozen=True)
class NearDuplicates:
    """For each line of a side, another line of that side that differs from it by at most one word, if there is one.

    Lines that differ only in case, punctuation or spaces count, too.
    """

    is_near: Bool[np.ndarray, " lines"]
    """Whether there is such a line."""
    partner: Int64[np.ndarray, " lines"]
    """The index of such a line; -1 if there is none."""


def find_near_lines(side: Side) -> NearDuplicates:
    """Find every line that becomes another one when a word is replaced, inserted or left out.

    A word is replaced if two lines are equal apart from the word at one position, and inserted or left out if one line
    is equal to the other without one of its words. Sorted hashes bring such lines together. The whole text is hashed
    once for every `WORDS_AT_A_TIME` words in it, so that memory does not grow with it, and time with its square.
    Lines that differ only in case, punctuation or spaces are found, too. Identical lines, and lines of fewer than
    `MIN_COMPARED_WORDS` words, are not compared.
    """
    whole = hash_whole_lines(side)
    found = NearDuplicates(np.zeros(len(side), bool), np.full(len(side), -1))
    long_rows = np.flatnonzero(side.num_words >= MIN_COMPARED_WORDS)
    _record_groups(found, whole[long_rows], long_rows, side.digests)
    _record_insertions(found, side, whole)
    for keys, rows in hash_replacements(side, MIN_COMPARED_WORDS):
        _record_groups(found, keys, rows, whole)
    return found


def _record_insertions(found: NearDuplicates, side: Side, line_hashes: UInt64[np.ndarray, " lines"]) -> None:
    """Record each line that is equal to another line with one word left out, and also that other line."""
    long_rows = np.flatnonzero(side.num_words >= MIN_COMPARED_WORDS)
    of_shorter = HashLookup(line_hashes[long_rows])
    longer, without_word = [], []
    for hashes in hash_lines(side, MIN_COMPARED_WORDS + 1):
        equal = of_shorter.add(hashes.after_deletion, hashes.rows)
        longer.append(hashes.rows[equal])
        without_word.append(hashes.after_deletion[equal])
    of_longer = HashLookup(np.concatenate(without_word))
    of_longer.add(line_hashes, np.arange(len(side)))
    for rows, partners in ((long_rows, of_shorter.items), (np.concatenate(longer), of_longer.items)):
        found.is_near[rows[partners >= 0]] = True
        found.partner[rows[partners >= 0]] = partners[partners >= 0]


def _record_groups(
    found: NearDuplicates,
    keys: UInt64[np.ndarray, " keys"],
    rows: Int64[np.ndarray, " keys"],
    content: Any,  # noqa: ANN401
) -> None:
    """For each row that shares its key with a row of different `content`, record the index of such a row."""
    order = np.argsort(keys)
    keys, rows = keys[order], rows[order]
    is_same = keys[1:] == keys[:-1]
    in_group = np.zeros(len(keys), bool)
    in_group[1:] |= is_same
    in_group[:-1] |= is_same
    keys, rows = keys[in_group], rows[in_group]
    order = np.lexsort((rows, content[rows], keys))
    keys, rows = keys[order], rows[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    sizes = np.diff(np.append(starts, len(keys)))
    first, last = (np.repeat(rows[ends], sizes) for ends in (starts, starts + sizes - 1))
    is_different = content[first] != content[last]
    partner = np.where(content[rows] == content[first], last, first)
    found.is_near[rows[is_different]] = True
    found.partner[rows[is_different]] = partner[is_different]


def find_near_duplicates(text: Text, near: Mapping[str, NearDuplicates]) -> Iterator[Finding]:
    """Find pairs of which both sides differ from another line of their side by at most one word, as `near` says."""
    by_side = {name: int(found.is_near.sum()) for name, found in near.items()}
    rows = np.flatnonzero(near["source"].is_near & near["target"].is_near)
    share = len(rows) / len(text)
    if not len(rows):
        return
    yield Finding(
        name="near_duplicates",
        severity=grade(share, MIN_NEAR_DUPLICATES_SHARE),
        text=text,
        summary=f"in {format_pairs(len(rows), share)}, source and target both differ from another line of this text by "
        f"at most one word ({by_side['source']:,} sources, {by_side['target']:,} targets)",
        advice="the text has less variety than its size says; if validation or test text was split off at random, it "
        "is much easier than new text: split it off by document",
        rows=rows,
        samples=_pair_up(text, near["source"].partner[rows], rows),
        mark=mark_differences,
    )
