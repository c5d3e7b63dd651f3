from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.pairing.sides import (
    compare_frequencies,
    find_copies,
    find_misplaced_lines,
    find_partly_untranslated,
    measure_sides,
)


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_swapped_pairs_are_found(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, share: float
) -> None:
    pairs = invented(2000)
    rows = np.random.default_rng(1).permutation(2000)[: round(2000 * share)]
    for row in rows:
        pairs[row] = pairs[row][::-1]
    text = read(pairs)
    (finding,) = find_misplaced_lines(text, measure_sides(text, text, vocabulary))
    assert finding.name == "swapped_pairs"
    assert set(finding.rows.tolist()) <= set(rows.tolist())
    assert finding.num_pairs >= 0.95 * len(rows)


def test_lines_in_the_language_of_the_other_side_are_found(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, names: Callable
) -> None:
    pairs = invented(2000)
    for row in range(20):
        pairs[row] = pairs[row][0], pairs[row + 1000][0]
        pairs[row + 20] = pairs[row + 1020][1], pairs[row + 20][1]
        pairs[row + 40] = pairs[row + 40][0], pairs[row + 40][0]
    text = read(pairs)
    found = list(find_misplaced_lines(text, measure_sides(text, text, vocabulary)))
    assert names(found) == ["source_in_language_of_targets", "target_in_language_of_sources"]
    assert [finding.rows.tolist() for finding in found] == [[*range(20, 40)], [*range(20)]]
    assert np.flatnonzero(find_copies(text)).tolist() == [*range(40, 60)]


def test_good_text_and_one_language_on_both_sides_are_left_alone(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    for pairs in (
        invented(1000),
        [(source, " ".join(reversed(source.split()))) for source, _ in invented(1000)],
        [("12 3", "12 3")] * 5,
    ):
        text = read(pairs)
        assert list(find_misplaced_lines(text, measure_sides(text, text, vocabulary))) == []


def test_other_text_is_judged_by_the_training_text(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    training, test = read(invented(1000)), read([pair[::-1] for pair in invented(50, seed=2)], "test")
    (finding,) = find_misplaced_lines(test, measure_sides(test, training, vocabulary))
    assert (finding.name, finding.severity, finding.num_pairs) == ("swapped_pairs", "serious", 50)


def test_frequencies_are_compared_within_limits() -> None:
    ratios = compare_frequencies(np.array([1000, 0, 5, 0, -1]), np.array([0, 1000, 5, 0, 0]))
    assert ratios[0] == -ratios[1] == 3
    assert ratios[2:] == pytest.approx(0, abs=0.01)


def test_words_of_the_source_in_the_target_are_found(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    pairs = invented(1000)
    for row in range(0, 100, 10):
        pairs[row] = pairs[row][0], f"{pairs[row][1]} {' '.join(pairs[row][0].split()[:4])}"
        pairs[row + 1] = pairs[row + 1][0], f"{pairs[row + 1][1]} {' '.join(pairs[row + 500][0].split()[:4])}"
    text = read(pairs)
    found = set(find_partly_untranslated(text, text, vocabulary).tolist())
    assert found <= set(range(0, 100, 10))
    assert len(found) >= 7


def test_terms_in_chinese_characters_are_japanese_too(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    chance = np.random.default_rng(1)
    kana, shared, chinese = ([chr(first + number) for number in range(40)] for first in (0x3042, 0x4E00, 0x5000))

    def draw(*characters: list[str]) -> str:
        return "".join("".join(chance.choice(some, 4)) for some in characters)

    pairs = [(draw(kana, shared[:20], kana), draw(chinese, shared, chinese)) for _ in range(1000)]
    for row in range(20):
        pairs[row] = draw(chinese[:20]), draw(chinese)
        pairs[row + 20] = draw(*[chinese] * 8), draw(chinese, shared)
    text = read(pairs)
    found = {
        finding.name: finding.rows.tolist()
        for finding in find_misplaced_lines(text, measure_sides(text, text, vocabulary))
    }
    assert found == {"source_in_language_of_targets": [*range(20, 40)]}
