import pytest

from transduce.search import Hypothesis, length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"), [(1, 0.6, 1.0), (7, 1.0, 2.0), (7, 0.0, 1.0), (19, 0.5, 2.0), (13, 2.0, 9.0)]
)
def test_length_penalty(length: int, alpha: float, penalty: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(penalty)


def test_the_end_symbol_counts_in_the_penalty() -> None:
    hypothesis = Hypothesis.from_tokens([5, 6, 7, 8, 9, 3, 1], [-0.5, -0.5, -1.0, -1.0, -2.0, -0.5, -0.5], alpha=1.0)
    assert hypothesis.score == pytest.approx(-6.0 / 2.0)
