import pytest
import torch
from torch import Tensor

from transduce.search.continuations import best_continuations


def table(rows: int, vocabulary: int, seed: int) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)).log_softmax(1)


def by_sorting(
    log_probs: Tensor, sums: Tensor, count: int
) -> tuple[list[list[float]], list[list[int]], list[list[int]]]:
    """The same by a stable sort of everything."""
    sentences, width = sums.shape
    vocabulary = log_probs.shape[1]
    totals = (sums.reshape(-1, 1) + log_probs).view(sentences, width * vocabulary)
    places = torch.sort(totals, dim=1, descending=True, stable=True).indices[:, :count]
    rows = places // vocabulary + torch.arange(sentences)[:, None] * width
    ids = places % vocabulary
    return log_probs[rows, ids].tolist(), rows.tolist(), ids.tolist()


@pytest.mark.parametrize("vocabulary", [20, 63, 64, 65, 640, 1001])
@pytest.mark.parametrize("round_to", [0.0, 1.0], ids=["distinct", "ties"])
@pytest.mark.parametrize(("width", "count"), [(1, 2), (1, 8), (4, 8), (3, 16)])
def test_equals_sorting_everything(vocabulary: int, round_to: float, width: int, count: int) -> None:
    log_probs, sums = table(3 * width, vocabulary, seed=vocabulary), table(3, width, seed=1) * 3
    if round_to:
        log_probs, sums = log_probs.round(), sums.round()
    found = best_continuations(log_probs, sums, count)
    assert (found.scores.tolist(), found.rows.tolist(), found.ids.tolist()) == by_sorting(log_probs, sums, count)


def test_rows_without_a_hypothesis_are_not_continued() -> None:
    sums = torch.tensor([[0.0, -torch.inf], [-1.0, -2.0]])
    found = best_continuations(table(4, 100, seed=2), sums, 4)
    assert set(found.rows[0].tolist()) == {0}


def test_a_vocabulary_smaller_than_the_count_is_filled_up_with_the_impossible() -> None:
    log_probs = table(2, 3, seed=3)
    found = best_continuations(log_probs, torch.zeros(2, 1), 8)
    assert torch.equal(found.scores[:, :3], log_probs.sort(dim=1, descending=True).values)
    assert torch.isneginf(found.scores[:, 3:]).all()
    assert found.rows.tolist() == [[0] * 8, [1] * 8]


def test_half_precision_is_ranked_by_its_sums_in_float32() -> None:
    log_probs = torch.tensor([[-4.0, -1.0, -2.0], [-1.0, -2.0, -4.0]], dtype=torch.bfloat16)
    found = best_continuations(log_probs, torch.tensor([[0.0, -0.001]]), 4)
    assert list(zip(found.rows[0].tolist(), found.ids[0].tolist(), strict=True)) == [(0, 1), (1, 0), (0, 2), (1, 1)]
