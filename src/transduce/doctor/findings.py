"""Findings: what a check has to say about a text, with the pairs that show it."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from re import Pattern
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Int

from transduce.doctor.corpus.texts import Place, Text
from transduce.pages import format_count, sample_evenly
from transduce.text import Pair

NUM_SAMPLES = 5
"""Samples of a finding."""

SCORES_AS_WRONG = "a right translation would score as wrong"
"""What faults do in validation and test text, from which no model learns."""

Severity: TypeAlias = Literal["serious", "minor", "slight"]
"""Serious: scores mislead, or the model learns what is wrong. Minor: worth a look. Slight: too few pairs to be
reported; `data.filters` leaves them out all the same."""


def grade(share: float, min_minor_share: float, min_serious_share: float = math.inf) -> Severity:
    """How bad a finding is that affects a share of the pairs."""
    return "serious" if share >= min_serious_share else "minor" if share >= min_minor_share else "slight"


Span = tuple[int, int]
"""The first character of a marked piece of a line, and the one behind it."""

PairMarks = tuple[list[Span], list[Span]]
"""The marked pieces of source and target."""

Marker = Callable[[Sequence[Pair]], list[PairMarks]]
"""A function from the pairs of a sample to what is marked in each."""


def mark_nothing(pairs: Sequence[Pair]) -> list[PairMarks]:
    """No marks."""
    return [([], []) for _ in pairs]


def mark_pattern(*patterns: Pattern[str]) -> Marker:
    """A function that marks what the patterns match."""

    def mark(line: str) -> list[Span]:
        return merge_spans(match.span() for pattern in patterns for match in pattern.finditer(line) if match[0])

    return lambda pairs: [(mark(source), mark(target)) for source, target in pairs]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that overlap as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


_WORD = re.compile(r"\S+")


def mark_differences(pairs: Sequence[Pair]) -> list[PairMarks]:
    """Mark the words in which each pair differs from the first pair, and in which the first differs from the second."""
    others = [pairs[min(1, len(pairs) - 1)], *[pairs[0]] * (len(pairs) - 1)]
    return [
        (_find_different_words(pair[0], other[0]), _find_different_words(pair[1], other[1]))
        for pair, other in zip(pairs, others, strict=True)
    ]


def _find_different_words(line: str, other: str) -> list[Span]:
    words = list(_WORD.finditer(line))
    matcher = SequenceMatcher(None, [word[0] for word in words], _WORD.findall(other), autojunk=False)
    return [
        (words[start].start(), words[end - 1].end())
        for kind, start, end, _, _ in matcher.get_opcodes()
        if kind != "equal" and start < end
    ]


@dataclass(frozen=True)
class PairReference:
    """A pair of one of the texts, by its index."""

    text: Text
    index: int

    @property
    def key(self) -> tuple[str, int]:
        """The name of the text, and the index there."""
        return self.text.name, self.index

    @property
    def place(self) -> Place:
        """Where it stands in the files."""
        return self.text.locate(self.index)

    def __str__(self) -> str:
        """The place in words, with the files if the text has several corpora."""
        corpus = f", {self.place.corpus}" if len(self.text.parts) > 1 else ""
        return f"{self.text.name}{corpus}, {self.place.unit} {self.place.number:,}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check has found in a text."""

    name: str
    """Name of what was found, as in "mojibake"."""
    severity: Severity
    text: Text
    """The text that it was found in."""
    summary: str
    """What is wrong, how often and where, in one sentence without a full stop."""
    advice: str
    """What to do about it."""
    rows: Int[np.ndarray, " rows"]
    """The indices of the pairs that are affected."""
    estimated: int | None = None
    """Estimated number of affected pairs, if `rows` has not all of them; otherwise None."""
    samples: tuple[tuple[PairReference, ...], ...] = ()
    """Pairs that show it; those of one sample belong together. By default, some of `rows`."""
    mark: Marker = mark_nothing
    """What is marked in the pairs of a sample."""

    @property
    def num_pairs(self) -> int:
        """Number of pairs that are affected."""
        return len(self.rows) if self.estimated is None else self.estimated

    @property
    def share(self) -> float:
        """Their share of the pairs of the text."""
        return self.num_pairs / len(self.text)

    @property
    def shown_samples(self) -> tuple[tuple[PairReference, ...], ...]:
        """`samples`, or some of the affected pairs."""
        return self.samples or choose_samples(self.text, self.rows)


def choose_samples(text: Text, rows: Int[np.ndarray, " rows"]) -> tuple[tuple[PairReference, ...], ...]:
    """Up to `NUM_SAMPLES` of some pairs, spread evenly."""
    return tuple((PairReference(text, int(rows[at])),) for at in sample_evenly(range(len(rows)), NUM_SAMPLES))


def sort_reported_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that a report shows: serious ones before minor ones, those about most pairs first in each group.

    Shifts of one text are in the order of its lines.
    """
    reported = (finding for finding in findings if finding.severity != "slight")
    by_share = sorted(reported, key=lambda finding: (finding.severity != "serious", -finding.share))
    # Shifts of a text stand together in the order of the file: the first one has to be repaired first.
    leading: dict[tuple[str, str], int] = {}
    for position, finding in enumerate(by_share):
        leading.setdefault((finding.text.name, _find_kind(finding)), position)

    def rank(finding: Finding) -> tuple[int, int]:
        return leading[finding.text.name, _find_kind(finding)], int(finding.rows.min()) if len(finding.rows) else 0

    return tuple(sorted(by_share, key=rank))


def _find_kind(finding: Finding) -> str:
    return "shifts" if finding.name in {"shifted_lines", "unrelated_lines"} else finding.name


def format_pairs(num_pairs: int, share: float) -> str:
    """A number of pairs with its share, as in "1,234 pairs (5.1 %)"."""
    percent = f"{share:.1%}" if share >= 0.001 else f"{share:.2%}" if share >= 0.0001 else "below 0.01%"
    return f"{format_count(num_pairs, 'pair')} ({percent.replace('%', ' %')})"
