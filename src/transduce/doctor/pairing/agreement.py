"""Agreement: how well the two lines of a pair fit together by their words, among translations and unrelated lines."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.pairing.association import choose_stretches, find_offset, has_frequent_words
from transduce.doctor.pairing.lexicon import Lexicon

MIN_SEPARATION = 2.0
"""Distance between the agreement of translations and that of unrelated lines, in standard deviations, from which single
pairs can be judged."""

MAX_LOG_RATIO = 5.0
"""Upper bound of the absolute log-likelihood ratio of one pair, so that one pair does not outweigh several."""

MIN_JUDGED = 100
"""Minimum number of related pairs of lines that can be judged, and of unrelated ones."""

MAX_COMPARED = 20_000
"""Unrelated couples of lines whose agreement is measured."""

PIECE = 50
"""Number of neighbouring lines of a stretch that are judged together: a shift may begin within a stretch."""

NEARLY_ALL = 0.9
"""If fewer than this share of the lines from which a lexicon was learned belong together, it is learned again from
those alone."""

_DEVIATIONS_OF_MAD = 1.4826


@dataclass(frozen=True)
class Agreement:
    """The distributions of agreement of related and of unrelated lines of a text, by which its pairs are judged."""

    lexicon: Lexicon
    related: Float64[np.ndarray, " pairs"]
    """The agreement of lines in stretches that belong together."""
    unrelated: Float64[np.ndarray, " couples"]
    """The agreement of lines of the text that have nothing to do with each other."""
    deviation: float
    """Standard deviation of the agreement within translations and unrelated lines."""

    @property
    def distance(self) -> float:
        """The median agreement of related lines minus that of unrelated lines."""
        return float(np.median(self.related) - np.median(self.unrelated))

    @property
    def is_reliable(self) -> bool:
        """Whether single pairs can be judged."""
        return self.distance >= MIN_SEPARATION * self.deviation

    def compute_log_ratio(self, agreement: Float64[np.ndarray, " couples"]) -> Float64[np.ndarray, " couples"]:
        """The log-likelihood ratio of each agreement: positive if it is more probable of translations than of others.

        Both are assumed to be normally distributed with the same deviation. Ratios are limited to ±`MAX_LOG_RATIO`; the
        ratio is NaN where the agreement is.
        """
        middle = float(np.median(self.unrelated)) + self.distance / 2
        slope = self.distance / self.deviation**2
        return np.clip((agreement - middle) * slope, -MAX_LOG_RATIO, MAX_LOG_RATIO)


@dataclass(frozen=True)
class Relatedness:
    """Where the lines of a text belong together, by frequent words, before any single pair is judged."""

    num_stretches: int
    """Stretches of neighbouring pairs that were measured: those with frequent words on both sides."""
    source_rows: Int64[np.ndarray, " rows"]
    """The sources of those that belong together, at the same line or some lines apart; no blank lines."""
    target_rows: Int64[np.ndarray, " rows"]
    """Their targets."""


def measure_relatedness(text: Text) -> Relatedness:
    """Find stretches of lines that belong together."""
    source_rows, target_rows, num_stretches = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for part in text.parts:
        bounds = part.start, part.end
        for first, end in choose_stretches(*bounds):
            if not all(has_frequent_words(side, first, end) for side in (text.source, text.target)):
                continue
            num_stretches += 1
            offset = find_offset(text.source, text.target, first, end, bounds)
            if offset is not None:
                rows = np.arange(max(first, part.start - offset), min(end, part.end - offset))
                rows = rows[(text.source.num_words[rows] > 0) & (text.target.num_words[rows + offset] > 0)]
                source_rows.append(rows)
                target_rows.append(rows + offset)
    return Relatedness(num_stretches, np.concatenate(source_rows), np.concatenate(target_rows))


def learn_agreement(text: Text, relatedness: Relatedness, vocabulary: Vocabulary) -> Agreement | None:
    """Learn from lines that belong together which words do; None if there are too few of them."""
    rows = relatedness.source_rows, relatedness.target_rows
    if not len(rows[0]):
        return None

    def learn(rows: tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]) -> Lexicon:
        return Lexicon(text.source, text.target, vocabulary.stems, vocabulary.num_stems, *rows)

    lexicon = learn(rows)
    is_related = _find_related_pieces(lexicon, *rows)
    if is_related.mean() < NEARLY_ALL:
        rows = rows[0][is_related], rows[1][is_related]
        lexicon = learn(rows)
    return _measure(lexicon, *rows)


def transfer_agreement(agreement: Agreement, text: Text, relatedness: Relatedness) -> Agreement | None:
    """Measure the agreement of another text by a lexicon learned before; None if too few lines belong together."""
    rows = relatedness.source_rows, relatedness.target_rows
    if not len(rows[0]):
        return None
    lexicon = agreement.lexicon.for_lines(text.source, text.target)
    is_related = _find_related_pieces(lexicon, *rows)
    return _measure(lexicon, rows[0][is_related], rows[1][is_related])


def _find_related_pieces(
    lexicon: Lexicon, source_rows: Int64[np.ndarray, " rows"], target_rows: Int64[np.ndarray, " rows"]
) -> Bool[np.ndarray, " rows"]:
    """For each source line and its target line, whether most lines around them are translations of each other, too.

    In a stretch in which a shift begins, lines belong together on one side of that place only. A piece of `PIECE` lines
    counts as related if its mean agreement is nearer to that of the best pieces than to that of unrelated lines.
    """
    scores = lexicon.score(source_rows, target_rows)
    unrelated = lexicon.score(source_rows, np.roll(target_rows, len(target_rows) // 3))
    starts = np.arange(0, len(scores), PIECE)
    counts = np.add.reduceat(~np.isnan(scores), starts, dtype=np.int64)
    means = np.add.reduceat(np.nan_to_num(scores), starts) / np.maximum(1, counts)
    is_judged = counts >= PIECE // 5
    if not is_judged.any() or np.isnan(unrelated).all():
        return np.ones(len(scores), bool)
    limit = (np.quantile(means[is_judged], 0.9) + np.nanmedian(unrelated)) / 2
    return np.repeat(means >= limit, np.diff(np.append(starts, len(scores))))


def _measure(
    lexicon: Lexicon, source_rows: Int64[np.ndarray, " rows"], target_rows: Int64[np.ndarray, " rows"]
) -> Agreement | None:
    """The agreement of related lines, and of lines put together at random."""
    some = np.arange(0, len(source_rows), max(1, -(-len(source_rows) // MAX_COMPARED)))
    related = lexicon.score(source_rows[some], target_rows[some])
    unrelated = lexicon.score(source_rows[some], np.roll(target_rows, len(target_rows) // 3)[some])
    related, unrelated = related[~np.isnan(related)], unrelated[~np.isnan(unrelated)]
    if min(len(related), len(unrelated)) < MIN_JUDGED:
        return None
    spread = _DEVIATIONS_OF_MAD * np.median(np.abs(related - np.median(related)))
    deviation = float(np.sqrt((unrelated.var() + spread**2) / 2))
    return Agreement(lexicon, related, unrelated, max(deviation, 1e-6))
