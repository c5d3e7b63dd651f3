"""Which words translate each other, learned from the text itself, and how well the lines of a pair fit together by it.

IBM Model 1 (Brown et al. 1993) in both directions, of stems instead of words. A model never judges what it was learned
from: of two, each judges the pairs of the other, as every pair explains its own rare words perfectly.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int, Int32, Int64, UInt32

from transduce.doctor.corpus.texts import Side
from transduce.translation.confidence.lexical_model import estimate_link_counts

MAX_CELLS = 2_500_000
"""Couples of a source word and a target word of a pair, in all pairs that a model is learned from; 300 MB."""

CELLS_AT_A_TIME = 400_000
"""Couples that are looked up at a time."""

MAX_WORDS = 100
"""Words of a line that count; further ones are left out."""

NUM_ITERATIONS = 4
"""Iterations of EM."""

PRIOR = 1.5
"""Occurrences of a word that are added when its translations become probabilities: those of rare words are unsure."""

MIN_PROBABILITY = 0.01
"""Probability of a translation below which it is forgotten."""

SAME_WORD = 0.5
"""Probability of a word being translated as itself, at least: names and numbers are."""

SHARE_OF_CHANCE = 0.1
"""Probability that a word is in a line by chance, whatever the other line says."""

MIN_KNOWN = 4
"""Known words that both lines of a pair must have to be judged."""


@dataclass(frozen=True)
class _Pairs:
    """The stems of the words of some pairs, one line after the other."""

    source: Int64[np.ndarray, " source_words"]
    source_counts: Int64[np.ndarray, " pairs"]
    """Words of each source."""
    target: Int64[np.ndarray, " target_words"]
    target_counts: Int64[np.ndarray, " pairs"]
    """Words of each target."""

    @cached_property
    def num_partners(self) -> Int64[np.ndarray, " source_words"]:
        """For each source word, the words of its target: each couple of them is a cell."""
        return np.repeat(self.target_counts, self.source_counts)

    @cached_property
    def ends(self) -> Int64[np.ndarray, " source_words"]:
        """The number of cells up to the last one of each source word."""
        return np.cumsum(self.num_partners)

    def list_targets(self) -> Int32[np.ndarray, " cells"]:
        """The number of the target word of each cell."""
        first_target = np.repeat(np.cumsum(self.target_counts) - self.target_counts, self.source_counts)
        shift = (first_target - self.ends + self.num_partners).astype(np.int32)
        return np.repeat(shift, self.num_partners) + np.arange(self.num_partners.sum(), dtype=np.int32)

    def find_sources(self, cells: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " some"]:
        """The number of the source word of each of some cells."""
        return np.searchsorted(self.ends, cells, side="right")


_FILTER_BITS = 22


class _Filter:
    """Tells quickly of most cells that their words do not translate each other.

    A word has a random number of 32 bits, and a cell the sum of its two; the first bits of the sum say whether any
    entry has the same.
    """

    def __init__(self, source: Int64[np.ndarray, " entries"], target: Int64[np.ndarray, " entries"], size: int) -> None:
        random = np.random.default_rng(0)
        self._source, self._target = (random.integers(0, 2**32, size, np.uint32) for _ in range(2))
        self._is_entry = np.zeros(1 << _FILTER_BITS, bool)
        self._is_entry[self._hash(self._source[source], self._target[target])] = True

    @staticmethod
    def _hash(
        source: UInt32[np.ndarray, " cells"], target: UInt32[np.ndarray, " cells"]
    ) -> UInt32[np.ndarray, " cells"]:
        bits: UInt32[np.ndarray, " cells"] = (source + target) >> np.uint32(32 - _FILTER_BITS)
        return bits

    def select(self, pairs: _Pairs, targets: Int32[np.ndarray, " cells"]) -> Int64[np.ndarray, " some"]:
        """The cells that may be entries."""
        source = np.repeat(self._source[pairs.source], pairs.num_partners)
        return np.flatnonzero(self._is_entry[self._hash(source, self._target[pairs.target][targets])])


@dataclass(frozen=True)
class _Model:
    """Probabilities of translations in both directions."""

    entries: Int64[np.ndarray, " entries"]
    """Couples of stems that translate each other, as one number each, in order: that of the source stem times the
    number of stems, plus that of the target stem."""
    forward: Float64[np.ndarray, " entries"]
    """The probability of the target stem of each entry, given its source stem."""
    backward: Float64[np.ndarray, " entries"]
    """The probability of the source stem, given the target stem."""
    source_counts: Int64[np.ndarray, " stems"]
    """Occurrences of each stem in the sources that the model was learned from."""
    target_counts: Int64[np.ndarray, " stems"]
    """Occurrences in their targets."""
    filter: _Filter

    @classmethod
    def fit(cls, pairs: _Pairs, num_stems: int) -> "_Model":
        target_place = pairs.list_targets()
        source_place = np.repeat(np.arange(len(pairs.source), dtype=np.int32), pairs.num_partners)
        cells = pairs.source[source_place] * num_stems + pairs.target[target_place]
        entries, entry = np.unique(cells, return_inverse=True)
        source, target = np.divmod(entries, num_stems)
        forward = estimate_link_counts(entry, target_place, source, NUM_ITERATIONS)
        backward = estimate_link_counts(entry, source_place, target, NUM_ITERATIONS)
        source_counts, target_counts = (np.bincount(side, minlength=num_stems) for side in (pairs.source, pairs.target))
        forward /= source_counts[source] + PRIOR
        backward /= target_counts[target] + PRIOR
        likely = np.flatnonzero(np.maximum(forward, backward) >= MIN_PROBABILITY)
        same = np.flatnonzero((source_counts > 0) & (target_counts > 0))
        kept, place = np.unique(np.append(entries[likely], same * (num_stems + 1)), return_inverse=True)
        of_same = np.full(len(same), SAME_WORD)
        forward, backward = (
            _take_highest(np.append(one[likely], of_same), place, len(kept)) for one in (forward, backward)
        )
        source, target = np.divmod(kept, num_stems)
        return cls(kept, forward, backward, source_counts, target_counts, _Filter(source, target, num_stems))

    def score(self, pairs: _Pairs) -> Float64[np.ndarray, " pairs"]:
        """The agreement of each pair; NaN if it has too few known words."""
        targets = pairs.list_targets()
        cells = self.filter.select(pairs, targets)
        source_place, target_place = pairs.find_sources(cells), targets[cells]
        keys = pairs.source[source_place] * len(self.source_counts) + pairs.target[target_place]
        entry = np.minimum(np.searchsorted(self.entries, keys), len(self.entries) - 1)
        found = self.entries[entry] == keys
        entry, source_place, target_place = entry[found], source_place[found], target_place[found]
        source_explained = np.bincount(source_place, self.backward[entry], minlength=len(pairs.source))
        target_explained = np.bincount(target_place, self.forward[entry], minlength=len(pairs.target))
        evidence: Float64[np.ndarray, " pairs"] = np.zeros(len(pairs.source_counts))
        num_known = []
        for words, lengths, other_lengths, explained, counts in (
            (pairs.source, pairs.source_counts, pairs.target_counts, source_explained, self.source_counts),
            (pairs.target, pairs.target_counts, pairs.source_counts, target_explained, self.target_counts),
        ):
            # A word is explained by the mean of all words of the other line.
            probability = explained / np.maximum(1, np.repeat(other_lengths, lengths))
            by_chance = (counts[words] + 1) / (counts.sum() + len(counts))
            is_known = counts[words] > 0
            gain = np.log((1 - SHARE_OF_CHANCE) * probability / by_chance + SHARE_OF_CHANCE) * is_known
            row = np.repeat(np.arange(len(lengths)), lengths)
            evidence += np.bincount(row, gain, minlength=len(lengths))
            num_known.append(np.bincount(row, is_known, minlength=len(lengths)))
        evidence /= np.maximum(1, np.add(*num_known))
        evidence[np.minimum(*num_known) < MIN_KNOWN] = np.nan
        return evidence


def _halve(source: Side) -> Int64[np.ndarray, " lines"]:
    """The half that each line is in, 0 or 1: every other line that has words is in the same one.

    Blank lines do not count, as in a text with a blank line after every line one half would have no words.
    """
    return np.cumsum(source.num_words > 0) % 2


def _take_highest(
    values: Float64[np.ndarray, " values"], places: Int64[np.ndarray, " values"], size: int
) -> Float64[np.ndarray, " places"]:
    """The highest of the values of each place."""
    highest = np.zeros(size)
    np.maximum.at(highest, places, values)
    return highest


class Lexicon:
    """Judges how well lines of source and target fit together.

    The agreement of a pair is the mean over its words of log(p / q), where p is the probability of the word given the
    other line, and q its probability by chance: about 2 for translations of captions, and -1 for unrelated lines.

    Args:
        source: the sources.
        target: the targets.
        stems: the stem of each word of the vocabulary.
        num_stems: number of stems.
        source_rows: the sources of the pairs to learn from.
        target_rows: their targets.
    """

    def __init__(
        self,
        source: Side,
        target: Side,
        stems: Int[np.ndarray, " vocabulary"],
        num_stems: int,
        source_rows: Int64[np.ndarray, " rows"],
        target_rows: Int64[np.ndarray, " rows"],
    ) -> None:
        self._sides = source, target
        self._halves = _halve(source)
        self._stems = stems
        self._models = [
            _Model.fit(self._take(source_rows[chosen], target_rows[chosen]), num_stems)
            for chosen in (self._select(source_rows, target_rows, half) for half in (0, 1))
        ]

    def for_lines(self, source: Side, target: Side) -> "Lexicon":
        """The same lexicon, to judge lines of another text."""
        other = copy(self)
        other._sides, other._halves = (source, target), _halve(source)  # noqa: SLF001 - its own class
        return other

    def _select(
        self, source_rows: Int64[np.ndarray, " rows"], target_rows: Int64[np.ndarray, " rows"], half: int
    ) -> Int64[np.ndarray, " chosen"]:
        """Pairs for one of the models, as many as it may learn from, spread evenly."""
        own = np.flatnonzero(self._halves[source_rows] == half)
        counts = [
            np.minimum(side.num_words[rows[own]], MAX_WORDS)
            for side, rows in zip(self._sides, (source_rows, target_rows), strict=True)
        ]
        own = np.compress((counts[0] > 0) & (counts[1] > 0), own)
        num_cells = int((counts[0] * counts[1]).sum())
        step = max(1, -(-num_cells // MAX_CELLS))
        return own[::step]

    def _take(self, source_rows: Int64[np.ndarray, " rows"], target_rows: Int64[np.ndarray, " rows"]) -> _Pairs:
        parts = []
        for side, rows in zip(self._sides, (source_rows, target_rows), strict=True):
            words, counts = side.take(rows, MAX_WORDS)
            parts += [self._stems[words].astype(np.int64), counts]
        return _Pairs(*parts)

    def score(
        self, source_rows: Int64[np.ndarray, " rows"], target_rows: Int64[np.ndarray, " rows"]
    ) -> Float64[np.ndarray, " rows"]:
        """The agreement of each source with the target beside it; NaN for lines with too few known words."""
        agreement = np.full(len(source_rows), np.nan)
        for half, model in ((0, self._models[1]), (1, self._models[0])):
            rows = np.flatnonzero(self._halves[source_rows] == half)
            for some in self._divide(rows, source_rows, target_rows):
                agreement[some] = model.score(self._take(source_rows[some], target_rows[some]))
        return agreement

    def _divide(
        self,
        rows: Int64[np.ndarray, " chosen"],
        source_rows: Int64[np.ndarray, " rows"],
        target_rows: Int64[np.ndarray, " rows"],
    ) -> Iterator[Int64[np.ndarray, " some"]]:
        """The rows in groups of about `CELLS_AT_A_TIME` cells."""
        num_cells = np.multiply(
            *(
                np.minimum(side.num_words[of_side[rows]], MAX_WORDS)
                for side, of_side in zip(self._sides, (source_rows, target_rows), strict=True)
            )
        )
        group = np.cumsum(num_cells) // CELLS_AT_A_TIME
        return iter(np.split(rows, np.flatnonzero(np.diff(group)) + 1)) if len(rows) else iter(())
