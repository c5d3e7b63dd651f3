"""Single pairs whose lines do not belong together, and how many there are."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from transduce.doctor.corpus.texts import Text
from transduce.doctor.findings import Finding, format_pairs, grade
from transduce.doctor.pairing.agreement import Agreement, Relatedness

WANTED_PRECISION = 0.75
"""Share of the named pairs that are really unrelated, by the estimate."""

_QUANTILES = np.array([0.25, 0.5])
"""Shares of unrelated pairs below the limits at which pairs are counted."""

MIN_MISPAIRED_SHARE = 0.005
"""Share of the pairs from which unrelated ones are a finding."""

MIN_SERIOUS_SHARE = 0.01

MIN_ESTIMATED = 30
"""Estimated number of unrelated pairs below which they are no finding, as so small an estimate is unsure."""


@dataclass(frozen=True)
class Mispairing:
    """Pairs whose lines do not belong together."""

    num_judged: int
    """Pairs that could be judged: both lines have enough known words."""
    estimated: int
    """How many of them are unrelated, by the estimate."""
    rows: Int64[np.ndarray, " rows"]
    """Those whose agreement is so low that, by the estimate, three of four (`WANTED_PRECISION`) are unrelated; the
    lowest first."""


def measure_mispairing(
    agreement: Agreement, same: Float64[np.ndarray, " pairs"], is_excluded: Bool[np.ndarray, " pairs"]
) -> Mispairing:
    """Estimate how many pairs are unrelated, and name those that probably are.

    The agreement of unrelated lines is known, by lines that were put together at random. Half of the unrelated pairs
    are below its median, and a quarter below its lower quartile, where hardly a translation is; so twice the number of
    pairs below the one, or four times that below the other, are unrelated, and the estimate is the mean of the two.
    With it, the share of unrelated pairs among those below any other limit follows.

    Args:
        agreement: what is known of unrelated lines.
        same: the agreement of each pair; NaN if it cannot be judged.
        is_excluded: pairs that are not counted, as they are part of another finding.
    """
    rows = np.flatnonzero(~np.isnan(same) & ~is_excluded)
    rows = rows[np.argsort(same[rows], kind="stable")]
    unrelated = np.sort(agreement.unrelated)
    below = np.searchsorted(same[rows], np.quantile(unrelated, _QUANTILES))
    estimated = min(len(rows), round(float((below / _QUANTILES).mean())))
    # For each number of pairs from the lowest on: how many of them the estimate expects to be unrelated.
    expected = estimated * np.searchsorted(unrelated, same[rows], side="right") / max(1, len(unrelated))
    counts = np.arange(1, len(rows) + 1)
    count = int(counts[expected >= WANTED_PRECISION * counts].max(initial=0))
    return Mispairing(len(rows), estimated, rows[: min(count, estimated)])


def find_mispaired(text: Text, mispairing: Mispairing) -> Iterator[Finding]:
    """Find single pairs whose lines do not belong together."""
    share = mispairing.estimated / max(1, mispairing.num_judged)
    if not len(mispairing.rows):
        return
    is_told = mispairing.estimated >= MIN_ESTIMATED
    yield Finding(
        name="mispaired_lines",
        severity=grade(share, MIN_MISPAIRED_SHARE, MIN_SERIOUS_SHARE) if is_told else "slight",
        text=text,
        summary=f"in about {format_pairs(mispairing.estimated, share)}, source and target are no translations of each "
        f"other, by the words that translate each other elsewhere in the text; {len(mispairing.rows):,} of them are "
        "likely enough to be named",
        advice="look at the samples: if they are wrong, leave out the named pairs, which --output lists; free "
        "translations, too, can be among them",
        rows=np.sort(mispairing.rows),
        estimated=mispairing.estimated,
    )


def find_unrelated_text(text: Text, relatedness: Relatedness) -> Iterator[Finding]:
    """Find out whether a text has no stretch whose lines belong together."""
    if relatedness.num_stretches and not len(relatedness.source_rows):
        yield Finding(
            name="unrelated_text",
            severity="serious",
            text=text,
            summary="nowhere in the text do frequent words of source and target occur together more often than by "
            "chance: the lines are not translations of each other",
            advice="one of the two files was probably shuffled or sorted, or belongs to another text, or lines are "
            "missing or split in very many places: pair them again",
            rows=np.arange(len(text)),
        )
