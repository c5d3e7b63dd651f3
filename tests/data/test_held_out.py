from hypothesis import given
from hypothesis import strategies as st

from transduce.data.held_out import choose_held_out, is_blank

words = st.sampled_from(["", " ", "a", "b", "c", "d e", "f"])
corpora = st.lists(st.tuples(words, words), max_size=30)


def has_text(pair: tuple[str, str]) -> bool:
    return not is_blank(pair)


@given(corpora, st.integers(1, 10), st.randoms())
def test_a_choice_among_the_distinct_pairs_with_text_whatever_their_order(
    corpus: list[tuple[str, str]], count: int, random: object
) -> None:
    chosen = choose_held_out(corpus, count, has_text)
    eligible = {pair for pair in corpus if not is_blank(pair)}
    assert len(chosen) == len(set(chosen)) == min(count, len(eligible))
    assert set(chosen) <= eligible
    shuffled = corpus.copy()
    random.shuffle(shuffled)
    assert choose_held_out(shuffled, count, has_text) == chosen


@given(corpora, st.integers(1, 9))
def test_a_larger_choice_begins_with_the_smaller(corpus: list[tuple[str, str]], count: int) -> None:
    assert choose_held_out(corpus, count + 1, has_text)[:count] == choose_held_out(corpus, count, has_text)
