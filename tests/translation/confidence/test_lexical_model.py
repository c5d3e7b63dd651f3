import math
from collections import defaultdict

import pytest

from transduce.translation.confidence.lexical_model import NULL, LexicalModel

WordPairs = list[tuple[list[str], list[str]]]
HOUSE: WordPairs = [
    (["the", "house"], ["das", "haus"]),
    (["the", "book"], ["das", "buch"]),
    (["a", "book"], ["ein", "buch"]),
]


def probability(model: LexicalModel, target: str, source: str) -> float:
    return model.probabilities.get((source, target), 0.0)


def log_likelihood(pairs: WordPairs, model: LexicalModel) -> float:
    """Brown et al. 1993, eq. 6, with the number of target words given: every source word may be meant, or none."""
    return sum(
        math.log(sum(probability(model, word, source) for source in (NULL, *sources)) / (len(sources) + 1))
        for sources, targets in pairs
        for word in targets
    )


def by_hand(pairs: WordPairs, iterations: int) -> dict[tuple[str, str], float]:
    """EM as the paper writes it, count by count (Brown et al. 1993, eq. 11 to 15)."""
    t: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for sources, targets in pairs:
            for target in targets:
                everything = sum(t[source, target] for source in (NULL, *sources))
                for source in (NULL, *sources):
                    counts[source, target] += t[source, target] / everything
                    totals[source] += t[source, target] / everything
        t = defaultdict(float, {entry: count / totals[entry[0]] for entry, count in counts.items()})
    return t


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_it_is_em_count_by_count(iterations: int) -> None:
    pairs = [*HOUSE, (["the", "the", "house"], ["haus"]), ([], ["buch"]), (["book"], []), ([], [])]
    expected = by_hand(pairs, iterations)
    found = LexicalModel.fit(pairs, iterations)
    assert set(found.probabilities) == set(expected)
    for (source, target), value in expected.items():
        assert probability(found, target, source) == pytest.approx(value)


def test_probabilities_of_a_source_word_sum_to_one() -> None:
    totals: dict[str, float] = defaultdict(float)
    for (source, _), value in LexicalModel.fit(HOUSE).probabilities.items():
        totals[source] += value
    assert set(totals) == {NULL, "the", "house", "book", "a"}
    assert list(totals.values()) == pytest.approx([1.0] * 5)


def test_no_iteration_lowers_the_likelihood() -> None:
    likelihoods = [log_likelihood(HOUSE, LexicalModel.fit(HOUSE, iterations)) for iterations in range(1, 12)]
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[-1] > likelihoods[0] + 0.5


def test_words_that_go_together_are_found() -> None:
    model = LexicalModel.fit(HOUSE, 20)
    for source, target in [("the", "das"), ("book", "buch"), ("house", "haus"), ("a", "ein")]:
        best = max(["das", "haus", "buch", "ein"], key=lambda word: probability(model, word, source))
        assert best == target
    table = model.make_table(["the", "a", "never"], ["haus", "das"])
    assert table.shape == (3, 2)
    assert table[0].tolist() == [probability(model, "haus", "the"), probability(model, "das", "the")]
    assert table[1:].tolist() == [[0, 0], [0, 0]]  # words that were never in one pair
    assert model.make_table([], ["haus"]).shape == (0, 1)
    assert model.make_table(["the"], []).shape == (1, 0)


def test_nothing_teaches_nothing() -> None:
    assert LexicalModel.fit([]).probabilities == {}
    assert LexicalModel.fit([(["a"], [])]).probabilities == {}
