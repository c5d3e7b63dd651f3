from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.pairing import MAX_POINTS, check_pairing


def test_a_text_is_examined_as_a_whole(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, names: Callable
) -> None:
    sources, targets = map(list, zip(*invented(4000), strict=True))
    for row in range(0, 1900, 20):
        targets[row] = targets[row + 2000]
    del targets[2000], sources[-1]
    text = read(list(zip(sources, targets, strict=True)))
    pairing = check_pairing(text, None, vocabulary, np.zeros(len(text), bool))
    assert names(pairing.findings) == ["shifted_lines", "mispaired_lines"]
    assert pairing.findings[1].num_pairs == pytest.approx(95, rel=0.3)
    assert set(pairing.findings[1].rows.tolist()) <= set(range(2000))
    assert [(segment.start, segment.shift) for segment in pairing.segments] == [(0, 0), (2000, -1)]
    same, shifted = pairing.curves["same line"], pairing.curves["with the shifts found"]
    assert len(same) == len(shifted) == MAX_POINTS
    assert [value for _, value in same][-1] < 0 < [value for _, value in shifted][-1]
    assert [line for line, _ in same] == sorted(line for line, _ in same)


@pytest.mark.parametrize(("num_pairs", "place"), [(500, 100), (1001, 500)])
def test_another_text_is_judged_by_what_was_learned(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, num_pairs: int, place: int
) -> None:
    training = read(invented(3000))
    sources, targets = zip(*invented(num_pairs, seed=2), strict=True)
    test = read(list(zip(sources[:-1], [*targets[:place], *targets[place + 1 :]], strict=True)), "test")
    learned = check_pairing(training, None, vocabulary, np.zeros(3000, bool))
    assert learned.findings == ()
    pairing = check_pairing(test, learned.agreement, vocabulary, np.zeros(num_pairs - 1, bool))
    assert [(segment.start, segment.end, segment.shift) for segment in pairing.segments] == [
        (0, place, 0),
        (place, num_pairs - 1, -1),
    ]


def test_too_little_text_is_not_judged(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    text = read([("a b c d e", "f g h i j")] * 100)
    pairing = check_pairing(text, None, vocabulary, np.zeros(100, bool))
    assert (pairing.findings, pairing.agreement, pairing.segments, pairing.curves) == ((), None, (), {})


@pytest.mark.parametrize(("num_pairs", "num_missing"), [(600, 1), (1000, 1), (3000, 1), (3000, 3), (8000, 14)])
def test_shifts_within_stretches_are_found(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, num_pairs: int, num_missing: int
) -> None:
    sources, targets = map(list, zip(*invented(num_pairs + num_missing), strict=True))
    # Of the lines between two places, in the middle of what is measured together, none stands where it belongs.
    places = [(number + 1) * num_pairs // (num_missing + 1) for number in range(num_missing)]
    for place in reversed(places):
        del targets[place]
    text = read(list(zip(sources[:num_pairs], targets, strict=True)))
    pairing = check_pairing(text, None, vocabulary, np.zeros(len(text), bool))
    found = [(segment.start, segment.shift) for segment in pairing.segments]
    assert found == [(0, 0), *((place - number, -number - 1) for number, place in enumerate(places))]
    advice = [finding.advice for finding in pairing.findings if finding.name == "shifted_lines"]
    assert len(advice) == num_missing
    assert all("the source has a line too many, or the target lacks as many" in one for one in advice)
