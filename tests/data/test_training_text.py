import random
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import TextConfig
from transduce.data.training_text import (
    FilteredPairs,
    RepetitionFinder,
    TrainingText,
    choose_held_out,
    is_blank,
    may_be_kept,
)
from transduce.errors import CorpusError
from transduce.text import Cleaner

words = st.sampled_from(["", " ", "a", "b", "c", "d e", "f"])
pair_lists = st.lists(st.tuples(words, words), max_size=30)


def has_text(pair: tuple[str, str]) -> bool:
    return not is_blank(pair)


@given(pair_lists, st.integers(1, 10), st.randoms())
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


@given(pair_lists, st.integers(1, 9))
def test_a_larger_choice_begins_with_the_smaller(corpus: list[tuple[str, str]], count: int) -> None:
    assert choose_held_out(corpus, count + 1, has_text)[:count] == choose_held_out(corpus, count, has_text)


@given(pair_lists)
def test_of_text_with_spaces_words_decide_what_is_held_out(corpus: list[tuple[str, str]]) -> None:
    cleaner, words = Cleaner(TextConfig(max_ratio=1.0, max_pieces=1)), Cleaner(TextConfig(max_ratio=1.0, max_pieces=1))
    for pair in corpus:
        expected = words.keeps(*pair, *(len(side.split()) for side in pair), is_repeated=False)
        assert may_be_kept(pair, cleaner) == may_be_kept((f">>x<< {pair[0]}", pair[1]), cleaner, (">>x<<",))
        assert may_be_kept(pair, cleaner) == expected
    assert cleaner.counts == {rule: 3 * count for rule, count in words.counts.items()}


short_words = st.sampled_from(["a", "b", "ab", "", "é"])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(short_words, short_words), max_size=40))
def test_of_equal_pairs_all_but_the_first_repeat(pairs: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        finder = RepetitionFinder(Path(folder))
        assert list(finder.record(pairs)) == pairs
        assert finder.find_repeats().tolist() == [pair in pairs[:index] for index, pair in enumerate(pairs)]


def test_repetitions_are_found_however_far_apart(tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311 nothing here is secret
    numbers = [chance.randrange(20_000) for _ in range(25_000)]
    finder = RepetitionFinder(tmp_path)
    for _ in finder.record((str(number), "x") for number in numbers):
        pass
    seen: set[int] = set()
    expected = [number in seen or bool(seen.add(number)) for number in numbers]
    assert finder.find_repeats().tolist() == expected


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for num_pairs in (10_000, 30_000):
        (tmp_path / str(num_pairs)).mkdir()
        finder = RepetitionFinder(tmp_path / str(num_pairs))
        tracemalloc.start()
        for _ in finder.record((str(number), "x") for number in range(num_pairs)):
            pass
        repeats = finder.find_repeats()
        peaks.append(tracemalloc.get_traced_memory()[1] - repeats.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


corpora = st.lists(st.lists(st.tuples(words, words), max_size=20), min_size=1, max_size=3)


@given(corpora, st.integers(1, 5))
def test_it_shares_no_side_with_what_is_held_out_and_loses_nothing_else(
    corpora: list[list[tuple[str, str]]], count: int
) -> None:
    pairs = [pair for corpus in corpora for pair in corpus]
    held_out = choose_held_out(pairs, count, has_text)
    sources, targets = {source for source, _ in held_out}, {target for _, target in held_out}
    num_pairs, filtered = [len(corpus) for corpus in corpora], FilteredPairs.make({}, len(pairs))
    training = TrainingText(corpora, num_pairs, held_out, np.zeros(len(pairs), bool), filtered)
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
    num_pairs, filtered = [len(corpus) for corpus in corpora], FilteredPairs.make({}, len(pairs))
    training = TrainingText(corpora, num_pairs, held_out, np.array(repeats, bool), filtered)
    for number in range(len(corpora)):
        before = [pair for corpus in corpora[:number] for pair in corpus]
        seen = [*before]
        for pair, again in training.iterate_corpus(number):
            assert again == (pair in seen)
            seen.append(pair)


@pytest.mark.parametrize("num_pairs", [1, 3])
def test_a_corpus_that_has_changed_is_noticed(num_pairs: int) -> None:
    filtered = FilteredPairs.make({}, num_pairs)
    training = TrainingText([[("a", "b")] * 2], [num_pairs], [], np.zeros(num_pairs, bool), filtered)
    with pytest.raises(CorpusError, match="corpus 1 of 1: has changed while it was read"):
        list(training)
