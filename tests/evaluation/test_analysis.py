"""What a comparison shows of systems: classes, phrases and sentences add up to the texts that they come from."""

import tracemalloc
from collections import Counter
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.evaluation import SystemOutput, TestSet, analyse, compare_systems, mark_shared, score_corpus
from transduce.evaluation.analysis import (
    count_words,
    find_phrase_differences,
    find_sentence_differences,
    score_by_frequency,
    score_by_length,
    split_words,
)

REFERENCES = [*["a small dog runs"] * 10, *[" ".join(["a long sentence of many words"] * 3)] * 12]
TEST_SET = TestSet("t", [f"source {index}" for index in range(22)], [REFERENCES])
BASELINE = SystemOutput("baseline", ["a small cat runs"] * 10 + REFERENCES[10:])
SYSTEM = SystemOutput("system", REFERENCES[:10] + ["a long sentence"] * 12)


def test_scores_by_length_are_those_of_the_lines_of_that_length() -> None:
    found = score_by_length(TEST_SET, [BASELINE, SYSTEM], "13a")
    assert found.names == ["0-9", "10-19"]
    assert found.counts == [10, 12]
    (expected,) = score_corpus(BASELINE.hypotheses[:10], REFERENCES[:10], ["bleu"])
    assert found.values[0] == pytest.approx((expected.value, 100.0))
    assert found.values[1][0] == pytest.approx(100.0)
    assert found.values[1][1] < 50


def test_classes_with_few_sentences_are_left_out() -> None:
    few = TestSet("t", ["s"] * 9, [["one two"] * 9])
    assert score_by_length(few, [SystemOutput("a", ["one"] * 9)], "13a").names == []


def test_words_are_right_as_often_as_both_have_them() -> None:
    frequencies = Counter({"a": 50, "small": 3, "dog": 1, "runs": 3, "cat": 1})
    test_set = TestSet("t", ["s"] * 10, [["a small dog runs"] * 10])
    found = score_by_frequency(test_set, [SystemOutput("a", ["a small cat runs runs"] * 10)], "13a", frequencies)
    assert found.names == ["1", "2-4", "10-99"]
    assert found.counts == [10, 20, 10]
    # Once: "dog" is missing and "cat" is wrong. Often: "runs" is there once too often.
    assert found.values == [[0.0, pytest.approx(200 * 20 / (20 + 30)), 100.0]]


def test_of_several_references_the_nearest_counts() -> None:
    test_set = TestSet("t", ["s"] * 10, [["a b c"] * 10, ["d e f"] * 10])
    found = score_by_frequency(test_set, [SystemOutput("a", ["d e f"] * 10)], "13a", Counter())
    assert found.values == [[100.0]]


def test_what_any_reference_has_is_right() -> None:
    first, second = ["ein Hund läuft schnell"] * 10, ["ein schneller Hund rennt"] * 10
    test_set = TestSet("t", ["s"] * 10, [first, second])
    assert mark_shared(second[0], [first[0], second[0]]) == [(second[0], True)]
    baseline, system = SystemOutput("one", ["ein Hund steht"] * 10), SystemOutput("other", second)
    better, worse = find_phrase_differences(test_set, baseline, system, "13a")
    assert [(one.phrase, one.baseline, one.value, one.total) for one in better] == [(second[0], 0, 10, 10)]
    assert [(one.phrase, one.baseline, one.value) for one in worse] == [("ein Hund", 10, 0)]
    comparison = compare_systems(test_set, [baseline, system])
    assert analyse(comparison).by_frequency.names == ["10-99"], "every word is in one of the references"


def test_phrases_are_those_that_make_the_difference() -> None:
    better, worse = find_phrase_differences(TEST_SET, BASELINE, SYSTEM, "13a")
    assert (better[0].phrase, better[0].baseline, better[0].value, better[0].total) == ("a small dog runs", 0, 10, 10)
    # A part of it says nothing more.
    assert not {"small dog", "dog"} & {one.phrase for one in better}
    assert all(one.baseline > one.value for one in worse)


def test_sentences_are_ordered_by_how_much_they_differ() -> None:
    better, worse = find_sentence_differences(TEST_SET, BASELINE, SYSTEM, max_count=3)
    assert [one.score - one.baseline_score > 0 for one in better] == [True] * 3
    assert [one.score - one.baseline_score < 0 for one in worse] == [True] * 3
    assert better[0].baseline == "a small cat runs"
    assert {one.line for one in worse} <= set(range(11, 23))
    same, _ = find_sentence_differences(TEST_SET, BASELINE, BASELINE)
    assert same == []


def test_words_are_those_of_bleu() -> None:
    assert split_words(["Yes, a dog!", ""], "13a") == [["Yes", ",", "a", "dog", "!"], []]
    assert split_words(["猫が好き"], "char") == [["猫", "が", "好", "き"]]


def test_words_are_counted_line_by_line() -> None:
    lines = iter([*REFERENCES, ""])
    assert count_words(lines, "13a") == Counter(word for words in split_words(REFERENCES, "13a") for word in words)


def test_words_of_a_long_text_are_not_kept() -> None:
    tracemalloc.start()
    try:
        assert count_words(repeat("a small dog runs " * 5, 10_000), "13a")["dog"] == 50_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@given(st.text("ab c", max_size=20), st.text("ab c", max_size=20))
def test_marked_pieces_are_the_text(translation: str, reference: str) -> None:
    pieces = mark_shared(translation, [reference])
    assert "".join(text for text, _ in pieces) == translation
    assert all(text for text, _ in pieces)
    if translation == reference:
        assert not any(text.strip() and not is_shared for text, is_shared in pieces)
