import random
from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.pairing.association import (
    FAR_OFFSET,
    MAX_STRETCHES,
    NEAR_OFFSET,
    STRETCH,
    choose_offset,
    choose_stretches,
    find_offset,
    measure_association_by_offset,
)


@pytest.mark.parametrize("num_pairs", [0, 199, 200, 1000, 1001, 30_000, 10**6])
def test_stretches_are_spread_over_the_text(num_pairs: int) -> None:
    stretches = choose_stretches(50, 50 + num_pairs)
    assert len(stretches) == (0 if num_pairs < 200 else min(MAX_STRETCHES, -(-num_pairs // STRETCH)))
    assert all(50 <= start < end <= 50 + num_pairs and end - start <= STRETCH for start, end in stretches)
    if num_pairs >= 1000:
        assert (stretches[0][0], stretches[-1][1]) == (50, 50 + num_pairs)


@pytest.mark.parametrize("offset", [0, 1, -1, 7, NEAR_OFFSET, -FAR_OFFSET, FAR_OFFSET])
def test_the_offset_of_the_targets_is_found(read: Callable[..., Text], invented: Callable, offset: int) -> None:
    sources, targets = zip(*invented(1200), strict=True)
    pairs = list(zip(sources, np.roll(np.array(targets, object), offset).tolist(), strict=True))
    text = read(pairs)
    for first, end in ((100, 1100), (0, 500), (900, 1200)):
        assert find_offset(text.source, text.target, first, end, (0, 1200)) == offset
        found = measure_association_by_offset(text.source, text.target, first, end, (0, 1200), FAR_OFFSET)
        assert max(found, key=lambda one: found[one]) == offset
        assert min(found.values()) < 1.2


def test_unrelated_lines_have_no_offset(read: Callable[..., Text], invented: Callable) -> None:
    sources, targets = zip(*invented(1200), strict=True)
    shuffled = random.Random(1).sample(targets, len(targets))  # noqa: S311 - nothing here is secret
    text = read(list(zip(sources, shuffled, strict=True)))
    found = measure_association_by_offset(text.source, text.target, 100, 1100, (0, 1200), 20)
    assert choose_offset(found) is None
    assert np.median(list(found.values())) == pytest.approx(1, abs=0.1)


def test_text_without_frequent_words_says_nothing(read: Callable[..., Text]) -> None:
    text = read([(f"a{row}", "") for row in range(300)])
    assert set(measure_association_by_offset(text.source, text.target, 0, 300, (0, 300), 5).values()) == {1.0}
