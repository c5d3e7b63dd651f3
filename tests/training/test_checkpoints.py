import hashlib
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from transduce.bundle import Bundle, list_checkpoints, load_checkpoint, model_tensors, save_checkpoint
from transduce.config import RunConfig
from transduce.data import Batch
from transduce.errors import BundleError, RunError, UserError
from transduce.model import Transformer
from transduce.training import RunFolder, Updater, average_run, train
from transduce.training.checkpoints import RunState, batches_digest, weights_digest
from transduce.translation import Translator

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


def test_is_the_mean_of_the_last_checkpoints(copier: Any, tmp_path: Path) -> None:
    folder = copier.result.folder
    updates = list_checkpoints(folder / "checkpoints")
    assert updates == [100, 200, 300]
    for last in (1, 2, 3):
        output = tmp_path / str(last)
        assert average_run(folder, last, output) == updates[-last:]
        checkpoints = [load_checkpoint(folder / "checkpoints", update)[0]["weights"] for update in updates[-last:]]
        averaged = model_tensors(Bundle.open(output).load_model())
        assert averaged.keys() == checkpoints[0].keys()
        for name, tensor in averaged.items():
            mean = sum(weights[name].double() for weights in checkpoints) / last
            torch.testing.assert_close(tensor.detach(), mean.float(), rtol=0, atol=1e-7)


def test_the_bundle_works_and_claims_no_scores(copier: Any, tmp_path: Path) -> None:
    average_run(copier.result.folder, 2, tmp_path / "average")
    description = Bundle.open(tmp_path / "average").description
    assert description.scores == []
    assert not {"epochs", "seconds", "validation_loss", "scored_pairs"} & description.training.keys()
    assert (description.training["averaged_checkpoints"], description.training["update"]) == (2, 300)
    assert Translator.load(tmp_path / "average", device="cpu").translate(["sun moon"]) == ["sun moon"]


def test_the_bundle_claims_no_moving_average(make_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    folder = train(make_config(training__updates=8, training__ema_decay=0.9)).folder
    assert Bundle.open(folder / "last").description.training["ema_decay"] == 0.9
    average_run(folder, 1, tmp_path / "average")
    assert Bundle.open(tmp_path / "average").description.training["ema_decay"] == 0.0


def test_too_few_checkpoints(copier: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds 3 checkpoints, but --last is 4.*keep_checkpoints"):
        average_run(copier.result.folder, 4, tmp_path / "average")
    with pytest.raises(UserError, match="--last 0"):
        average_run(copier.result.folder, 0, tmp_path / "average")
    for place in ("best", "average"):
        with pytest.raises(UserError, match="is in the run's own folder"):
            average_run(copier.result.folder, 2, copier.result.folder / place)
    assert not (copier.result.folder / "average").exists()
    assert list(tmp_path.iterdir()) == []


def test_something_else_than_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        average_run(tmp_path, 1, tmp_path / "average")


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_not_averaged(make_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    result = train(make_config(training__updates=2, training__checkpoint_every=1))
    weights = result.folder / "checkpoints" / "000000001" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(BundleError, match=r"weights\.safetensors"):
        average_run(result.folder, 2, tmp_path / "average")
    assert average_run(result.folder, 1, tmp_path / "average") == [2]


@pytest.mark.parametrize("earlier", [{"halvings": 2}, {"memory_micro_batches": 4}])
def test_a_checkpoint_with_earlier_names_loads(make_config: Callable[..., RunConfig], earlier: dict[str, int]) -> None:
    """`halvings` is the binary logarithm of the number of sequential micro-batches."""
    folder = train(make_config(training__updates=8)).folder
    tensors, state = load_checkpoint(folder / "checkpoints", 8)
    assert (state.pop("sequential_micro_batches"), state.pop("parallel_micro_batches")) == (1, 1)
    save_checkpoint(folder / "checkpoints", 8, tensors, {**state, **earlier, "micro_batches": 3})
    config = make_config(training__updates=8)
    sizes = config.model.model_copy(update={"vocabulary": tensors["weights"]["source_embedding.weight"].size(0)})
    updater = Updater(Transformer(sizes), config.training, torch.device("cpu"))
    loaded = RunState.load(RunFolder(folder), 8, updater)
    assert (loaded.sequential_micro_batches, loaded.parallel_micro_batches) == (4, 3)
