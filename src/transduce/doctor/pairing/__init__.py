"""Whether source and target belong together: the text as a whole, stretches of it, single pairs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.findings import Finding
from transduce.doctor.pairing.agreement import Agreement, learn_agreement, measure_relatedness, transfer_agreement
from transduce.doctor.pairing.mispairing import Mispairing, find_mispaired, find_unrelated_text, measure_mispairing
from transduce.doctor.pairing.shifts import Segment, ShiftTracker, find_shifts

MAX_POINTS = 120
"""Points of the curve of agreement over the text."""


@dataclass(frozen=True)
class PairingResult:
    """What was found out about the pairs of a text."""

    text: str
    findings: tuple[Finding, ...]
    agreement: Agreement | None
    """How single pairs are judged; None if they cannot be."""
    segments: tuple[Segment, ...]
    """Stretches with their shifts."""
    mispairing: Mispairing | None
    curves: dict[str, list[tuple[float, float]]]
    """Mean agreement of neighbouring pairs by line: of pairs as they are, and with the shifts that were found."""


def check_pairing(
    text: Text, learned: Agreement | None, vocabulary: Vocabulary, is_swapped: Bool[np.ndarray, " pairs"]
) -> PairingResult:
    """Find pairs of a text whose source and target are no translations of each other.

    Args:
        text: the text.
        learned: what was learned from the training text; None to learn from `text` itself.
        vocabulary: its words.
        is_swapped: pairs whose sides are swapped, which cannot be judged by their words.
    """
    relatedness = measure_relatedness(text)
    unrelated = tuple(find_unrelated_text(text, relatedness))
    if learned is None:
        agreement = learn_agreement(text, relatedness, vocabulary)
    else:
        agreement = transfer_agreement(learned, text, relatedness)
    if agreement is None or not agreement.is_reliable:
        return PairingResult(text.name, unrelated, None, (), None, {})
    rows = np.arange(len(text))
    same = agreement.lexicon.score(rows, rows)
    trackers = [ShiftTracker(part, agreement, same) for part in text.parts]
    segments = [segment for tracker in trackers for segment in tracker.find_segments()]
    is_excluded = is_swapped.copy()
    for segment in segments:
        is_excluded[segment.start : segment.end] |= segment.shift != 0
    mispairing = measure_mispairing(agreement, same, is_excluded)
    findings = (*unrelated, *find_shifts(text, segments), *find_mispaired(text, mispairing))
    return PairingResult(
        text.name, findings, agreement, tuple(segments), mispairing, _draw_curves(agreement, same, segments)
    )


def _draw_curves(
    agreement: Agreement, same: Float64[np.ndarray, " pairs"], segments: list[Segment]
) -> dict[str, list[tuple[float, float]]]:
    curves = {"same line": list(_average(same))}
    if any(segment.shift for segment in segments):
        shifted = same.copy()
        for segment in segments:
            if segment.shift:
                rows = np.arange(segment.start, segment.end)
                rows = rows[rows + abs(segment.shift) < len(same)]
                sources, targets = rows + max(-segment.shift, 0), rows + max(segment.shift, 0)
                shifted[rows] = agreement.lexicon.score(sources, targets)
        curves["with the shifts found"] = list(_average(shifted))
    return curves


def _average(values: Float64[np.ndarray, " pairs"]) -> Iterator[tuple[float, float]]:
    """The means of groups of neighbouring pairs, with the number of the middle one."""
    for rows in np.array_split(np.arange(len(values)), min(MAX_POINTS, len(values))):
        known = values[rows][~np.isnan(values[rows])]
        if len(known):
            yield float(rows[len(rows) // 2] + 1), float(known.mean())
