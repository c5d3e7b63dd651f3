from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, collect_model_tensors, list_checkpoints, load_checkpoint
from transduce.config import RunConfig
from transduce.errors import BundleError, RunError, UserError
from transduce.training import average_run, train
from transduce.translation import Translator


def test_is_the_mean_of_the_last_checkpoints(copier: Any, tmp_path: Path) -> None:
    folder = copier.result.folder
    updates = list_checkpoints(folder / "checkpoints")
    assert updates == [100, 200, 300]
    for last in (1, 2, 3):
        output = tmp_path / str(last)
        assert average_run(folder, last, output) == updates[-last:]
        checkpoints = [load_checkpoint(folder / "checkpoints", update)[0]["weights"] for update in updates[-last:]]
        averaged = collect_model_tensors(Bundle.open(output).load_model())
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
