import hashlib
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from torch import nn

from transduce.bundle import load_checkpoint, save_checkpoint
from transduce.config import RunConfig
from transduce.data import Batch
from transduce.model import Transformer
from transduce.training import RunFolder, Updater, train
from transduce.training.checkpoints import RunState, compute_batches_digest, compute_weights_digest

BATCHES = [
    Batch.from_ids([[2, 3]], [[4, 5]], 9),
    Batch.from_ids([[2], [3]], [[4], [5]], 9),
    Batch.from_ids([[2, 3, 4]], [[5]], 9),
    Batch.from_ids([[4, 5]], [[2, 3]], 9),
]


def test_every_order_and_every_cut_has_its_own_digest() -> None:
    orders = [order for length in range(1, 5) for order in permutations(BATCHES, length)]
    assert len({compute_batches_digest("", order) for order in orders}) == len(orders)


def test_it_goes_on_from_any_place() -> None:
    whole = compute_batches_digest("", BATCHES)
    for place in range(len(BATCHES) + 1):
        assert compute_batches_digest(compute_batches_digest("", BATCHES[:place]), BATCHES[place:]) == whole


def test_it_is_what_it_says() -> None:
    content = b"torch.int64 [1, 2]" + bytes([2, *[0] * 7, 3, *[0] * 7])
    content += b"torch.int64 [1, 2]" + bytes([4, *[0] * 7, 5, *[0] * 7])
    assert compute_batches_digest("before", BATCHES[:1]) == hashlib.sha256(b"before" + content).hexdigest()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_bit_of_the_weights_is_enough(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(dtype)
    before = compute_weights_digest(model)
    assert compute_weights_digest(model) == before
    for tensor in (model[0].weight, model[1].running_mean, model[1].num_batches_tracked):
        bits = tensor.detach().reshape(-1).view(torch.uint8)
        bits[1] ^= 1
        assert compute_weights_digest(model) != before
        bits[1] ^= 1
    assert compute_weights_digest(model) == before


@pytest.mark.parametrize("earlier", [{"halvings": 2}, {"memory_micro_batches": 4}])
def test_a_checkpoint_with_earlier_names_loads(make_config: Callable[..., RunConfig], earlier: dict[str, int]) -> None:
    """`halvings` is the binary logarithm of the number of sequential micro-batches."""
    folder = train(make_config(training__updates=8)).folder
    tensors, state = load_checkpoint(folder / "checkpoints", 8)
    assert (state.pop("sequential_micro_batches"), state.pop("parallel_micro_batches")) == (1, 1)
    assert (state.pop("unscheduled"), state.pop("replaced")) == (0, 0)
    earlier |= {"micro_batches": 3, "stopgap": 7, "superseded": 5}
    save_checkpoint(folder / "checkpoints", 8, tensors, {**state, **earlier})
    config = make_config(training__updates=8)
    sizes = config.model.model_copy(update={"vocabulary": tensors["weights"]["source_embedding.weight"].size(0)})
    updater = Updater(Transformer(sizes), config.training, torch.device("cpu"))
    loaded = RunState.load(RunFolder(folder), 8, updater)
    assert (loaded.sequential_micro_batches, loaded.parallel_micro_batches) == (4, 3)
    assert (loaded.unscheduled, loaded.replaced) == (7, 5)
