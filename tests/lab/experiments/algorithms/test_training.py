import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import load_checkpoint
from transduce.errors import RunError
from transduce.lab.experiments.algorithms.training import (
    Curriculum,
    ExtendedNeuralGPULearner,
    ExtendedNeuralGPUSettings,
    Measurements,
    NeuralGPULearner,
    NeuralGPUSettings,
    TrainingSettings,
    TransformerLearner,
    TransformerSettings,
    compute_learning_rate,
    train_extended_neural_gpu,
    train_neural_gpu,
    train_transformer,
)

TINY = TrainingSettings(
    updates=6,
    batch_size=4,
    first_length=2,
    longest_length=4,
    checkpoint_every=3,
    test_lengths=(2, 5),
    num_tests=4,
)
TINY_GPU = NeuralGPUSettings(num_maps=6, width=2, dropout=0.3, training=TINY)
TINY_EXTENDED = ExtendedNeuralGPUSettings(num_maps=6, width=2, dropout=0.3, training=TINY)
TINY_TRANSFORMER = TransformerSettings(d_model=16, d_ff=16, num_heads=2, dropout=0.1, training=TINY)
Train = Callable[[Any, int, Path, Callable[[str], None]], Measurements]
NETWORKS: list[tuple[Train, Any]] = [
    (train_neural_gpu, TINY_GPU),
    (train_extended_neural_gpu, TINY_EXTENDED),
    (train_transformer, TINY_TRANSFORMER),
]


def ignore(_: str) -> None:
    """A report that nobody reads."""


def weights_of(folder: Path, update: int) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder, update)[0]["weights"]


@pytest.mark.parametrize(("train", "settings"), NETWORKS)
def test_training_that_stopped_goes_on_to_the_same_weights(train: Train, settings: Any, tmp_path: Path) -> None:
    whole = train(settings, 1, tmp_path / "whole", ignore)

    def stop(message: str) -> None:
        if message.startswith("update 3: ") and "wrong" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, 1, tmp_path / "stopped", stop)
    messages: list[str] = []
    resumed = train(settings, 1, tmp_path / "stopped", messages.append)
    assert messages[0] == "goes on after update 3"
    one, other = weights_of(tmp_path / "whole", 6), weights_of(tmp_path / "stopped", 6)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert dataclasses.replace(resumed, seconds=whole.seconds) == whole


@pytest.mark.parametrize(("train", "settings"), NETWORKS)
def test_results_are_shares_and_depend_on_the_seed_alone(train: Train, settings: Any, tmp_path: Path) -> None:
    torch.manual_seed(5)
    first = train(settings, 1, tmp_path / "first", ignore)
    before = torch.get_rng_state()
    train(settings, 1, tmp_path / "again", ignore)
    train(settings, 2, tmp_path / "other", ignore)
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's random numbers are used up
    one, again, other = (weights_of(tmp_path / name, 6) for name in ("first", "again", "other"))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert list(first.exact_accuracy) == [2, 5]
    assert all(0 <= share <= 1 for share in first.exact_accuracy.values())
    assert first.num_parameters == sum(tensor.numel() for tensor in one.values())


def test_a_folder_of_another_training_is_not_continued(tmp_path: Path) -> None:
    train_neural_gpu(TINY_GPU, 1, tmp_path, ignore)
    with pytest.raises(RunError, match="choose another folder"):
        train_neural_gpu(TINY_GPU, 2, tmp_path, ignore)
    with pytest.raises(RunError, match="choose another folder"):
        train_extended_neural_gpu(TINY_EXTENDED, 1, tmp_path, ignore)


def test_training_that_is_done_only_measures(tmp_path: Path) -> None:
    first = train_neural_gpu(TINY_GPU, 1, tmp_path, ignore)
    again = train_neural_gpu(TINY_GPU, 1, tmp_path, ignore)
    assert again.exact_accuracy == first.exact_accuracy
    assert again.seconds < first.seconds


@pytest.mark.parametrize(
    ("train", "settings"),
    [
        (train_neural_gpu, NeuralGPUSettings(num_maps=16)),
        (train_extended_neural_gpu, ExtendedNeuralGPUSettings(num_maps=12)),
        (train_transformer, TransformerSettings(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1)),
    ],
)
def test_the_four_sums_of_bits_are_learned_in_seconds(train: Train, settings: Any, tmp_path: Path) -> None:
    training = TrainingSettings(updates=120, longest_length=1, learning_rate=0.01, test_lengths=(1,), num_tests=50)
    measured = train(dataclasses.replace(settings, training=training), 1, tmp_path, ignore)
    assert measured.exact_accuracy == {1: 1.0}


def test_the_networks_have_about_equally_many_parameters() -> None:
    counts = [
        sum(parameter.numel() for parameter in learner.network.parameters())
        for learner in (
            NeuralGPULearner(NeuralGPUSettings()),
            ExtendedNeuralGPULearner(ExtendedNeuralGPUSettings()),
            TransformerLearner(TransformerSettings()),
        )
    ]
    assert max(counts) < 1.15 * min(counts)


def test_numbers_grow_when_they_are_learned() -> None:
    settings = TrainingSettings(first_length=3, longest_length=4, advance_error=0.2)
    curriculum = Curriculum(3)
    generator = np.random.default_rng(1)
    lengths = [curriculum.choose_length(generator, settings) for _ in range(200)]
    assert set(lengths) == {1, 2, 3}
    assert 0.7 < lengths.count(3) / 200 < 0.95
    assert not curriculum.record_error(2, 0.0, settings)  # shorter ones do not count
    assert curriculum.error == 0.5
    grown = [curriculum.record_error(3, 0.0, settings) for _ in range(10)]
    assert grown.count(True) == 1
    assert curriculum.length == 4
    assert not any(curriculum.record_error(4, 0.0, settings) for _ in range(10))


def test_the_rate_rises_stays_and_falls() -> None:
    settings = TrainingSettings(updates=100, warmup=10, learning_rate=0.5, decay_share=0.2)
    rates = [compute_learning_rate(settings, update) for update in range(1, 101)]
    assert rates[:10] == sorted(set(rates[:10]))
    assert set(rates[9:81]) == {0.5}
    assert rates[80:] == sorted(set(rates[80:]), reverse=True)
    assert rates[-1] == pytest.approx(0.5 / 20)
