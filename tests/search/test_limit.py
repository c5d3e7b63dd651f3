from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from transduce.errors import ConfigError, TransduceError
from transduce.search import beam_search, greedy_search
from transduce.search.limit import allow_only_end, read_limits


def test_only_the_given_rows_are_limited_and_the_table_stays_as_it_was() -> None:
    log_probs = torch.randn(3, 5).log_softmax(1)
    before = log_probs.clone()
    limited = allow_only_end(log_probs, [0, 2], 1)
    assert torch.equal(log_probs, before)
    assert torch.equal(limited[1], before[1])
    assert limited[0].tolist() == [-torch.inf, before[0, 1].item(), -torch.inf, -torch.inf, -torch.inf]
    assert limited[2, 1] == before[2, 1]
    assert torch.isneginf(limited[2]).sum() == 4


def test_without_rows_nothing_is_copied() -> None:
    log_probs = torch.zeros(2, 3)
    assert allow_only_end(log_probs, [], 1) is log_probs


def test_a_limit_without_room_for_the_end_is_refused() -> None:
    assert read_limits(torch.tensor([3, 1])) == [3, 1]
    with pytest.raises(ConfigError, match=r"max_lengths\[1\] = 0 must be at least 1"):
        read_limits(torch.tensor([3, 0]))


@pytest.mark.parametrize("search", [greedy_search, partial(beam_search, beam=2)], ids=["greedy", "beam"])
def test_log_probabilities_that_are_no_numbers_end_the_search(search: Callable[..., object]) -> None:
    class Nothing:
        def reorder(self, index: Tensor) -> "Nothing":
            return self

    def step(last_ids: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        return torch.full((len(last_ids), 7), torch.nan), state

    with pytest.raises(TransduceError, match="not numbers"):
        search(step, Nothing(), start_id=6, end_id=1, max_lengths=torch.tensor([3, 4]), alpha=0.6)
