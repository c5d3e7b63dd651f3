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
from transduce.doctor.grouping import group_pairs
from transduce.text import Cleaner, Tokenizer

Rows = Int64[np.ndarray, " rows"]

LEAKAGE_FILTERS = {"leakage", "near_leakage"}
"""The filters that compare training text with validation text."""


@dataclass(frozen=True)
class TrainingEstimate:
    """Estimates of how many pairs training keeps, and how many each filter would leave out."""

    num_kept: int
    """About how many pairs its own rules keep (`[text]`)."""
    filters: Mapping[str, int]
    """About how many of them each filter (`data.filters`) would leave out, the most first; without those that would
    leave out none."""


def estimate_training(
    findings: Sequence[Finding],
    near_duplicates: Mapping[str, NearDuplicates],
    leakage: Leakage | None,
    training: Text,
    config: TextConfig,
    sample: Mapping[int, bool],
) -> TrainingEstimate:
    """Estimate how many pairs training keeps, and how many of them each filter would leave out.

    No pair is kept if training refuses the text (`is_refused`).
    The arguments are those of `find_filtered`, the rules of cleaning, and what `judge_sample` returns.
    """
    if is_refused(findings):
        return TrainingEstimate(num_kept=0, filters={})
    is_kept = np.ones(len(training), bool)
    is_kept[find_repeats(hash_pairs(training))[0] if config.drop_duplicates else []] = False
    is_kept[~training.has_text] = False
    if config.drop_copies:
        is_kept[training.is_exact_copy] = False
    for finding in findings:
        if finding.text is training and finding.name == "control_characters":
            is_kept[finding.rows] = False
    sampled, is_judged_good = np.array(list(sample), np.int64), np.array(list(sample.values()), bool)
    num_before = int(is_kept[sampled].sum())
    kept = sampled[is_kept[sampled] & is_judged_good]
    num_kept = round(int(is_kept.sum()) * len(kept) / max(1, num_before))
    is_kept[sampled[~is_judged_good]] = False
    filters = {}
    for name in get_args(FilterName):
        rows = find_filtered(name, findings, near_duplicates, leakage, training)
        found = [one for one in findings if one.text is training and one.name == name == "other_language"]
        estimated = sum(one.estimated or 0 for one in found)
        filters[name] = estimated or int(is_kept[rows].sum())
    return TrainingEstimate(
        num_kept=num_kept,
        filters={name: count for name, count in sorted(filters.items(), key=lambda item: -item[1]) if count},
    )


def is_refused(findings: Sequence[Finding]) -> bool:
    """Whether training refuses the corpus, because source and target differ in number of lines.

    Those of the test text may differ, as training does not read it.
    """
    return any(finding.name == "unequal_files" and finding.text.name != "test" for finding in findings)


def judge_sample(
    sample: Mapping[int, tuple[str, str]], tokenizer: Tokenizer | None, config: TextConfig
) -> dict[int, bool]:
    """Whether training keeps each pair of a sample by its own rules, but for the one on repetitions.

    These rules limit the number of pieces (`text.max_pieces`, `text.max_ratio`); without a tokenizer, all are kept.
    """
    if tokenizer is None:
        return dict.fromkeys(sample, True)
    cleaner = Cleaner(config)
    sources, targets = zip(*sample.values(), strict=True)
    pieces = zip(tokenizer.encode_all(sources), tokenizer.encode_targets(targets), strict=True)
    return {
        row: cleaner.keeps(*pair, *map(len, ids), is_repeated=False)
        for (row, pair), ids in zip(sample.items(), pieces, strict=True)
    }


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
        return find_later_duplicates(near_duplicates, training)
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


def find_later_duplicates(near: Mapping[str, NearDuplicates], training: Text) -> Rows:
    """All pairs but the first of each group of pairs that differ by at most one word on both sides (`group_pairs`).

    Groups have only pairs both of whose lines are near to another, different line, as in `find_near_duplicates`.
    """
    rows = np.flatnonzero(near["source"].is_near & near["target"].is_near)
    return rows[group_pairs(training, rows) < np.arange(len(rows))]
