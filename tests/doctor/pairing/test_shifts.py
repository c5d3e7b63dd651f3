import random
from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.findings import sort_reported_findings
from transduce.doctor.pairing.agreement import learn_agreement, measure_relatedness
from transduce.doctor.pairing.shifts import Segment, ShiftTracker, find_shifts

NUM_PAIRS = 3000


@pytest.fixture
def track(read: Callable[..., Text], vocabulary: Vocabulary) -> Callable[..., list[tuple[int, int, int | None]]]:
    """The segments of sources and targets."""

    def run(sources: list[str], targets: list[str]) -> list[tuple[int, int, int | None]]:
        text = read(list(zip(sources, targets, strict=True)))
        agreement = learn_agreement(text, measure_relatedness(text), vocabulary)
        assert agreement is not None
        rows = np.arange(len(text))
        tracker = ShiftTracker(text.parts[0], agreement, agreement.lexicon.score(rows, rows))
        return [(segment.start, segment.end, segment.shift) for segment in tracker.find_segments()]

    return run


@pytest.fixture
def sides(invented: Callable) -> tuple[list[str], list[str]]:
    sources, targets = zip(*invented(NUM_PAIRS), strict=True)
    return list(sources), list(targets)


def test_a_good_text_is_one_segment(track: Callable, sides: tuple[list[str], list[str]]) -> None:
    assert track(*sides) == [(0, NUM_PAIRS, 0)]


@pytest.mark.parametrize("line", [30, 1234, 2900])
def test_a_missing_line_is_found_exactly(track: Callable, sides: tuple[list[str], list[str]], line: int) -> None:
    sources, targets = sides
    last = NUM_PAIRS - 1
    assert track(sources[:-1], targets[:line] + targets[line + 1 :]) == [(0, line, 0), (line, last, -1)]
    assert track(sources[:line] + sources[line + 1 :], targets[:-1]) == [(0, line, 0), (line, last, 1)]


@pytest.mark.parametrize("shift", [1, -1, 3, -20, 80])
def test_a_shift_in_a_part_is_found_exactly(track: Callable, sides: tuple[list[str], list[str]], shift: int) -> None:
    sources, targets = sides
    part = np.roll(np.array(targets[1000:1600], object), shift).tolist()
    found = track(sources, [*targets[:1000], *part, *targets[1600:]])
    # At one end of the part are lines that belong to its other end.
    inner = (1000, 1600)
    assert found[0] == (0, inner[0], 0)
    assert found[-1] == (inner[1], NUM_PAIRS, 0)
    assert {segment[2] for segment in found[1:-1]} <= {shift, None}
    assert sum(end - start for start, end, found_shift in found if found_shift == shift) >= 600 - 2 * abs(shift)


def test_shifts_add_up(track: Callable, sides: tuple[list[str], list[str]]) -> None:
    sources, targets = sides
    missing = [500, 1100, 1150, 2500]
    kept = [target for row, target in enumerate(targets) if row not in missing]
    found = track(sources[: len(kept)], kept)
    assert found == [
        (0, 500, 0),
        (500, 1099, -1),
        (1099, 1148, -2),
        (1148, 2497, -3),
        (2497, len(kept), -4),
    ]


def test_a_shuffled_part_is_unrelated(track: Callable, sides: tuple[list[str], list[str]]) -> None:
    sources, targets = sides
    shuffled = random.Random(1).sample(targets[1000:1300], 300)  # noqa: S311 - nothing here is secret
    assert track(sources, [*targets[:1000], *shuffled, *targets[1300:]]) == [
        (0, 1000, 0),
        (1000, 1300, None),
        (1300, NUM_PAIRS, 0),
    ]


def test_the_whole_text_may_be_shifted(track: Callable, sides: tuple[list[str], list[str]]) -> None:
    sources, targets = sides
    assert track(sources[2:], targets[:-2]) == [(0, NUM_PAIRS - 2, 2)]


def test_single_wrong_pairs_are_no_shift(track: Callable, sides: tuple[list[str], list[str]]) -> None:
    sources, targets = sides
    for row in range(0, NUM_PAIRS, 7):
        targets[row] = targets[(row + 1500) % NUM_PAIRS]
    assert track(sources, targets) == [(0, NUM_PAIRS, 0)]


def test_findings_name_the_place(read: Callable[..., Text]) -> None:
    text = read([("a", "b")] * 100, second=[("c", "d")] * 100)
    segments = [
        Segment(0, 40, 0),
        Segment(40, 60, -2),
        Segment(60, 100, 0),
        Segment(100, 150, None),
        Segment(150, 199, 1),
    ]
    found = list(find_shifts(text, segments))
    assert [finding.name for finding in found] == ["shifted_lines", "unrelated_lines", "shifted_lines"]
    assert "training: from line 41 to line 60, the targets are shifted by -2" in found[0].summary
    assert "source line n is target line n - 2 (20 pairs (10.0 %))" in found[0].summary
    assert "just before, the source has 2 lines too many, or the target lacks as many" in found[0].advice
    assert [pair.index for pair in found[0].samples[0]] == [39, 40, 41]
    assert "second: from line 1 to line 50, source and target do not belong together" in found[1].summary
    assert "second: from line 51 on, the targets are shifted by +1" in found[2].summary
    assert "in all, up to there, the target has a line too many, or the source lacks as many" in found[2].advice
    assert found[2].rows.tolist() == [*range(150, 199)]
    # The first shift has to be repaired first, also if others are longer.
    assert [finding.rows[0] for finding in sort_reported_findings(found)] == [40, 100, 150]
