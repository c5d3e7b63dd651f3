import random
from collections.abc import Callable

import numpy as np
import pytest

from transduce.config import TextConfig
from transduce.doctor.checks.duplicates import (
    MIN_COMPARED_WORDS,
    find_duplicates,
    find_near_duplicates,
    find_near_lines,
    find_repeats,
    find_several_counterparts,
)
from transduce.doctor.corpus import hashing as module
from transduce.doctor.corpus.texts import Text


def differ_by_one_word(line: str, other: str) -> bool:
    """By hand: one word is replaced, inserted or left out; or only case and punctuation differ."""
    first, second = (one.lower().replace(".", "").split() for one in (line, other))
    if min(len(first), len(second)) < MIN_COMPARED_WORDS or line == other:
        return False
    if len(first) == len(second):
        return sum(one != two for one, two in zip(first, second, strict=True)) <= 1
    short, long = sorted((first, second), key=len)
    return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


@pytest.mark.parametrize("words_at_a_time", [50, 10**6])
@pytest.mark.parametrize("letters", ["ab", "abc", "abcdefghi"])
def test_near_lines_are_exactly_those_that_differ_by_one_word(
    read: Callable[..., Text], letters: str, words_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORDS_AT_A_TIME", words_at_a_time)
    chance = random.Random(letters)  # noqa: S311 - nothing here is secret
    lines = [" ".join(chance.choices(letters, k=chance.randint(3, 8))) for _ in range(120)]
    lines += [*lines[:10], *(line.upper() for line in lines[10:15]), f"{lines[16]}."]
    found = find_near_lines(read([(line, "x") for line in lines]).source)
    expected = [any(differ_by_one_word(line, other) for other in lines) for line in lines]
    assert found.is_near.tolist() == expected
    assert any(expected)
    assert all(differ_by_one_word(lines[row], lines[found.partner[row]]) for row in np.flatnonzero(found.is_near))
    assert set(found.partner[~found.is_near].tolist()) <= {-1}


def test_repeats_are_those_after_the_first() -> None:
    repeats, first = find_repeats(np.array([3, 1, 3, 2, 1, 3]))
    assert (repeats.tolist(), first.tolist()) == ([2, 4, 5], [0, 1, 0])
    assert find_repeats(np.zeros(0, np.int64))[0].tolist() == []


@pytest.mark.parametrize(("drop", "severity"), [(True, "minor"), (False, "serious")])
def test_repeated_pairs_are_found(read: Callable[..., Text], invented: Callable, drop: bool, severity: str) -> None:
    pairs = invented(300)
    text = read([*pairs, *pairs[:60], (pairs[0][0], "another")])
    (finding,) = find_duplicates(text, TextConfig(drop_duplicates=drop))
    assert finding.rows.tolist() == [*range(300, 360)]
    assert finding.severity == severity
    assert [pair.index for pair in finding.samples[0]] == [0, 300]
    assert list(find_duplicates(read(pairs), TextConfig())) == []


def test_lines_with_several_counterparts_are_found(
    read: Callable[..., Text], invented: Callable, names: Callable
) -> None:
    pairs = invented(1000)
    boilerplate = [("click here", f"{target} {number}") for number, (_, target) in enumerate(pairs[:30])]
    several = [(pairs[number][0], pairs[number + 500][1]) for number in range(100)]
    found = list(find_several_counterparts(read([*pairs, *boilerplate, *several])))
    assert names(found) == ["repeated_sources", "source_with_several_targets", "target_with_several_sources"]
    assert found[0].rows.tolist() == [*range(1000, 1030)]
    assert found[0].summary == "30 pairs (2.7 %) have the same source, which stands beside 30 different targets"
    assert set(found[1].rows.tolist()) == {*range(100), *range(1000, 1130)}
    assert set(found[2].rows.tolist()) == {*range(500, 600), *range(1030, 1130)}
    assert list(find_several_counterparts(read(pairs))) == []


def test_repeated_lines_are_counted(read: Callable[..., Text], invented: Callable) -> None:
    pairs = [(f"click {row % 2 + row // 50}", target) for row, (_, target) in enumerate(invented(75))]
    (finding, *_) = find_several_counterparts(read(pairs))
    assert "have one of 2 sources that stand beside 20 or more" in finding.summary
    assert "the most frequent one beside 38" in finding.summary


def test_pairs_with_a_blank_line_are_no_duplicates(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(100)
    text = read([*pairs, *[("", " ")] * 30, *[("one line", "")] * 30, *[(pairs[row][0], " ") for row in range(50)]])
    assert list(find_duplicates(text, TextConfig())) == []
    assert list(find_several_counterparts(text)) == []


def test_pairs_that_are_nearly_the_same_are_found(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(2000)
    changed = [
        (source.replace(source.split()[2], "gugun", 1), target.replace(target.split()[-1], "gugos.", 1))
        for source, target in pairs[:40]
    ]
    text = read([*pairs, *changed])
    near = {name: find_near_lines(side) for name, side in text.sides.items()}
    (finding,) = find_near_duplicates(text, near)
    assert set(finding.rows.tolist()) >= {*range(40), *range(2000, 2040)}
    assert len(finding.rows) < 90
    original, similar = finding.samples[-1]
    assert similar.index == 2039
    assert original.index == 39
    clean = read(pairs)
    assert list(find_near_duplicates(clean, {name: find_near_lines(side) for name, side in clean.sides.items()})) == []
