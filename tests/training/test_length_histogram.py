import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.training.length_histogram import NUM_BINS, length_histogram


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1))
def test_every_sentence_is_counted_in_its_bin(lengths: list[tuple[int, int]]) -> None:
    found = length_histogram(np.array(lengths))
    for side, name in enumerate(("source", "target")):
        mine = [pair[side] for pair in lengths]
        bins = [min(length // found["width"], NUM_BINS - 1) for length in mine]
        assert found[name] == [bins.count(number) for number in range(NUM_BINS)]
        assert found["longest"][name] == max(mine)
        assert sum(length <= found["median"][name] for length in mine) >= len(mine) / 2
        assert sum(length >= found["median"][name] for length in mine) >= len(mine) / 2


@pytest.mark.parametrize("longest", [29, 30, 1000])
def test_a_few_long_ones_do_not_widen_the_bins(longest: int) -> None:
    lengths = np.array([[10, 12]] * 999 + [[longest, 12]])
    assert length_histogram(lengths)["width"] == 1
