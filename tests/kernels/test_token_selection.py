import pytest
import torch
from torch import Tensor

from transduce.kernels.token_selection import Continuations, find_best_continuations


def table(sentences: int, width: int, vocabulary: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sentences, width, vocabulary, generator=generator).log_softmax(2)


def by_sorting(
    log_probs: Tensor, sums: Tensor, count: int
) -> tuple[list[list[float]], list[list[int]], list[list[int]]]:
    """The same by a stable sort of everything."""
    vocabulary = log_probs.shape[2]
    totals = (sums[:, :, None] + log_probs).flatten(1)
    places = torch.sort(totals, dim=1, descending=True, stable=True).indices[:, :count]
    scores = log_probs.flatten(1).gather(1, places).float()
    return scores.tolist(), (places // vocabulary).tolist(), (places % vocabulary).tolist()


@pytest.mark.parametrize("vocabulary", [20, 63, 64, 65, 640, 1001])
@pytest.mark.parametrize("round_to", [0.0, 1.0], ids=["distinct", "ties"])
@pytest.mark.parametrize(("width", "count"), [(1, 2), (1, 8), (4, 8), (3, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_sorting_everything(
    vocabulary: int, round_to: float, width: int, count: int, dtype: torch.dtype
) -> None:
    log_probs, sums = table(3, width, vocabulary, seed=vocabulary), table(1, 3, width, seed=1)[0] * 3
    if round_to:
        log_probs, sums = log_probs.round(), sums.round()
    log_probs[0, 0, 5] = 0.0  # what is certain
    log_probs[1, :, ::3] = -torch.inf
    log_probs = log_probs.to(dtype)
    expected = by_sorting(log_probs.float(), sums, count)
    found = find_best_continuations(log_probs, sums, count)
    assert (found.scores.tolist(), found.parents.tolist(), found.ids.tolist()) == expected


def test_rows_without_a_hypothesis_are_not_continued() -> None:
    sums = torch.tensor([[0.0, -torch.inf], [-1.0, -2.0]])
    found = find_best_continuations(table(2, 2, 100, seed=2), sums, 4)
    assert set(found.parents[0].tolist()) == {0}


def test_a_vocabulary_smaller_than_the_count_is_filled_up_with_the_impossible() -> None:
    log_probs = table(2, 1, 3, seed=3)
    found = find_best_continuations(log_probs, torch.zeros(2, 1), 8)
    assert torch.equal(found.scores[:, :3], log_probs[:, 0].sort(dim=1, descending=True).values)
    assert torch.isneginf(found.scores[:, 3:]).all()
    assert found.parents.tolist() == [[0] * 8] * 2


def test_half_precision_is_ranked_by_its_sums_in_float32() -> None:
    log_probs = torch.tensor([[[-4.0, -1.0, -2.0], [-1.0, -2.0, -4.0]]], dtype=torch.bfloat16)
    found = find_best_continuations(log_probs, torch.tensor([[0.0, -0.001]]), 4)
    assert list(zip(found.parents[0].tolist(), found.ids[0].tolist(), strict=True)) == [(0, 1), (1, 0), (0, 2), (1, 1)]
    assert found.scores.dtype == torch.float32


def test_numbers_arrive_exactly() -> None:
    rows = torch.tensor([[0, 1], [2**31 - 1, 16_777_217]])
    expected = Continuations(torch.tensor([[-0.1, -torch.inf], [0.0, -1e-30]]), rows, rows.flip(0))
    for own, other in zip(expected.copy_to_host(), expected, strict=True):
        assert torch.equal(own, other)
        assert own.dtype == other.dtype
