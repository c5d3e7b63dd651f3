"""The case of letters: stretches of one side that are in lower case or in capitals, while all other lines are not."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool

from transduce.doctor.corpus.texts import Side, Text
from transduce.doctor.findings import Finding, PairReference, choose_samples, format_pairs

CASES = ("mixed case", "lower case", "capitals", "no case")
"""Kinds of lines by the case of their letters, of which many scripts have none."""

MIN_CASED_WORDS = 4
"""Words of the shortest lines that count: entries of a dictionary and headings have a case of their own."""

MIN_LINES = 100
"""Minimum number of lines of a stretch, and of all lines outside of it together."""

MIN_IN_CASE_SHARE = 0.95
"""Share of the lines of a stretch that must be in its case."""

MIN_MIXED_CASE_SHARE = 0.9
"""Minimum share of lines in mixed case for text to count as written in the usual case.

A stretch is reported only if the rest of its side, and the same lines of the other side, are in the usual case.
"""


def classify_case(line: str) -> int:
    """Which of `CASES` the letters of a line are in, by its index there."""
    return 1 if line.islower() else 2 if line.isupper() else 3 if line == line.lower() else 0


def find_changes_of_case(text: Text) -> Iterator[Finding]:
    """Find a stretch of one side, as from some line to the end, whose letters have lost their case."""
    for name, side in text.sides.items():
        other = next(one for one in text.sides.values() if one is not side)
        for number, case in enumerate(CASES[1:3], start=1):
            stretch = _find_stretch(side, number)
            if stretch is None or not _has_mixed_case(other, stretch):
                continue
            rows = np.arange(*stretch)
            rows = rows[side.cases[rows] == number]
            references = (str(PairReference(text, row)) for row in (stretch[0], stretch[1] - 1))
            first, last = (reference.removeprefix(f"{text.name}, ") for reference in references)
            share = len(rows) / len(text)
            yield Finding(
                name="changed_case",
                severity="minor",
                text=text,
                summary=f"from {first} to {last}, the {name}s are in {case}, "
                f"{format_pairs(len(rows), share)}; all other lines are not",
                advice="the model cannot know which of the two to write or to expect: take the original text of these "
                "lines, or leave them out",
                rows=rows,
                samples=choose_samples(text, rows),
            )


def _find_stretch(side: Side, case: int) -> tuple[int, int] | None:
    """The first line of the stretch with the most lines in `case`, and the line behind it.

    None if there are too few lines inside or outside of the stretch, or the lines outside are not in mixed case.
    """
    counted = np.flatnonzero(_counts(side))
    is_in_case = side.cases[counted] == case
    if min(is_in_case.sum(), (~is_in_case).sum()) < MIN_LINES:
        return None
    # The stretch with the largest sum: a line in the case counts 1, and any other line minus the number of lines in the
    # case that `MIN_IN_CASE_SHARE` demands for it.
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_in_case, 1.0, -MIN_IN_CASE_SHARE / (1 - MIN_IN_CASE_SHARE)))])
    end = int(np.argmax(sums - np.minimum.accumulate(sums)))
    start = int(np.argmin(sums[:end]))
    inside = np.zeros(len(counted), bool)
    inside[start:end] = True
    if (
        min(end - start, len(counted) - (end - start)) < MIN_LINES
        or (side.cases[counted[~inside]] == 0).mean() < MIN_MIXED_CASE_SHARE
    ):
        return None
    return int(counted[start]), int(counted[end - 1]) + 1


def _has_mixed_case(side: Side, stretch: tuple[int, int]) -> bool:
    """Whether the lines of the other side are in mixed case in a stretch: if not, it is text of another kind."""
    rows = np.arange(*stretch)
    rows = rows[_counts(side)[rows]]
    return len(rows) >= MIN_LINES and bool((side.cases[rows] == 0).mean() >= MIN_MIXED_CASE_SHARE)


def _counts(side: Side) -> Bool[np.ndarray, " lines"]:
    return side.num_words >= MIN_CASED_WORDS
