import hashlib
from itertools import permutations

import pytest
import torch
from torch import nn

from transduce.data import Batch
from transduce.training.digests import batches_digest, weights_digest

BATCHES = [
    Batch.from_ids([[2, 3]], [[4, 5]], 9),
    Batch.from_ids([[2], [3]], [[4], [5]], 9),
    Batch.from_ids([[2, 3, 4]], [[5]], 9),
    Batch.from_ids([[4, 5]], [[2, 3]], 9),
]


def test_every_order_and_every_cut_has_its_own_digest() -> None:
    orders = [order for length in range(1, 5) for order in permutations(BATCHES, length)]
    assert len({batches_digest("", order) for order in orders}) == len(orders)


def test_it_goes_on_from_any_place() -> None:
    whole = batches_digest("", BATCHES)
    for place in range(len(BATCHES) + 1):
        assert batches_digest(batches_digest("", BATCHES[:place]), BATCHES[place:]) == whole


def test_it_is_what_it_says() -> None:
    content = b"torch.int64 [1, 2]" + bytes([2, *[0] * 7, 3, *[0] * 7])
    content += b"torch.int64 [1, 2]" + bytes([4, *[0] * 7, 5, *[0] * 7])
    assert batches_digest("before", BATCHES[:1]) == hashlib.sha256(b"before" + content).hexdigest()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_bit_of_the_weights_is_enough(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(dtype)
    before = weights_digest(model)
    assert weights_digest(model) == before
    for tensor in (model[0].weight, model[1].running_mean, model[1].num_batches_tracked):
        bits = tensor.detach().reshape(-1).view(torch.uint8)
        bits[1] ^= 1
        assert weights_digest(model) != before
        bits[1] ^= 1
    assert weights_digest(model) == before
