from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.checks.lengths import (
    compute_deviations,
    count_lengths,
    count_ratios,
    find_blank_lines,
    find_unequal_files,
    find_unusual_ratios,
    measure_lengths,
)
from transduce.doctor.corpus.texts import Text


def test_lengths_are_those_of_the_lines(read: Callable[..., Text]) -> None:
    text = read([(f"{'ab ' * number}c", "x") for number in range(101)])
    figures = measure_lengths(text)
    assert figures.words["source"] == [2, 6, 51, 96, 100, 101]
    assert figures.characters["target"] == [1] * 6
    assert figures.ratio[2] == pytest.approx(1 / 151, abs=0.01)
    assert sum(count_lengths(text)["source"]) == sum(count_ratios(text)["pairs"]) == 101
    assert count_lengths(text)["source"][:3] == [3, 4, 4]


def test_pairs_of_unusual_lengths_are_found(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(2000)
    rows = [*range(7, 2000, 80)]
    for row in rows:
        short = pairs[row][1].split()[0]
        pairs[row] = (pairs[row][0] * 2, short) if row % 3 else (short, pairs[row][1] * 3)
    (finding,) = find_unusual_ratios(read(pairs))
    assert set(finding.rows.tolist()) >= set(rows)
    assert len(finding.rows) <= len(rows) + 3
    assert list(find_unusual_ratios(read(invented(2000)))) == []


def test_blank_lines_have_no_unusual_length(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(1000)
    expected = compute_deviations(read(pairs))
    for row in range(0, 1000, 3):
        pairs.append((pairs[row][0], " " if row % 2 else ""))
        pairs.append((" ", pairs[row][1]))
    text = read(pairs)
    assert list(find_unusual_ratios(text)) == []
    assert compute_deviations(text).tolist() == [*expected.tolist(), *[0] * (len(pairs) - 1000)]
    assert sum(count_ratios(text)["pairs"]) == 1000


def test_what_is_usual_is_learned_from_the_text(read: Callable[..., Text], invented: Callable) -> None:
    """A language three times as long as the other is as good as any."""
    assert (
        list(find_unusual_ratios(read([(source, f"{target} {target} {target}") for source, target in invented(1000)])))
        == []
    )


def test_blank_lines_are_counted(read: Callable[..., Text]) -> None:
    (finding,) = find_blank_lines(read([("a", "b"), ("", "b"), (" \t", ""), ("a", " ")] * 5))
    assert (finding.name, finding.severity, finding.num_pairs) == ("blank_lines", "serious", 15)
    assert "10 on one side only, 5 on both" in finding.summary
    assert list(find_blank_lines(read([("a", "b")]))) == []


def test_files_of_different_length_are_named(read: Callable[..., Text]) -> None:
    text = read([("a", "b")] * 5)
    assert list(find_unequal_files(text)) == []
    path = text.parts[0].corpus.files[0]
    path.write_text("a\n" * 7, encoding="utf-8")
    part = text.parts[0]
    unequal = type(part)(part.corpus, part.name, 0, 7, part.unit, 1, (7, 5))
    (finding,) = find_unequal_files(type(text)(text.name, text.source, text.target, (unequal,), {}))
    assert (finding.severity, finding.num_pairs) == ("serious", 2)
    assert "the source has 7 lines and the target 5" in finding.summary
    assert np.array_equal(finding.rows, [5, 6])
    assert "below" not in finding.advice  # findings are sorted by severity and share
    assert "above" not in finding.advice
