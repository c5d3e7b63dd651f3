"""Whether lines belong together at all, before any word is known: frequent words of source and target that occur
together more often than by chance.
"""

import numpy as np
from jaxtyping import Float32, Int64

from transduce.doctor.corpus.texts import Side

STRETCH = 1000
"""Neighbouring pairs that are measured together."""

MIN_PAIRS = 200
"""Pairs of a stretch that is measured."""

MAX_STRETCHES = 30
"""Stretches that are measured, spread over the text."""

NEAR_OFFSET, FAR_OFFSET = 10, 50
"""Lines by which the targets of a stretch may be shifted, and if they belong together at none of these, the most."""

COUNTED_WORDS = 128
"""Frequent words of each side whose occurrences are compared."""

MIN_LINES = 5
"""Lines of a stretch in which a word has to be, and not to be, so that it is counted."""

RELATED_FROM = 1.3
"""Association, in multiples of that of lines that are far apart, from which lines belong together."""


def choose_stretches(start: int, end: int) -> list[tuple[int, int]]:
    """Stretches of neighbouring lines of a corpus, spread evenly; none if it is too small."""
    num_pairs = end - start
    if num_pairs < MIN_PAIRS:
        return []
    if num_pairs <= STRETCH:
        return [(start, end)]
    starts = np.linspace(start, end - STRETCH, min(MAX_STRETCHES, -(-num_pairs // STRETCH))).astype(int)
    return [(int(first), int(first) + STRETCH) for first in starts]


def find_offset(source: Side, target: Side, first: int, end: int, bounds: tuple[int, int]) -> int | None:
    """The offset at which the lines of a stretch belong together; None if they do at none.

    Arguments are those of `measure_association`.
    """
    for farthest in (NEAR_OFFSET, FAR_OFFSET):
        offset = choose_offset(measure_association(source, target, first, end, bounds, farthest))
        if offset is not None:
            return offset
    return None


def measure_association(
    source: Side, target: Side, first: int, end: int, bounds: tuple[int, int], farthest: int
) -> dict[int, float]:
    """How much more often frequent words of the lines occur together than by chance, by offset of the targets.

    For every frequent source word and target word, it is n times the squared correlation of their occurrence in n pairs
    (the chi-squared statistic of a two by two table); the mean over all of them is about 1 for unrelated lines.

    Args:
        source: the sources.
        target: the targets.
        first: the first line of the stretch.
        end: the line behind its last one.
        bounds: the first line of the corpus, and the one behind its last: beyond them there are no targets.
        farthest: the largest offset.
    """
    before, behind = min(farthest, first - bounds[0]), min(farthest, bounds[1] - end)
    sources = _make_presence_matrix(source, first, end)
    targets = _make_presence_matrix(target, first - before, end + behind)
    found = {}
    for offset in range(-farthest, farthest + 1):
        # Lines beyond the corpus have no counterpart.
        low, high = max(first, first - before - offset), min(end, end + behind - offset)
        some = sources[low - first : high - first]
        others = targets[low + offset - first + before : high + offset - first + before]
        correlation = some.T @ others / (high - low)
        found[offset] = float(np.square(correlation).mean() * (high - low)) if correlation.size else 1.0
    return found


def has_frequent_words(side: Side, first: int, end: int) -> bool:
    """Whether the lines of a stretch have words that are counted: without any, the stretch says nothing."""
    return bool(_make_presence_matrix(side, first, end).shape[1])


def choose_offset(association: dict[int, float]) -> int | None:
    """The offset of the highest association, if it is high enough.

    Lines some lines apart tell how high the association of unrelated lines of such text is.
    """
    best = max(association, key=lambda offset: (association[offset], -abs(offset)))
    usual = float(np.median(list(association.values())))
    return best if association[best] >= RELATED_FROM * usual else None


def _make_presence_matrix(side: Side, first: int, end: int) -> Float32[np.ndarray, "lines words"]:
    """Presence of the most frequent words in lines, with mean 0 and variance 1 in every column."""
    starts = side.starts[first : end + 1]
    words, column_of = np.unique(side.words[starts[0] : starts[-1]], return_inverse=True)
    row_of: Int64[np.ndarray, " words"] = np.repeat(np.arange(end - first), np.diff(starts))
    cells = np.unique(row_of * len(words) + column_of)
    counts = np.bincount(cells % max(1, len(words)), minlength=len(words))
    usable = np.flatnonzero((counts >= MIN_LINES) & (counts <= end - first - MIN_LINES))
    chosen = usable[np.argsort(-counts[usable], kind="stable")[:COUNTED_WORDS]]
    new_column = np.full(len(words), -1)
    new_column[chosen] = np.arange(len(chosen))
    rows, columns = np.divmod(cells, max(1, len(words)))
    is_chosen = new_column[columns] >= 0
    presence = np.zeros((end - first, len(chosen)), np.float32)
    presence[rows[is_chosen], new_column[columns[is_chosen]]] = 1
    presence -= presence.mean(axis=0)
    presence /= np.sqrt(np.square(presence).mean(axis=0))
    return presence
