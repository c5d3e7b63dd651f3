import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from transduce.errors import UserError
from transduce.translation.minimum_bayes_risk import rank_candidates

TEXTS = st.one_of(st.text(st.sampled_from("ab \N{LATIN SMALL LETTER U WITH DIAERESIS}c."), max_size=12), st.text())


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_utilities_are_the_mean_chrf_of_sacrebleu(candidates: list[str]) -> None:
    chrf = CHRF()
    found = rank_candidates(candidates)
    for text, utility in found.items():
        scores = [chrf.sentence_score(text, [reference]).score for reference in candidates]
        assert utility == pytest.approx(sum(scores) / len(scores), abs=1e-9)
    assert set(found) == set(candidates)
    assert list(found.values()) == sorted(found.values(), reverse=True)


@given(st.lists(TEXTS, min_size=1, max_size=5), st.data())
def test_the_order_of_the_candidates_decides_ties_alone(candidates: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(candidates))
    assert rank_candidates(shuffled) == pytest.approx(rank_candidates(candidates))


def test_of_equal_ones_the_first_comes_first() -> None:
    # chrF knows no spaces: for it, all of these are one text.
    candidates = ["abc d", "ab cd", "a bcd", "abcd"]
    assert list(rank_candidates(candidates)) == candidates
    assert list(rank_candidates(candidates[::-1])) == candidates[::-1]


def test_what_most_agree_with_is_chosen_and_not_what_was_said_most_often() -> None:
    candidates = ["cats sleep", "cats sleep", "a dog runs", "the dog ran", "the dog runs"]
    assert next(iter(rank_candidates(candidates))) == "the dog runs"


def test_a_text_that_was_drawn_often_counts_as_often() -> None:
    assert next(iter(rank_candidates(["one", "two", "two"]))) == "two"
    assert next(iter(rank_candidates(["one", "one", "two"]))) == "one"


@pytest.mark.parametrize(("only", "utility"), [("a dog", 100.0), ("", 0.0), ("   ", 0.0)])
def test_a_single_candidate_is_chosen(only: str, utility: float) -> None:
    assert rank_candidates([only]) == {only: pytest.approx(utility)}


def test_without_candidates_there_is_nothing_to_choose() -> None:
    with pytest.raises(UserError, match="at least one"):
        rank_candidates([])


def test_the_memory_does_not_grow_with_ngrams_that_one_text_has_alone() -> None:
    chance = np.random.default_rng(1)
    candidates = ["".join(map(chr, chance.integers(0x4E00, 0x9000, 170))) for _ in range(150)]
    tracemalloc.start()
    try:
        rank_candidates(candidates)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60e6  # with a number for each n-gram of each text, twice 30 MB more for each of six lengths


def test_many_samples_take_little_time() -> None:
    text = "a man in a brown shirt and his dog walk along the busy street beside an old house while it rains and snows "
    candidates = [text[start:] + text[:start] * 2 for start in range(32)]
    assert len(set(candidates)) == 32
    started = time.thread_time()
    rank_candidates(candidates)
    assert time.thread_time() - started < 1.0  # 0.03 s on a machine that has nothing else to do
