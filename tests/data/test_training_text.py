import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.held_out import choose_held_out, is_blank
from transduce.data.training_text import TrainingText
from transduce.errors import CorpusError

words = st.sampled_from(["", " ", "a", "b", "c", "d e", "f"])
corpora = st.lists(st.lists(st.tuples(words, words), max_size=20), min_size=1, max_size=3)


def has_text(pair: tuple[str, str]) -> bool:
    return not is_blank(pair)


@given(corpora, st.integers(1, 5))
def test_it_shares_no_side_with_what_is_held_out_and_loses_nothing_else(
    corpora: list[list[tuple[str, str]]], count: int
) -> None:
    pairs = [pair for corpus in corpora for pair in corpus]
    held_out = choose_held_out(pairs, count, has_text)
    sources, targets = {source for source, _ in held_out}, {target for _, target in held_out}
    training = TrainingText(corpora, [len(corpus) for corpus in corpora], held_out, np.zeros(len(pairs), bool))
    assert list(training) == list(training)
    left_out = [pair for pair in pairs if pair[0] in sources or pair[1] in targets]
    assert sorted([*training, *left_out]) == sorted(pairs)
    assert not {source for source, _ in training} & sources
    assert not {target for _, target in training} & targets


@given(corpora)
def test_every_pair_keeps_its_mark_of_repetition(corpora: list[list[tuple[str, str]]]) -> None:
    pairs = [pair for corpus in corpora for pair in corpus]
    repeats = [pair in pairs[:index] for index, pair in enumerate(pairs)]
    held_out = choose_held_out(pairs, 1, has_text)
    training = TrainingText(corpora, [len(corpus) for corpus in corpora], held_out, np.array(repeats, bool))
    for number in range(len(corpora)):
        before = [pair for corpus in corpora[:number] for pair in corpus]
        seen = [*before]
        for pair, again in training.of(number):
            assert again == (pair in seen)
            seen.append(pair)


@pytest.mark.parametrize("num_pairs", [1, 3])
def test_a_corpus_that_has_changed_is_noticed(num_pairs: int) -> None:
    training = TrainingText([[("a", "b")] * 2], [num_pairs], [], np.zeros(num_pairs, bool))
    with pytest.raises(CorpusError, match="corpus 1 of 1: has changed while it was read"):
        list(training)
