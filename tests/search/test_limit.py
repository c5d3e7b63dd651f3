import pytest
import torch

from transduce.errors import ConfigError
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
