"""Coverage: the share of the words of validation and test text that the training text has, too."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt64

from transduce.doctor.corpus.hashing import HashLookup, mix
from transduce.doctor.corpus.texts import Side, Text, divide_lines
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.findings import Finding

MAX_ORDER = 3
"""Number of words of the longest sequences that are looked up."""

MANY_TIMES = 2.0
"""Unknown words are a finding if there are at least this many times as many as in text of the same kind."""

MIN_UNKNOWN = 0.03
"""Share of unknown words below which they are no finding."""


@dataclass(frozen=True)
class Coverage:
    """How much of one side of a text the training text has."""

    text: str
    side: str
    known: list[float]
    """Share of the words that are in the training text, of its sequences of two words, and of three."""
    expected: float
    """Share of known words that further text of the same kind as the training text would have: one minus the share of
    words that occur once (Good 1953)."""
    most_frequent_unknown: list[str]
    """Unknown words, the most frequent first."""


def measure_coverage(text: Text, training: Text, side: str, vocabulary: Vocabulary) -> Coverage:
    """Look up every word, and every two and three neighbouring words, of one side of `text`."""
    here, there = text.sides[side], training.sides[side]
    counts = there.count_words(len(vocabulary))
    unknown = here.words[counts[here.words] == 0]
    words, frequencies = np.unique(unknown, return_counts=True)
    most = words[np.argsort(-frequencies, kind="stable")[:10]]
    spellings = vocabulary.words
    return Coverage(
        text=text.name,
        side=side,
        known=[1 - len(unknown) / max(1, len(here.words)), *(_share_known(here, there, n) for n in (2, MAX_ORDER))],
        expected=1 - int((counts == 1).sum()) / max(1, len(there.words)),
        most_frequent_unknown=[spellings[number] for number in most],
    )


def _share_known(side: Side, training: Side, order: int) -> float:
    """Share of the sequences of `order` words of `side` that the training text has."""
    sequences = np.concatenate(list(_hash_sequences(side, order)))
    lookup = HashLookup(sequences)
    for some in _hash_sequences(training, order):
        lookup.add(some, np.zeros(len(some), np.int64))
    return float((lookup.items >= 0).mean()) if len(sequences) else 1.0


def _hash_sequences(side: Side, order: int) -> Iterator[UInt64[np.ndarray, " sequences"]]:
    """A hash of every `order` neighbouring words of a line."""
    for first, end in divide_lines(len(side)):
        starts = side.starts[first : end + 1]
        words = side.words[starts[0] : starts[-1]].astype(np.uint64)
        row = np.repeat(np.arange(end - first), np.diff(starts))
        hashes = mix(words)
        for distance in range(1, order):
            hashes = mix(hashes[:-1] + words[distance:])
        yield hashes[_begin_sequences(row, order)]


def _begin_sequences(row: Int64[np.ndarray, " words"], order: int) -> Int64[np.ndarray, " sequences"]:
    """Find all sequences of `order` words within one line; returns the positions of their first words.

    `row` has the line of each word.
    """
    last = order - 1
    return np.flatnonzero(row[: len(row) - last] == row[last:]) if len(row) > last else np.zeros(0, np.int64)


def find_unknown_words(text: Text, coverage: Coverage, training: Text, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Find the words of `text` that the training text does not have, if they are far more than in text of its kind."""
    unknown, usual = 1 - coverage.known[0], 1 - coverage.expected
    if unknown < max(MIN_UNKNOWN, MANY_TIMES * usual):
        return
    is_unknown = training.sides[coverage.side].count_words(len(vocabulary)) == 0
    rows = np.flatnonzero(text.sides[coverage.side].sum_over_words(is_unknown))
    yield Finding(
        name="unknown_words",
        severity="serious" if unknown >= 0.25 else "minor",
        text=text,
        summary=f"{unknown:.1%} of the words of the {coverage.side}s are not in the training text, where text of the "
        f"same kind would have {usual:.1%}; most often: {', '.join(coverage.most_frequent_unknown[:5])}",
        advice="this text is of another kind, or in another spelling, than the training text: scores on it say little "
        "about text like the training text; for translating such text, train on such text",
        rows=rows,
    )
