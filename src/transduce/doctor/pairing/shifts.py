"""Stretches of a text whose lines do not match line for line: shifted by some lines, or not related at all."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from transduce.doctor.corpus.texts import Part, Text
from transduce.doctor.findings import Finding, PairReference, format_pairs
from transduce.doctor.pairing.agreement import Agreement

BLOCK = 20
"""Neighbouring lines that are judged together: shifts of fewer lines are not found."""

MIN_JUDGED = 5
"""Lines of a block that must be judged."""

LINES_AT_A_TIME = 2_000
"""Lines that are compared at a shift before the next ones."""

NEAR_SHIFT, FAR_SHIFT = 10, 100
"""Maximum number of lines by which targets may be shifted further; the second where none up to the first matches."""

MAX_NEAR_SEARCHES, MAX_FAR_SEARCHES = 300, 30
"""Maximum number of searches up to each of these shifts; after them, only shifts by a line are found."""

DOUBTFUL = 0.4
"""Lines of a block do not match if their mean evidence is below this share of the mean evidence of translations."""

MIN_UNRELATED = 2 * BLOCK
"""Lines of the shortest stretch that is reported as unrelated."""


@dataclass(frozen=True)
class Segment:
    """Pairs from `start` up to, but without, `end`."""

    start: int
    end: int
    shift: int | None
    """The translation of source n is target n + shift; None if the lines are not related."""


class ShiftTracker:
    """Follows a corpus from its first line to its last, and finds where the shift of its targets changes.

    Args:
        part: the corpus.
        agreement: how lines are judged.
        same: the agreement of each pair of the whole text.
    """

    def __init__(self, part: Part, agreement: Agreement, same: Float64[np.ndarray, " pairs"]) -> None:
        self._part = part
        self._agreement = agreement
        self._same = agreement.compute_log_ratio(same)
        self._threshold = DOUBTFUL * float(agreement.compute_log_ratio(agreement.related).mean())
        self._searches_left = {NEAR_SHIFT: MAX_NEAR_SEARCHES, FAR_SHIFT: MAX_FAR_SEARCHES}

    def weigh(self, start: int, end: int, shift: int) -> Float64[np.ndarray, " lines"]:
        """The log-likelihood ratio that each line matches at `shift`; NaN where it cannot be judged.

        If the target has additional lines (shift > 0), `start` and `end` number source lines, otherwise target lines:
        so every line has a counterpart, and a stretch begins at the line from which the two sides no longer match.
        """
        if shift == 0:
            return self._same[start:end]
        rows = np.arange(start, end)
        sources, targets = rows + max(-shift, 0), rows + max(shift, 0)
        is_there = np.maximum(sources, targets) < self._part.end
        evidence = np.full(len(rows), np.nan)
        found = self._agreement.lexicon.score(sources[is_there], targets[is_there])
        evidence[is_there] = self._agreement.compute_log_ratio(found)
        return evidence

    def find_segments(self) -> list[Segment]:
        """Find all stretches with their shifts, in order and without gaps."""
        segments: list[Segment] = []
        start = position = self._part.start
        shift = 0
        while position < self._part.end:
            end = min(self._part.end, position + LINES_AT_A_TIME)
            doubtful = self._find_doubtful_block(position, end, shift)
            if doubtful is None:
                position = end
                continue
            position, next_shift = self._find_next_match(doubtful, shift)
            segments += [Segment(start, doubtful, shift), Segment(doubtful, position, None)]
            start, shift = position, next_shift
        segments.append(Segment(start, self._part.end, shift))
        return self._refine(segments)

    def _find_doubtful_block(self, start: int, end: int, shift: int) -> int | None:
        """The first block of lines that do not match at a shift."""
        starts = np.arange(0, end - start, BLOCK)
        means = _average_blocks(self.weigh(start, end, shift), starts)
        found = np.flatnonzero(means < self._threshold)
        return start + int(starts[found[0]]) if len(found) else None

    def _find_next_match(self, start: int, shift: int) -> tuple[int, int]:
        """The next block after that of `start` whose lines match at any shift, and the shift; the end if none does."""
        for number, position in enumerate(range(start + BLOCK, self._part.end, BLOCK)):
            if self._measure_match(position, shift) >= self._threshold:
                return position, shift
            # In a stretch without matches, searches are made more and more seldom, as they take long.
            is_searched = number & (number - 1) == 0
            for farthest in (NEAR_SHIFT, FAR_SHIFT) if is_searched else (1,):
                if self._searches_left.get(farthest) == 0:
                    continue
                if farthest in self._searches_left:
                    self._searches_left[farthest] -= 1
                candidates = sorted(
                    {0, *range(shift - farthest, shift + farthest + 1)}, key=lambda one: abs(one - shift)
                )
                means = [self._measure_match(position, candidate) for candidate in candidates]
                best = int(np.argmax(means))
                if means[best] >= self._threshold:
                    return position, candidates[best]
        return self._part.end, shift

    def _measure_match(self, start: int, shift: int) -> float:
        """The mean evidence that the lines of a block match at a shift; minus infinity if too few can be judged."""
        evidence = self.weigh(start, min(start + BLOCK, self._part.end), shift)
        mean = float(_average_blocks(evidence, np.array([0]))[0])
        return -np.inf if np.isnan(mean) else mean

    def _refine(self, segments: list[Segment]) -> list[Segment]:
        """The segments with exact limits, without unrelated ones that are too short."""
        matching, doubtful = segments[::2], segments[1::2]
        limits: list[tuple[int, int]] = []
        for before, between, after in zip(matching, doubtful, matching[1:], strict=False):
            limits.append(self._find_limits(before, between, after))
        refined: list[Segment] = []
        start = self._part.start
        for segment, (end, next_start) in zip(matching, [*limits, (self._part.end, self._part.end)], strict=True):
            _append(refined, Segment(start, end, segment.shift))
            _append(refined, Segment(end, next_start, None))
            start = next_start
        return refined

    def _find_limits(self, before: Segment, between: Segment, after: Segment) -> tuple[int, int]:
        """Where `before` ends and `after` begins; the same place, unless unrelated lines are between them."""
        low, high = max(before.start, between.start - BLOCK), min(after.end, between.end + BLOCK)
        is_last = after.start == after.end
        old, new = (np.nan_to_num(self.weigh(low, high, _get_shift(one))) for one in (before, after))
        old_sum = np.concatenate([[0], np.cumsum(old)])
        new_sum = np.concatenate([[0], np.cumsum(new)])
        end = low + int(np.argmax(old_sum))
        start = high if is_last else end + int(np.argmin(new_sum[end - low :]))
        if start - end >= MIN_UNRELATED:
            return end, start
        if is_last or before.shift == after.shift:
            return high, high
        # The few lines between them that match neither way do not belong to what matches line for line.
        if before.shift == 0:
            return end, end
        if after.shift == 0:
            return start, start
        cut = low + int(np.argmax(old_sum - new_sum))
        return cut, cut


def _get_shift(segment: Segment) -> int:
    return segment.shift or 0


def _append(segments: list[Segment], segment: Segment) -> None:
    """Add a segment, joined to the one before if that has the same shift."""
    if segment.start == segment.end:
        return
    if segments and segments[-1].shift == segment.shift:
        segment = Segment(segments.pop().start, segment.end, segment.shift)
    segments.append(segment)


def _average_blocks(
    evidence: Float64[np.ndarray, " lines"], starts: Int64[np.ndarray, " blocks"]
) -> Float64[np.ndarray, " blocks"]:
    """The mean of each block over what is known; NaN if that is too little."""
    is_known = ~np.isnan(evidence)
    counts = np.add.reduceat(is_known.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(is_known, evidence, 0.0), starts)
    return np.where(counts >= MIN_JUDGED, sums / np.maximum(1, counts), np.nan)


def find_shifts(text: Text, segments: list[Segment]) -> Iterator[Finding]:
    """Find stretches whose lines do not match line for line, each with its place in the files."""
    for part in text.parts:
        before: int | None = 0
        for segment in (one for one in segments if part.start <= one.start < part.end):
            if segment.shift != 0:
                yield _describe(text, part, segment, before)
            before = segment.shift


def _describe(text: Text, part: Part, segment: Segment, before: int | None) -> Finding:
    """The finding about a segment; `before` is the shift of the segment before it, None if that is unrelated."""
    first, last = (text.locate(row).number for row in (segment.start, segment.end - 1))
    affected = np.arange(segment.start, segment.end)
    size = format_pairs(len(affected), len(affected) / len(text))
    reaches_end = segment.end + abs(_get_shift(segment)) >= part.end
    unit = part.unit
    where = f"from {unit} {first:,} on" if reaches_end else f"from {unit} {first:,} to {unit} {last:,}"
    where = f"in all {unit}s" if reaches_end and segment.start == part.start else where
    where = where if len(text.parts) == 1 else f"{part.name}: {where}"
    # The line before still matches, the first of the segment does not.
    rows = range(max(part.start, segment.start - 1), min(segment.start + 2, segment.end))
    sample = tuple(PairReference(text, row) for row in rows)
    if segment.shift is None:
        return Finding(
            name="unrelated_lines",
            severity="serious",
            text=text,
            summary=f"{where}, source and target do not belong together, nor does any line within {FAR_SHIFT} lines "
            f"({size})",
            advice=f"a block of more than {FAR_SHIFT} lines is missing or doubled on one side before these lines, or "
            f"they are shuffled, or one of the two was replaced: compare the lines around {first:,}, and repair the "
            "file or leave them out",
            rows=affected,
            samples=(sample,),
        )
    change = segment.shift - (before or 0)
    place = "just before" if before is not None else "in all, up to there"
    number, missing = abs(segment.shift), abs(change)
    lines = "a line" if missing == 1 else f"{missing} lines"
    more, less = ("target", "source") if change > 0 else ("source", "target")
    return Finding(
        name="shifted_lines",
        severity="serious",
        text=text,
        summary=f"{where}, the targets are shifted by {segment.shift:+d}: the translation of source line n is target "
        f"line n {'+' if segment.shift > 0 else '-'} {number} ({size})",
        advice=f"{place}, the {more} has {lines} too many, or the {less} lacks as many: look at the lines "
        f"around {first:,}, delete or insert what is wrong, and check again",
        rows=affected,
        samples=(sample,),
    )
