"""Lines on the wrong side: swapped pairs, and lines left in the language of the other side.

No language has to be known: a word is typical of the side on which it is more frequent.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from transduce.doctor.checks.languages import RARE_SCRIPT, share_scripts
from transduce.doctor.corpus.hashing import hash_whole_lines
from transduce.doctor.corpus.texts import Side, Text
from transduce.doctor.corpus.vocabulary import NO_SCRIPT, Vocabulary
from transduce.doctor.findings import SCORES_AS_WRONG, Finding, format_pairs, grade

INFORMATIVE = 0.5
"""Logarithm of the ratio of a word's frequencies from which the word is typical of a side."""

MAX_LOG_RATIO = 3.0
"""Limit of that logarithm, so that one word does not decide about a line."""

MIN_INFORMATIVE_WORDS = 3
"""Informative words that a line must have to be told from the other side."""

MIN_SWAPPED_LOG_RATIO = 0.5
"""Mean of that logarithm over a line, on both lines of a pair, from which they are swapped."""

MIN_MISPLACED_LOG_RATIO = 1.0
"""The same mean, if only one line of a pair is judged to be on the wrong side."""

MAX_SHARED_CHARACTERS = 20
"""Number of Chinese characters up to which a line of them alone may be Chinese as well as Japanese."""

SMOOTHING = 0.5
"""Added to the count of every word on either side."""

MIN_WRONG_SIDE_SHARE = 0.001
"""Share of the pairs from which lines on the wrong side are a finding."""

MIN_SERIOUS_SHARE = 0.01


@dataclass(frozen=True)
class SidedLines:
    """How typical the words of each line are of sources (positive) or of targets (negative).

    The mean over the informative words of a line of log(frequency among sources / frequency among targets); 0 for lines
    with too few such words, and for short lines that may be Chinese or Japanese where these are the two languages.
    """

    source: Float64[np.ndarray, " pairs"]
    target: Float64[np.ndarray, " pairs"]

    @property
    def is_swapped(self) -> Bool[np.ndarray, " pairs"]:
        """Whether the source is like a target, and the target like a source."""
        swapped: Bool[np.ndarray, " pairs"] = np.minimum(-self.source, self.target) >= MIN_SWAPPED_LOG_RATIO
        return swapped


def measure_sides(text: Text, training: Text, vocabulary: Vocabulary) -> SidedLines:
    """Compare the words of both sides of `text` with their frequencies in the training text."""
    counts = [side.count_words(len(vocabulary)) for side in training.sides.values()]
    own = int(text is training)  # a pair does not speak for itself, and may have the same words on both sides
    log_ratios = compare_frequencies(counts[0] - own, counts[1] - own)
    source, target = (
        np.where(_may_be_chinese_or_japanese(side, training, vocabulary), 0.0, _average(side, log_ratios))
        for side in text.sides.values()
    )
    return SidedLines(source, target)


def _may_be_chinese_or_japanese(side: Side, training: Text, vocabulary: Vocabulary) -> Bool[np.ndarray, " lines"]:
    """Whether each line is a short one in Chinese characters alone, and one side is in Japanese, the other in Chinese.

    Terms and addresses are written with the same characters in both languages.
    """
    shares = [
        dict(zip(vocabulary.scripts, share_scripts(one, vocabulary), strict=True)) for one in training.sides.values()
    ]
    are_chinese = all(one.get("Chinese characters", 0) >= RARE_SCRIPT for one in shares)
    num_japanese = sum(any(one.get(script, 0) >= RARE_SCRIPT for script in ("Hiragana", "Katakana")) for one in shares)
    if not are_chinese or num_japanese != 1:
        return np.zeros(len(side), bool)
    has_neither = np.isin(
        vocabulary.script_of_word,
        [vocabulary.scripts.index(name) for name in ("Chinese characters", NO_SCRIPT)],
        invert=True,
    )
    is_short = side.num_words <= MAX_SHARED_CHARACTERS
    return np.asarray(is_short & (side.sum_over_words(has_neither) == 0))


def compare_frequencies(
    source_counts: Int64[np.ndarray, " vocabulary"], target_counts: Int64[np.ndarray, " vocabulary"]
) -> Float64[np.ndarray, " vocabulary"]:
    """The logarithm of how many times as frequent each word is among sources as among targets, within limits."""
    source, target = (
        np.log(np.maximum(0, counts) + SMOOTHING) - np.log(max(1, counts.sum()) + SMOOTHING * len(counts))
        for counts in (source_counts, target_counts)
    )
    return np.asarray(np.clip(source - target, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def _average(side: Side, log_ratios: Float64[np.ndarray, " vocabulary"]) -> Float64[np.ndarray, " lines"]:
    is_informative = np.abs(log_ratios) >= INFORMATIVE
    counts = side.sum_over_words(is_informative)
    return np.where(
        counts >= MIN_INFORMATIVE_WORDS, side.sum_over_words(log_ratios * is_informative) / np.maximum(1, counts), 0.0
    )


def find_misplaced_lines(text: Text, sides: SidedLines) -> Iterator[Finding]:
    """Find swapped pairs, and lines that are in the language of the other side."""
    yield from _describe(
        text,
        "swapped_pairs",
        np.flatnonzero(sides.is_swapped),
        "are certainly swapped: the source is in the language of the targets, and the target in that of the sources",
        "swap the two sides of these lines, and look at those between them, as short ones are not counted",
    )
    is_copy = find_copies(text)
    for side, values in (("source", -sides.source), ("target", sides.target)):
        is_misplaced = (values >= MIN_MISPLACED_LOG_RATIO) & ~sides.is_swapped & ~is_copy
        other = "target" if side == "source" else "source"
        yield from _describe(
            text,
            f"{side}_in_language_of_{other}s",
            np.flatnonzero(is_misplaced),
            f"have a {side} in the language of the {other}s, which is not a copy of the {other}",
            "leave these pairs out",
        )


def find_copies(text: Text) -> Bool[np.ndarray, " pairs"]:
    """Whether the two lines of each pair have the same words, in upper or lower case."""
    hashes = [hash_whole_lines(side) for side in text.sides.values()]
    copied: Bool[np.ndarray, " pairs"] = (hashes[0] == hashes[1]) & (text.source.num_words > 0)
    return copied


def _describe(
    text: Text, name: str, rows: Int64[np.ndarray, " rows"], description: str, advice: str
) -> Iterator[Finding]:
    share = len(rows) / len(text)
    if len(rows):
        yield Finding(
            name=name,
            severity=grade(share, MIN_WRONG_SIDE_SHARE, MIN_SERIOUS_SHARE),
            text=text,
            summary=f"{format_pairs(len(rows), share)} {description}",
            advice=f"{advice}: "
            + ("the model would learn to mix the languages" if text.is_training else SCORES_AS_WRONG),
            rows=rows,
        )


def find_partly_untranslated(text: Text, training: Text, vocabulary: Vocabulary) -> Int64[np.ndarray, " rows"]:
    """Find the pairs whose target has three or more words of its own source that are typical of the sources."""
    counts = [side.count_words(len(vocabulary)) for side in training.sides.values()]
    is_typical = compare_frequencies(counts[0], counts[1]) >= MAX_LOG_RATIO - 1
    candidates = np.flatnonzero(text.target.sum_over_words(is_typical) >= MIN_INFORMATIVE_WORDS)
    found = []
    for row in candidates.tolist():
        source, target = (
            set(side.words[side.starts[row] : side.starts[row + 1]].tolist()) for side in text.sides.values()
        )
        if sum(is_typical[word] for word in source & target) >= MIN_INFORMATIVE_WORDS:
            found.append(row)
    return np.array(found, np.int64)
