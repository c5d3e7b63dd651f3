import re
from collections.abc import Callable

import numpy as np

from transduce.doctor.corpus.texts import Text
from transduce.doctor.findings import (
    Finding,
    PairReference,
    format_pairs,
    mark_differences,
    mark_nothing,
    mark_pattern,
    merge_spans,
)


def marked(line: str, spans: list[tuple[int, int]]) -> list[str]:
    return [line[start:end] for start, end in spans]


def test_what_a_pattern_matches_is_marked() -> None:
    ((source, target),) = mark_pattern(re.compile("b+"), re.compile("bc"))([("abbca", "none")])
    assert (marked("abbca", source), target) == (["bbc"], [])
    assert mark_nothing([("a", "b")]) == [([], [])]
    assert merge_spans([(4, 5), (0, 2), (1, 3), (3, 4)]) == [(0, 5)]


def test_differing_words_are_marked_in_both_pairs() -> None:
    pairs = [("a dog runs", "x y"), ("a cat runs fast", "x y")]
    first, second = mark_differences(pairs)
    assert (marked(pairs[0][0], first[0]), first[1]) == (["dog"], [])
    assert (marked(pairs[1][0], second[0]), second[1]) == (["cat", "fast"], [])
    assert mark_differences([("a", "b")]) == [([], [])]


def test_a_finding_counts_its_pairs(read: Callable[..., Text]) -> None:
    text = read([("a", "b")] * 20)
    told = {"name": "a", "severity": "minor", "text": text, "summary": "b", "advice": "c"}
    finding = Finding(**told, rows=np.arange(10, 20))
    assert (finding.num_pairs, finding.share) == (10, 0.5)
    assert [sample[0].index for sample in finding.shown_samples] == [10, 12, 14, 16, 19]
    assert finding.shown_samples[0][0].place.number == 11
    assert Finding(**told, rows=np.arange(2), estimated=5).share == 0.25


def test_numbers_are_words_of_a_sentence() -> None:
    assert [format_pairs(1, 0.5), format_pairs(20, 0.00052), format_pairs(3, 1e-7)] == [
        "1 pair (50.0 %)",
        "20 pairs (0.05 %)",
        "3 pairs (below 0.01 %)",
    ]


def test_a_reference_names_the_files_if_there_are_several(read: Callable[..., Text]) -> None:
    pairs = [("a", "b")] * 1200
    assert str(PairReference(read(pairs), 1100)) == "training, line 1,101"
    assert str(PairReference(read(pairs, second=pairs), 1201)) == "training, second, line 2"
