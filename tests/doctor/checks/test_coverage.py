from collections.abc import Callable

import pytest

from transduce.doctor.checks.coverage import find_unknown_words, measure_coverage
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary


def test_words_and_sequences_are_looked_up(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    training = read([("a b c d", "x"), ("c a b", "x"), ("e", "x"), ("", "x")])
    test = read([("a b c e", "x"), ("b f f", "x"), ("", "x"), ("c d", "x")], "test")
    coverage = measure_coverage(test, training, "source", vocabulary)
    # a-b, b-c, c-d of a-b, b-c, c-e, b-f, f-f, c-d; a-b-c of a-b-c, b-c-e, b-f-f
    assert coverage.known == pytest.approx([7 / 9, 3 / 6, 1 / 3])
    assert coverage.most_frequent_unknown == ["f"]
    assert coverage.expected == pytest.approx(1 - 2 / 8)  # d and e occur once
    assert measure_coverage(training, training, "source", vocabulary).known == [1.0, 1.0, 1.0]


def test_one_word_has_no_sequences(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    text = read([("a", "x")])
    assert measure_coverage(text, text, "source", vocabulary).known == [1.0, 1.0, 1.0]


def test_text_of_another_kind_is_found(read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary) -> None:
    training, same = read(invented(2000)), read(invented(200, seed=2), "validation")
    pairs = [
        (f"{source} {' '.join(f'gugu{row}{number}' for number in range(3))}", target)
        for row, (source, target) in enumerate(invented(200, seed=2))
    ]
    other = read(pairs, "test")
    for text, expected in ((same, []), (other, ["unknown_words"])):
        coverage = measure_coverage(text, training, "source", vocabulary)
        found = list(find_unknown_words(text, coverage, training, vocabulary))
        assert [finding.name for finding in found] == expected
    assert found[0].num_pairs == 200
    assert any(word.startswith("gugu") for word in coverage.most_frequent_unknown)


def test_text_of_the_same_kind_is_as_well_covered_as_expected(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    training, more = read(invented(300)), read(invented(300, seed=2), "test")
    coverage = measure_coverage(more, training, "source", vocabulary)
    assert coverage.known[0] == pytest.approx(coverage.expected, abs=0.02)
