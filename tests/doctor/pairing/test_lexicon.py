from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.pairing import lexicon as module
from transduce.doctor.pairing.lexicon import Lexicon


def fit(text: Text, vocabulary: Vocabulary) -> Lexicon:
    rows = np.arange(len(text))
    return Lexicon(text.source, text.target, vocabulary.stems, vocabulary.num_stems, rows, rows)


def test_translations_agree_and_other_lines_do_not(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    text = read(invented(2000))
    rows = np.arange(len(text))
    lexicon = fit(text, vocabulary)
    related, unrelated = lexicon.score(rows, rows), lexicon.score(rows, np.roll(rows, 700))
    assert np.nanquantile(related, 0.05) > np.nanquantile(unrelated, 0.99)
    assert np.isnan(related).mean() < 0.01


def test_a_pair_does_not_speak_for_itself(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    """Words that occur once are known to the model that has the pair, and that model does not judge it."""
    pairs = invented(500)
    text = read([*pairs, ("eins zwei drei vier fünf", "one two three four five"), pairs[0]])
    row = np.array([500])
    assert np.isnan(fit(text, vocabulary).score(row, row)).all()


@pytest.mark.parametrize("blank", [[("", "")], [("", "")] * 3])
def test_blank_lines_between_pairs_take_nothing_from_either_model(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, blank: list[tuple[str, str]]
) -> None:
    pairs = invented(1000)
    alone = fit(read(pairs), vocabulary).score(np.arange(1000), np.arange(1000))
    text = read([line for pair in pairs for line in (pair, *blank)])
    rows = np.arange(0, len(text), 1 + len(blank))
    np.testing.assert_allclose(fit(text, vocabulary).score(rows, rows), alone)


def test_of_no_pairs_nothing_is_learned(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    text = read([("", "a"), ("b", ""), ("eins zwei drei vier fünf", "one two three four five")])
    rows = np.arange(len(text))
    assert np.isnan(fit(text, vocabulary).score(rows, rows)).all()


@pytest.mark.parametrize("cells", [10, 10**9])
def test_scores_do_not_depend_on_their_neighbours(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read([*invented(300), ("", "a"), ("a", ""), *invented(100, seed=2)])
    lexicon = fit(text, vocabulary)
    rows = np.arange(len(text))
    expected = lexicon.score(rows, rows)
    monkeypatch.setattr(module, "CELLS_AT_A_TIME", cells)
    order = np.random.default_rng(1).permutation(len(text))
    np.testing.assert_allclose(lexicon.score(order, order), expected[order], rtol=1e-12)
    assert lexicon.score(rows[:0], rows[:0]).tolist() == []
    assert np.isnan(expected[300:302]).all()


def test_names_and_numbers_speak_for_a_pair(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    names = [f"Xu{row % 40}zo Ya{row % 41}ze" for row in range(800)]
    pairs = [
        (f"{name} {source}", f"{name} {target}") for name, (source, target) in zip(names, invented(800), strict=True)
    ]
    text = read([*pairs, ("Xu1zo Ya1ze banana", "Xu1zo Ya1ze"), (pairs[0][0], pairs[1][1])])
    lexicon = fit(text, vocabulary)
    rows = np.arange(800)
    with_names = lexicon.score(rows, rows)
    other_names = lexicon.score(rows, np.roll(rows, 400))
    assert np.nanmin(with_names) > np.nanmedian(other_names)


def test_a_lexicon_judges_other_text(read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary) -> None:
    training, test = read(invented(2000)), read(invented(200, seed=2), "test")
    lexicon = fit(training, vocabulary).for_lines(test.source, test.target)
    rows = np.arange(200)
    assert np.nanmedian(lexicon.score(rows, rows)) > 1 > np.nanmedian(lexicon.score(rows, np.roll(rows, 50)))


def test_long_lines_are_cut_and_large_texts_thinned(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CELLS", 20_000)
    pairs = invented(1000)
    long = " ".join(source for source, _ in pairs), " ".join(target for _, target in pairs)
    text = read([*pairs, long])
    rows = np.arange(len(text))
    agreement = fit(text, vocabulary).score(rows, rows)
    assert np.isfinite(agreement).mean() > 0.9
    assert np.nanmedian(agreement) > 0
