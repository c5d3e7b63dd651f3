"""The pairs that filters leave out of training, by findings of the doctor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Int64

from transduce.config import FilterName, TextConfig
from transduce.doctor.checks.duplicates import NearDuplicates, find_repeats, hash_pairs
from transduce.doctor.checks.leakage import Leakage
from transduce.doctor.corpus.texts import Text
from transduce.doctor.findings import Finding

Rows = Int64[np.ndarray, " rows"]

LEAKAGE_FILTERS = {"leakage", "near_leakage"}
"""The filters that compare training text with validation text."""


@dataclass(frozen=True)
class Prospect:
    """What training makes of a text."""

    num_kept: int
    """About how many pairs its own rules keep (`[text]`)."""
    num_target_characters: int
    """About how many characters the targets of these have."""
    filters: Mapping[str, int]
    """About how many of them each filter (`data.filters`) would leave out, the most first; without those that would
    leave out none."""


def estimate_prospect(
    findings: Sequence[Finding],
    near_duplicates: Mapping[str, NearDuplicates],
    leakage: Leakage | None,
    training: Text,
    config: TextConfig,
) -> Prospect:
    """About how many pairs training keeps, and how many of them each filter would leave out.

    The arguments are those of `find_filtered`, and the rules of cleaning.
    """
    is_kept = np.ones(len(training), bool)
    is_kept[find_repeats(hash_pairs(training))[0] if config.drop_duplicates else []] = False
    is_kept[(training.source.num_words == 0) | (training.target.num_words == 0)] = False
    if config.drop_copies:
        is_kept[training.source.digests == training.target.digests] = False
    too_long = 0.0
    for finding in findings:
        if finding.text is training and finding.name == "control_characters":
            is_kept[finding.rows] = False
        if finding.text is training and finding.name == "too_long_lines":
            too_long = max(too_long, finding.share)
    filters = {}
    for name in get_args(FilterName):
        rows = find_filtered(name, findings, near_duplicates, leakage, training)
        estimated = [one.estimated for one in findings if one.name == name == "other_language" and one.estimated]
        filters[name] = sum(estimated) or int(is_kept[rows].sum())
    share = float(is_kept.mean()) * (1 - too_long)
    return Prospect(
        num_kept=round(share * len(training)),
        num_target_characters=round(share * int(training.target.num_characters.sum())),
        filters={name: count for name, count in sorted(filters.items(), key=lambda item: -item[1]) if count},
    )


def find_filtered(
    name: str,
    findings: Sequence[Finding],
    near_duplicates: Mapping[str, NearDuplicates],
    leakage: Leakage | None,
    training: Text,
) -> Rows:
    """The pairs of the training text that a filter leaves out.

    Args:
        name: the filter.
        findings: what was found in the training text, slight findings among them.
        near_duplicates: of the training text, by side.
        leakage: which training pairs validation text has, too; None if there is no such text.
        training: the training text.
    """
    if name == "near_duplicates":
        return find_later_duplicates(near_duplicates)
    if name in LEAKAGE_FILTERS:
        return _find_leaked(name, leakage)
    own = [finding.rows for finding in findings if finding.name == name and finding.text is training]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *own]))


def _find_leaked(name: str, leakage: Leakage | None) -> Rows:
    if leakage is None:
        return np.zeros(0, np.int64)
    if name == "leakage":
        return np.flatnonzero((leakage.source >= 0) | (leakage.target >= 0))
    return np.flatnonzero((leakage.near_source >= 0) | (leakage.near_target >= 0))


def find_later_duplicates(near: Mapping[str, NearDuplicates]) -> Rows:
    """Of pairs that differ by one word on both sides, directly or by others between them, all but the first."""
    is_near = near["source"].is_near & near["target"].is_near
    first = np.arange(len(is_near))
    edges = [
        np.stack([rows, side.partner[rows]])
        for side in near.values()
        for rows in [np.flatnonzero(is_near & (side.partner >= 0) & is_near[side.partner])]
    ]
    rows, others = np.concatenate(edges, axis=1)
    while True:
        before = first.copy()
        np.minimum.at(first, rows, before[others])
        np.minimum.at(first, others, before[rows])
        first = first[first]
        if (first == before).all():
            return np.flatnonzero(first != np.arange(len(first)))
