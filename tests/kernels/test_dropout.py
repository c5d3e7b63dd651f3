import itertools

import pytest
import torch

from transduce.kernels.dropout import dropout

NUMBERS = 2**20


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_a_share_of_p_becomes_zero_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(NUMBERS), p)
    deviation = (p * (1 - p) / NUMBERS) ** 0.5
    assert (dropped == 0).double().mean().item() == pytest.approx(p, abs=4 * deviation + 2**-17)
    assert dropped[dropped != 0].unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-3)
    assert dropped.double().mean().item() == pytest.approx(1, abs=4 * deviation / (1 - p))


def test_no_two_numbers_fall_together() -> None:
    """Four numbers share one draw of 64 bits: they must be as independent as numbers of different draws."""
    torch.manual_seed(0)
    kept = (dropout(torch.ones(NUMBERS), 0.5) != 0).double().view(-1, 4)
    within = torch.corrcoef(kept.T)
    limit = 4.5 / len(kept) ** 0.5
    for first, second in itertools.combinations(range(4), 2):
        assert abs(within[first, second].item()) < limit
    for lag in (1, 2, 3, 4, 5, 8):
        pair = torch.stack([kept.flatten()[:-lag], kept.flatten()[lag:]])
        assert abs(torch.corrcoef(pair)[0, 1].item()) < limit


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 5), (0,)])
def test_any_number_of_numbers(shape: tuple[int, ...]) -> None:
    dropped = dropout(torch.ones(shape), 0.5)
    assert dropped.shape == shape
    assert set(dropped.flatten().tolist()) <= {0.0, 2.0}


def test_the_seed_decides() -> None:
    def drop(seed: int) -> list[float]:
        torch.manual_seed(seed)
        kept: list[float] = dropout(torch.ones(101), 0.5).tolist()
        return kept

    assert drop(1) == drop(1)
    assert drop(1) != drop(2)


def test_the_gradient_takes_the_same_way() -> None:
    numbers = torch.ones(101, requires_grad=True)
    dropped = dropout(numbers, 0.3)
    dropped.sum().backward()
    assert numbers.grad is not None
    assert torch.equal(numbers.grad, dropped.detach())


@pytest.mark.parametrize("p", [1e-7, 1 - 1e-7])
def test_the_outermost_p_are_neither_all_nor_nothing(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(NUMBERS), p)
    assert dropped.isfinite().all()
    assert (dropped == 0).double().mean().item() == pytest.approx(round(p), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_type_stays(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(9, dtype=dtype), 0.5).dtype == dtype
