"""Lengths of lines, and pairs whose two lengths do not fit together; blank lines, and files of different length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Num

from transduce.doctor.corpus.texts import Text
from transduce.doctor.findings import Finding, choose_samples, format_pairs, grade

QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)

SHORT = 10
"""Characters that are added to both lengths of a ratio, so that short lines do not have extreme ratios."""

NUM_GROUPS = 10
"""Number of groups of pairs by length, each with its own usual ratio, as the ratios of short pairs vary more."""

MAX_DEVIATION = 6.0
"""Maximum distance of the logarithm of a pair's ratio from the median, in robust standard deviations."""

MIN_DEVIATION = 0.1
"""Lower bound of the robust standard deviation of the logarithm of ratios, which is about 10 % of a length."""


@dataclass(frozen=True)
class LengthFigures:
    """Lengths of the lines of a text."""

    words: dict[str, list[int]]
    """Words of a line, at `QUANTILES` and at most, by side."""
    characters: dict[str, list[int]]
    """Characters of a line, at the same quantiles."""
    ratio: list[float]
    """Characters of the target for one of the source, at the same quantiles."""


def measure_lengths(text: Text) -> LengthFigures:
    """The distribution of lengths, and of their ratios."""

    def summarize(values: Num[np.ndarray, " lines"]) -> list[float]:
        return [*np.quantile(values, QUANTILES).tolist(), float(values.max())]

    ratios = text.target.num_characters / np.maximum(1, text.source.num_characters)
    return LengthFigures(
        words={name: [*map(int, summarize(side.num_words))] for name, side in text.sides.items()},
        characters={name: [*map(int, summarize(side.num_characters))] for name, side in text.sides.items()},
        ratio=[round(value, 2) for value in summarize(ratios)],
    )


def compute_deviations(text: Text) -> Float64[np.ndarray, " pairs"]:
    """How far the ratio of lengths of each pair is from the usual ratio of pairs of about the same length.

    The unit is the robust standard deviation (from the median absolute deviation) of the logarithm of the ratio. The
    distance is negative if the target is short, and 0 for pairs with a blank line, which are left out.
    """
    source, target = text.source.num_characters, text.target.num_characters
    ratios = np.log((target + SHORT) / (source + SHORT))
    deviations = np.zeros(len(text))
    rows = np.flatnonzero(text.has_text)
    order = rows[np.argsort((source + target)[rows], kind="stable")]
    for group in np.array_split(order, NUM_GROUPS):
        if len(group):
            median = np.median(ratios[group])
            spread = 1.4826 * np.median(np.abs(ratios[group] - median))
            deviations[group] = (ratios[group] - median) / max(MIN_DEVIATION, spread)
    return deviations


MIN_OUTLIERS_SHARE = 0.005
"""Share of the pairs from which unusual ratios are a finding: among good translations, too, some are free."""


def find_unusual_ratios(text: Text) -> Iterator[Finding]:
    """Find pairs of which one side is far too short for the other."""
    deviations = compute_deviations(text)
    rows = np.flatnonzero(np.abs(deviations) > MAX_DEVIATION)
    share = len(rows) / len(text)
    if not len(rows):
        return
    num_short = int((deviations[rows] < 0).sum())
    worst = rows[np.argsort(-np.abs(deviations[rows]), kind="stable")]
    yield Finding(
        name="unusual_length_ratios",
        severity=grade(share, MIN_OUTLIERS_SHARE, 0.05),
        text=text,
        summary=f"in {format_pairs(len(rows), share)}, one side is far too long for the other, by the ratio of lengths "
        f"that is usual in this text: the target is too short in {num_short:,}, the source in "
        f"{len(rows) - num_short:,}",
        advice="look at these lines: parts are missing, or the two do not belong together"
        + ("; text.max_ratio leaves out the most extreme ones" if text.is_training else ""),
        rows=rows,
        samples=choose_samples(text, worst[: max(5, len(worst) // 2)]),
    )


def find_blank_lines(text: Text) -> Iterator[Finding]:
    """Find pairs with a blank line on one side or both; lines missing at the end of a shorter file do not count."""
    is_blank = [(side.num_words == 0) & ~text.is_missing for side in text.sides.values()]
    rows = np.flatnonzero(is_blank[0] | is_blank[1])
    one_sided = np.flatnonzero(is_blank[0] ^ is_blank[1])
    if not len(rows):
        return
    share = len(rows) / len(text)
    yield Finding(
        name="blank_lines",
        severity=grade(share, 0.0, 0.05),
        text=text,
        summary=f"{format_pairs(len(rows), share)} have a blank line: {len(one_sided):,} on one side only, "
        f"{len(rows) - len(one_sided):,} on both",
        advice=f"{'they are left out' if text.is_training else 'leave them out'}; "
        "if many are blank on one side only, check whether the files match line for line",
        rows=rows,
        samples=choose_samples(text, one_sided),
    )


def find_unequal_files(text: Text) -> Iterator[Finding]:
    """Find corpora in two files, or in two members of a zip, of which one has more lines than the other."""
    for part in text.parts:
        if part.num_lines[0] != part.num_lines[1]:
            num_missing = abs(part.num_lines[0] - part.num_lines[1])
            yield Finding(
                name="unequal_files",
                severity="serious",
                text=text,
                summary=f"{part.name}: the source has {part.num_lines[0]:,} lines and the target {part.num_lines[1]:,}",
                advice="training refuses such files: the lines of one file must be translations of those of the other. "
                "If shifted lines are reported, too, a line is missing where they begin",
                rows=np.arange(part.end - num_missing, part.end),
            )


BIN_WIDTH = 4
"""Words of a bin of the histogram of lengths."""

RATIO_BIN = 10
"""Width of a bin of the histogram of ratios: target characters for a hundred source characters."""

NUM_BINS = 30


def count_lengths(text: Text) -> dict[str, list[int]]:
    """Lines by their number of words, in bins of `BIN_WIDTH`, the last without end, for each side."""
    return {name: _count_bins(side.num_words, BIN_WIDTH) for name, side in text.sides.items()}


def count_ratios(text: Text) -> dict[str, list[int]]:
    """Pairs by the ratio of their lengths, in bins of `RATIO_BIN` hundredths, the last without end."""
    source, target = text.source.num_characters, text.target.num_characters
    rows = np.flatnonzero(text.has_text)
    return {"pairs": _count_bins(100 * target[rows].astype(np.int64) // source[rows], RATIO_BIN)}


def _count_bins(values: Num[np.ndarray, " lines"], width: int) -> list[int]:
    counts: Sequence[int] = np.bincount(np.minimum(values // width, NUM_BINS - 1), minlength=NUM_BINS).tolist()
    return list(counts)
