"""Whether lines belong together at all, before any word is known: frequent words of source and target that occur
together more often than by chance.
"""

import numpy as np
from jaxtyping import Float32, Int64, Integer

from transduce.doctor.corpus.texts import Side

STRETCH = 1000
"""Neighbouring pairs that are measured together."""

MIN_PAIRS = 200
"""Pairs of a stretch that is measured."""

MAX_STRETCHES = 30
"""Stretches that are measured, spread over the text."""

NEAR_OFFSET, FAR_OFFSET = 10, 50
"""Maximum number of lines by which the targets of a stretch may be shifted; the second, if no shift up to the first
fits."""

COUNTED_WORDS = 128
"""Frequent words of each side whose occurrences are compared."""

MIN_LINES = 5
"""A word is counted if at least this many lines of a stretch have it, and at least as many do not."""

MIN_RELATED_ASSOCIATION = 1.3
"""Association, in multiples of that of lines that are far apart, from which lines belong together; about 1 is that of
lines that are not related at all."""


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

    Arguments are those of `measure_association_by_offset`.
    """
    for farthest in (NEAR_OFFSET, FAR_OFFSET):
        offset = choose_offset(measure_association_by_offset(source, target, first, end, bounds, farthest))
        if offset is not None:
            return offset
    return None


def measure_association_by_offset(
    source: Side, target: Side, first: int, end: int, bounds: tuple[int, int], farthest: int
) -> dict[int, float]:
    """The `measure_association` of the lines of a stretch, by offset of the targets.

    Args:
        source: the sources.
        target: the targets.
        first: the first line of the stretch.
        end: the line behind its last one.
        bounds: the first line of the corpus, and the one behind its last: beyond them there are no targets.
        farthest: the largest offset.
    """
    before, behind = min(farthest, first - bounds[0]), min(farthest, bounds[1] - end)
    sources = _find_presence(source, first, end)
    targets = _find_presence(target, first - before, end + behind)
    found = {}
    for offset in range(-farthest, farthest + 1):
        # Lines beyond the corpus have no counterpart.
        low, high = max(first, first - before - offset), min(end, end + behind - offset)
        some = sources[low - first : high - first]
        others = targets[low + offset - first + before : high + offset - first + before]
        found[offset] = measure_association(some, others)
    return found


def measure_association(
    sources: Float32[np.ndarray, "pairs source_words"], targets: Float32[np.ndarray, "pairs target_words"]
) -> float:
    """How much more often frequent words of source and target occur in the same pairs than by chance.

    For every frequent source word and target word, it is n times the squared correlation of their occurrence in n pairs
    (n phi squared, the chi-squared statistic of a two by two table). The mean over all of them is about 1 for unrelated
    pairs, and grows with n for related ones. 1 if a side has no frequent words. Arguments are matrices of
    `make_presence_matrix`.
    """
    num_pairs = len(sources)
    correlation = sources.T @ targets / num_pairs
    return float(np.square(correlation).mean() * num_pairs) if correlation.size else 1.0


def has_frequent_words(side: Side, first: int, end: int) -> bool:
    """Whether the lines of a stretch have words that are counted: without any, the stretch says nothing."""
    return bool(_find_presence(side, first, end).shape[1])


def choose_offset(association: dict[int, float]) -> int | None:
    """The offset of the highest association, if it is high enough.

    Lines some lines apart tell how high the association of unrelated lines of such text is.
    """
    best = max(association, key=lambda offset: (association[offset], -abs(offset)))
    usual = float(np.median(list(association.values())))
    return best if association[best] >= MIN_RELATED_ASSOCIATION * usual else None


def _find_presence(side: Side, first: int, end: int) -> Float32[np.ndarray, "lines words"]:
    return make_presence_matrix(side.words, side.starts[first : end + 1])


def make_presence_matrix(
    words: Integer[np.ndarray, " words"], starts: Int64[np.ndarray, " lines_and_end"], max_words: int = COUNTED_WORDS
) -> Float32[np.ndarray, "lines columns"]:
    """Presence of the most frequent words in lines, with mean 0 and variance 1 in every column.

    Args:
        words: numbers of the words of all lines, one line after the other.
        starts: where the words of each line begin, and where those of the last one end.
        max_words: number of columns; there are fewer if fewer words are in, and not in, `MIN_LINES` lines.
    """
    num_lines = len(starts) - 1
    words, column_of = np.unique(words[starts[0] : starts[-1]], return_inverse=True)
    row_of: Int64[np.ndarray, " words"] = np.repeat(np.arange(num_lines), np.diff(starts))
    cells = np.unique(row_of * len(words) + column_of)
    counts = np.bincount(cells % max(1, len(words)), minlength=len(words))
    usable = np.flatnonzero((counts >= MIN_LINES) & (counts <= num_lines - MIN_LINES))
    chosen = usable[np.argsort(-counts[usable], kind="stable")[:max_words]]
    new_column = np.full(len(words), -1)
    new_column[chosen] = np.arange(len(chosen))
    rows, columns = np.divmod(cells, max(1, len(words)))
    is_chosen = new_column[columns] >= 0
    presence = np.zeros((num_lines, len(chosen)), np.float32)
    presence[rows[is_chosen], new_column[columns[is_chosen]]] = 1
    presence -= presence.mean(axis=0)
    presence /= np.sqrt(np.square(presence).mean(axis=0))
    return presence
