from itertools import pairwise

import pytest

from transduce.pages import sample_evenly, sample_randomly


@pytest.mark.parametrize(("count", "most"), [(0, 3), (3, 3), (4, 3), (1000, 40)])
def test_the_first_and_the_last_are_always_among_the_few(count: int, most: int) -> None:
    found = sample_evenly(range(count), most)
    assert len(found) == min(count, most)
    assert found == sorted(set(found))
    assert not count or (found[0], found[-1]) == (0, count - 1)


@pytest.mark.parametrize("max_count", [0, 1])
def test_of_one_item_or_none_there_is_no_last_one(max_count: int) -> None:
    assert sample_evenly(range(5), max_count) == [0][:max_count]


def test_the_few_are_evenly_spread() -> None:
    assert sample_evenly(range(10, 20), 5) == [10, 12, 14, 16, 19]
    found = sample_evenly(range(0, 3_000, 3), 7)
    assert {later - earlier for earlier, later in pairwise(found)} == {498, 501}


def test_a_sample_for_shares_follows_no_pattern_of_the_text() -> None:
    items = range(0, 20_000, 2)
    found = sample_randomly(items, 3_000)
    assert found == sorted(set(found)) == sample_randomly(items, 3_000)
    assert set(found) <= set(items)
    assert len(found) == 3_000
    assert sum(item % 4 == 0 for item in found) / len(found) == pytest.approx(0.5, abs=0.03)
    assert sample_randomly(range(5), 5) == [*range(5)]
    assert sample_randomly(range(0), 5) == []
