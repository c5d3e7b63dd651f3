import random
from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.pairing.agreement import Agreement, learn_agreement, measure_relatedness
from transduce.doctor.pairing.mispairing import find_mispaired, find_unrelated_text, measure_mispairing


def examine(text: Text, vocabulary: Vocabulary) -> tuple[Agreement, np.ndarray]:
    agreement = learn_agreement(text, measure_relatedness(text), vocabulary)
    assert agreement is not None
    rows = np.arange(len(text))
    return agreement, agreement.lexicon.score(rows, rows)


@pytest.mark.parametrize("num_wrong", [0, 200, 900])
def test_the_number_of_wrong_pairs_is_estimated(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, num_wrong: int
) -> None:
    pairs = invented(4000)
    rows = np.random.default_rng(3).permutation(4000)[:num_wrong]
    for row, other in zip(rows, np.roll(rows, 1), strict=True):
        pairs[row] = pairs[row][0], invented(4000)[other][1]
    text = read(pairs)
    agreement, same = examine(text, vocabulary)
    found = measure_mispairing(agreement, same, np.zeros(4000, bool))
    assert found.num_judged > 3900
    assert found.estimated == pytest.approx(num_wrong, rel=0.25, abs=10)
    right = set(rows.tolist()) & set(found.rows.tolist())
    assert len(right) >= 0.9 * len(found.rows)
    assert len(right) >= 0.75 * num_wrong
    assert [finding.name for finding in find_mispaired(text, found)] == ["mispaired_lines"] * (num_wrong > 0)


def test_excluded_pairs_are_not_counted(read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary) -> None:
    pairs = invented(2000)
    for row in range(300):
        pairs[row] = pairs[row][0], invented(2000)[row + 1000][1]
    agreement, same = examine(read(pairs), vocabulary)
    is_excluded = np.arange(2000) < 300
    found = measure_mispairing(agreement, same, is_excluded)
    assert found.num_judged <= 1700
    assert found.estimated < 10
    assert not is_excluded[found.rows].any()


def test_a_shuffled_text_is_unrelated(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(1000)
    text = read(pairs)
    assert list(find_unrelated_text(text, measure_relatedness(text))) == []
    sources, targets = zip(*pairs, strict=True)
    text = read(list(zip(sources, random.Random(1).sample(targets, 1000), strict=True)))  # noqa: S311 - nothing here is secret
    (finding,) = find_unrelated_text(text, measure_relatedness(text))
    assert (finding.name, finding.severity, finding.num_pairs) == ("unrelated_text", "serious", 1000)
    for text in (
        read([(f"word{row}", f"wort{row}") for row in range(500)]),
        read([("", f"the {row}") for row in range(500)]),
    ):
        relatedness = measure_relatedness(text)
        assert relatedness.num_stretches == 0, "without frequent words on both sides nothing is known"
        assert list(find_unrelated_text(text, relatedness)) == []
    tiny = read(pairs[:50])
    assert list(find_unrelated_text(tiny, measure_relatedness(tiny))) == []
