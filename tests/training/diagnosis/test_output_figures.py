from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.training.diagnosis import commonest_share, repetition_share, token_f1

sentences = st.lists(st.lists(st.integers(2, 9), max_size=6), min_size=1, max_size=4)


@given(sentences, st.randoms())
def test_the_order_of_tokens_does_not_matter(references: list[list[int]], random: Any) -> None:
    shuffled = [random.sample(reference, len(reference)) for reference in references]
    assert token_f1(shuffled, references) == 1.0
    assert token_f1([[1] for _ in references], references) == 0.0


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ([5, 6], [5, 7], 0.5),
        ([5, 5, 5, 5], [5, 7], 2 / 6),  # each token of the reference counts once
        ([], [5], 0.0),
        ([5], [5, 6, 7], 2 / 4),
    ],
)
def test_tokens_in_common(hypothesis: list[int], reference: list[int], expected: float) -> None:
    assert token_f1([hypothesis], [reference]) == pytest.approx(expected)
    assert token_f1([reference], [hypothesis]) == pytest.approx(expected)
    # Over all sentences, not the mean of each.
    assert token_f1([hypothesis, [8] * 10], [reference, [8] * 10]) > expected


@pytest.mark.parametrize(
    ("translations", "expected"),
    [
        (["x", "x", "x", "x"], 1.0),
        (["x", "y", "x", "z"], 0.5),
        (["w", "x", "y", "z"], 0.25),
    ],
)
def test_the_share_of_the_most_frequent_translation(translations: list[str], expected: float) -> None:
    assert commonest_share(["a", "b", "c", "d"], translations) == expected


def test_equal_sources_may_have_equal_translations() -> None:
    assert commonest_share(["a", "a", "a", "b"], ["x", "x", "x", "y"]) == 0.5
    assert commonest_share(["a"], ["x"]) == 0.0


def test_the_share_of_translations_that_repeat_themselves() -> None:
    sources = ["The article said that Iran is an exception."] * 2
    repeated = "A lokacin wani bangare na farko na farko na farko na farko na farko da aka samu."
    assert repetition_share(sources, [repeated, "Tana cewa Iran dai ta bambanta."]) == 0.5
    assert repetition_share([repeated], [repeated]) == 0.0
