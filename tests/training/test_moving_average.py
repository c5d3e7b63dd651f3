from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, list_checkpoints, load_checkpoint, model_tensors
from transduce.config import RunConfig, TransformerConfig
from transduce.model import Transformer
from transduce.training import train
from transduce.training.moving_average import MovingAverage

MakeConfig = Callable[..., RunConfig]
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}


@pytest.fixture
def model() -> Transformer:
    return Transformer(TransformerConfig(vocabulary=20, normalization="batch", **SIZES))


@torch.no_grad()
def change(model: Transformer) -> None:
    for tensor in model_tensors(model).values():
        tensor.add_(torch.randn_like(tensor))


def test_is_the_sum_of_all_weights_by_their_age(model: Transformer) -> None:
    average = MovingAverage(model, 0.5)
    names = model_tensors(model).keys()
    expected = {name: tensor.double() for name, tensor in model_tensors(model).items()}
    # (1 + n) / (10 + n) reaches the decay of 0.5 at update 8, and stays below it before.
    for number, decay in enumerate([2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15, 7 / 16, 8 / 17, 0.5, 0.5], start=1):
        change(model)
        average.update(model, number)
        weights = model_tensors(model)
        expected = {name: decay * expected[name] + (1 - decay) * weights[name].double() for name in names}
    found = model_tensors(average.model)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=0, atol=1e-5)
    # What is one matrix in the model is one in the average, running statistics are part of it, and it is not trained.
    assert average.model.target_embedding is average.model.source_embedding
    assert any(name.endswith("running_mean") for name in names)
    assert not any(tensor.requires_grad for tensor in found.values())


def test_the_weights_that_are_trained_are_left_alone(make_config: MakeConfig, unbroken: Any) -> None:
    folder = train(make_config(training__ema_decay=0.9)).folder
    parts, _ = load_checkpoint(folder / "checkpoints", 20)
    plain = unbroken()
    for part in ("weights", "optimizer"):
        for name, tensor in parts[part].items():
            assert tensor.numpy().tobytes() == plain[f"{part}/{name}"]
    assert parts["moving_average"].keys() == parts["weights"].keys()
    assert not any(name.startswith("moving_average") for name in plain)


@pytest.mark.parametrize(
    ("settings", "better"),
    [
        # Around a minimum, the mean is nearer to it than any step; on the way down, the last step is.
        ({"training__learning_rate": 5e-2, "training__updates": 30, "training__ema_decay": 0.8}, True),
        ({"training__learning_rate": 1e-2, "training__updates": 12, "training__ema_decay": 0.99}, False),
    ],
)
def test_it_becomes_best_only_if_it_is_better(
    make_config: MakeConfig, metrics_of: Callable[[Path], Any], settings: dict[str, Any], better: bool
) -> None:
    alone = {"training__keep_checkpoints": 1, "training__best_by": "loss", "training__validate_every": 100}
    result = train(make_config(training__checkpoint_every=100, **alone, **settings))
    *_, validation, last = metrics_of(result.folder)
    assert (validation["kind"], last["kind"]) == ("validation", "average")
    decay = settings["training__ema_decay"]
    assert (last["ema_decay"], last["averaged_checkpoints"]) == (0.0, 1)
    assert (validation["loss"] < last["loss"]) == (not last["is_best"]) == better
    best = Bundle.open(result.folder / "best")
    assert best.description.training["ema_decay"] == (decay if better else 0.0)
    assert (f"- ema decay: {decay}\n" in (best.folder / "README.md").read_text(encoding="utf-8")) == better
    part = "moving_average" if better else "weights"
    (update,) = list_checkpoints(result.folder / "checkpoints")
    expected = load_checkpoint(result.folder / "checkpoints", update, [part])[0][part]
    for name, tensor in model_tensors(best.load_model()).items():
        assert torch.equal(tensor, expected[name])


def test_every_average_is_scored(make_config: MakeConfig, metrics_of: Callable[[Path], Any], watcher: Any) -> None:
    told = watcher()
    result = train(make_config(training__ema_decay=0.9), told)
    averages = [line for line in metrics_of(result.folder) if line["kind"] == "average"]
    assert [(line["averaged_checkpoints"], line["ema_decay"]) for line in averages] == [(3, 0.0), (1, 0.0)]
    assert "average of the last 3 checkpoints:" in told.said
    assert "weights of the last update, not averaged:" in told.said


def test_it_is_what_validations_measure_and_last_holds(make_config: MakeConfig) -> None:
    folder = train(make_config(training__ema_decay=0.9, training__keep_checkpoints=1)).folder
    (update,) = list_checkpoints(folder / "checkpoints")
    expected = load_checkpoint(folder / "checkpoints", update, ["moving_average"])[0]["moving_average"]
    last = Bundle.open(folder / "last")
    assert last.description.training["ema_decay"] == 0.9
    for name, tensor in model_tensors(last.load_model()).items():
        assert torch.equal(tensor, expected[name])
