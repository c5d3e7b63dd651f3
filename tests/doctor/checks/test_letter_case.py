from collections.abc import Callable

import pytest

from transduce.doctor.checks.letter_case import CASES, classify_case, find_changes_of_case
from transduce.doctor.corpus.texts import Text

Pairs = list[tuple[str, str]]


@pytest.mark.parametrize("change", [str.lower, str.upper])
@pytest.mark.parametrize(("start", "end"), [(700, 1000), (0, 300), (400, 620)])
def test_a_stretch_in_another_case_is_found_with_its_place(
    read: Callable[..., Text], invented: Callable[..., Pairs], change: Callable[[str], str], start: int, end: int
) -> None:
    pairs = invented(1000)
    pairs[start:end] = [(source, change(target)) for source, target in pairs[start:end]]
    (finding,) = find_changes_of_case(read(pairs))
    assert finding.severity == "minor"
    assert (finding.rows[0], finding.rows[-1] + 1) == (start, end)
    assert f"from line {start + 1:,} to line {end:,}, the targets are in" in finding.summary


def test_some_lines_of_a_stretch_may_be_otherwise(read: Callable[..., Text], invented: Callable[..., Pairs]) -> None:
    pairs = invented(1000)
    pairs[500:] = [(source.lower() if row % 50 else source, target) for row, (source, target) in enumerate(pairs[500:])]
    pairs[::60] = [(source.lower(), target) for source, target in pairs[::60]]
    (finding,) = find_changes_of_case(read(pairs))
    assert abs(int(finding.rows[0]) - 500) <= 5
    assert "the sources are in lower case" in finding.summary


def test_what_may_be_right_is_left_alone(read: Callable[..., Text], invented: Callable[..., Pairs]) -> None:
    good = invented(1000)
    assert list(find_changes_of_case(read(good))) == []
    lower = [(source.lower(), target.lower()) for source, target in good]
    for pairs in (
        lower,  # text in lower case, and one side of it
        [(source, target.lower()) for source, target in good],
        [*good[:500], *lower[500:]],  # two corpora, of which one is in lower case
        [pair if row % 3 else (pair[0], pair[1].lower()) for row, pair in enumerate(good)],  # mixed everywhere
        [*good[:950], *((source, target.lower()) for source, target in good[950:])],  # too few
        [*good, *((source.split()[0].lower(), target) for source, target in good)],  # a dictionary
        [(source, "吃天大我火。" if row < 500 else "天大 ab 我火。") for row, (source, _) in enumerate(good)],
    ):
        assert list(find_changes_of_case(read(pairs))) == []


def test_the_case_of_lines_is_told() -> None:
    lines = ("Ein Haus", "ein haus.", "EIN HAUS 2", "12 %", "", "家")
    assert [CASES[classify_case(line)] for line in lines] == [
        "mixed case", "lower case", "capitals", "no case", "no case", "no case"
    ]  # fmt: skip
