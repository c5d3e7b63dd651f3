import pytest
from hypothesis import given, strategies

from transduce.search.task import compact_batch


@given(strategies.lists(strategies.booleans(), min_size=1).filter(lambda flags: not all(flags)))
def test_those_that_are_not_done_stay_and_few_others(is_done: list[bool]) -> None:
    stay = compact_batch(is_done)
    assert stay == sorted(set(stay))
    assert {place for place, done in enumerate(is_done) if not done} <= set(stay)
    assert len(stay) < 2 * is_done.count(False)
    assert len(stay) in {1, 2, 4, 8, len(is_done)} or len(stay) % 16 == 0


@pytest.mark.parametrize(("live", "size"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (16, 16), (17, 32), (99, 112)])
def test_a_batch_has_few_sizes(live: int, size: int) -> None:
    assert len(compact_batch([False] * live + [True] * 200)) == size
    assert compact_batch([True] * 200 + [False] * live)[-live:] == list(range(200, 200 + live))
