"""Training the Neural GPU, the Extended Neural GPU and the Transformer on the same sequences, and measuring them.

One loop trains all three, with the same examples, curriculum and optimiser. Each network has its own number of updates,
learning rate and clipping, with which it learns well in about the same time.

Whatever is random in an update depends on the seed and the number of the update alone. So training that was stopped and
goes on from its last checkpoint gives the same weights as training without a stop, on one machine with the same number
of threads.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.bundle import (
    collect_model_tensors,
    find_latest_checkpoint,
    load_checkpoint,
    load_tensors,
    recover_checkpoints,
    remove_checkpoints,
    save_checkpoint,
)
from transduce.config import TransformerConfig
from transduce.errors import RunError
from transduce.lab.experiments.algorithms.network import ExtendedNeuralGPU, NeuralGPU
from transduce.lab.experiments.algorithms.tasks import END, SYMBOLS, Examples, generate_examples
from transduce.model import Transformer


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of training, with those of the Neural GPU as defaults."""

    task: str = "addition"
    """One of `TASKS`."""
    updates: int = 1100
    batch_size: int = 32
    """Examples of an update, all of the same length."""

    first_length: int = 1
    """Bits of the longest numbers at first."""
    longest_length: int = 20
    """Bits of the longest numbers of all of training."""
    longest_share: float = 0.8
    """Share of the updates whose numbers have as many bits as the longest; those of the others have any number up to
    it."""
    advance_error: float = 0.25
    """The longest numbers get one bit more when the share of the longest sequences that are wrong, a moving average, is
    below this."""

    learning_rate: float = 0.003
    """Peak of the rate of Adam, which rises over the first `warmup` updates and falls linearly to 0 over the last
    `decay_share` of them."""
    warmup: int = 50
    decay_share: float = 0.3
    adam_epsilon: float = 1e-4
    clip_norm: float = 0.2
    """Maximum norm of the gradient. With 1.0, single updates undid what a Neural GPU had learned."""

    test_lengths: tuple[int, ...] = (5, 10, 20, 30, 40, 60)
    """Bits of the numbers of the tests."""
    num_tests: int = 128
    """Examples for each of these lengths."""
    checkpoint_every: int = 100
    """Updates between two checkpoints."""


@dataclass(frozen=True, kw_only=True)
class NeuralGPUSettings:
    """A `NeuralGPU` and its training."""

    num_maps: int = 32
    width: int = 2
    dropout: float = 0.0
    training: TrainingSettings = field(default_factory=TrainingSettings)


@dataclass(frozen=True, kw_only=True)
class ExtendedNeuralGPUSettings(NeuralGPUSettings):
    """An `ExtendedNeuralGPU` with about as many parameters, in two units instead of one, and its training."""

    num_maps: int = 18
    width: int = 3
    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(updates=700, clip_norm=1.0))


@dataclass(frozen=True, kw_only=True)
class TransformerSettings:
    """A Transformer with about as many parameters as the others, normalised before each sub-layer, and its training."""

    d_model: int = 32
    d_ff: int = 64
    num_heads: int = 4
    num_encoder_layers: int = 2
    num_decoder_layers: int = 1
    dropout: float = 0.0
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            updates=6500, longest_share=0.5, learning_rate=0.002, adam_epsilon=1e-8, clip_norm=1.0
        )
    )


@dataclass(frozen=True)
class Measurements:
    """What training gave."""

    num_parameters: int
    seconds: float
    """Time of all updates since the last start, without tests; differs from run to run."""
    longest_length: int
    """Bits of the longest numbers that the curriculum reached."""
    exact_accuracy: dict[int, float]
    """For each length of the tests, the share of sequences that are right from the first symbol to `</s>`."""


@runtime_checkable
class Learner(Protocol):
    """A network, with its logits in training and its predictions in a test."""

    @property
    def network(self) -> nn.Module:
        """The network that is trained."""
        ...

    def compute_logits(
        self, examples: Examples
    ) -> tuple[Float[Tensor, "batch length symbols"], Int[Tensor, "batch length"]]:
        """Logits of all symbols that are to be predicted, given the right ones before them, and the right ones."""
        ...

    def predict(self, source_ids: Int[Tensor, "batch source"], num_symbols: int) -> Int[Tensor, "batch {num_symbols}"]:
        """The first symbols of the target, given the source alone."""
        ...


class NeuralGPULearner:
    """Predicts all symbols at once; beyond the target, `</s>`."""

    def __init__(self, settings: NeuralGPUSettings) -> None:
        self.network = NeuralGPU(len(SYMBOLS), settings.num_maps, settings.width, settings.dropout)

    def compute_logits(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """Compute the logits of the symbols at all positions from the sources; returns them and the right symbols."""
        sources, targets = map(torch.from_numpy, examples)
        return self.network(sources), F.pad(targets, (0, sources.size(1) - targets.size(1)), value=END)

    def predict(self, source_ids: Tensor, num_symbols: int) -> Tensor:
        """Predict the first `num_symbols` symbols of each target from its source, all of them at once."""
        logits: Tensor = self.network(source_ids)
        return logits[:, :num_symbols].argmax(dim=-1)


class ExtendedNeuralGPULearner:
    """Predicts one symbol after the other, which the decoder then sees on its tape."""

    def __init__(self, settings: ExtendedNeuralGPUSettings) -> None:
        self.network = ExtendedNeuralGPU(len(SYMBOLS), settings.num_maps, settings.width, settings.dropout)

    def compute_logits(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """Compute the logits of each target symbol, given those before it; returns them and the right symbols."""
        sources, targets = map(torch.from_numpy, examples)
        return self.network(sources, targets), targets

    def predict(self, source_ids: Tensor, num_symbols: int) -> Tensor:
        """Predict the first `num_symbols` symbols of each target, each from its source and the symbols before."""
        return self.network.generate(source_ids, num_symbols)


class TransformerLearner:
    """Predicts one symbol after the other, greedily."""

    def __init__(self, settings: TransformerSettings) -> None:
        config = TransformerConfig(
            vocabulary=len(SYMBOLS),
            d_model=settings.d_model,
            d_ff=settings.d_ff,
            num_heads=settings.num_heads,
            num_encoder_layers=settings.num_encoder_layers,
            num_decoder_layers=settings.num_decoder_layers,
            norm_order="pre",
            dropout=settings.dropout,
        )
        self.network = Transformer(config)

    def compute_logits(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """Compute the logits of each target symbol, given those before it; returns them and the right symbols."""
        sources, targets = map(torch.from_numpy, examples)
        source_mask, target_mask = torch.ones_like(sources).bool(), torch.ones_like(targets).bool()
        return self.network(sources, source_mask, targets, target_mask), targets

    def predict(self, source_ids: Tensor, num_symbols: int) -> Tensor:
        """Predict the first `num_symbols` symbols of each target, each from its source and the symbols before."""
        source_mask = torch.ones_like(source_ids).bool()
        state = self.network.start(self.network.encode(source_ids, source_mask), source_mask)
        ids = [torch.full((len(source_ids),), self.network.pad_id)]
        for _ in range(num_symbols):
            logits, state = self.network.decode_step(ids[-1], state)
            ids.append(logits.argmax(dim=-1))
        return torch.stack(ids[1:], dim=1)


Report = Callable[[str], None]


def train_neural_gpu(settings: NeuralGPUSettings, seed: int, folder: Path, report: Report) -> Measurements:
    """Train a Neural GPU and measure it; the checkpoint in `folder`, if there is one, is continued.

    What differs from Kaiser & Sutskever 2016 besides the network, so that an algorithm is learned in minutes on a
    processor: a grid of 2 columns with 32 maps instead of 4 with 24; a curriculum that begins with numbers of one bit;
    a rate that falls at the end; no noise in the gradient.

    Raises:
        RunError: the checkpoint is of other settings or of another seed.
        BundleError: it is damaged.
        WriteError: a checkpoint could not be written.
    """
    return _train(NeuralGPULearner, settings, seed, folder, report)


def train_extended_neural_gpu(
    settings: ExtendedNeuralGPUSettings, seed: int, folder: Path, report: Report
) -> Measurements:
    """Train an Extended Neural GPU and measure it, as `train_neural_gpu` does.

    Kaiser & Bengio 2016 translated texts with a much larger one. Curriculum and rate are those of `train_neural_gpu`.

    Raises:
        RunError, BundleError, WriteError: as `train_neural_gpu`.
    """
    return _train(ExtendedNeuralGPULearner, settings, seed, folder, report)


def train_transformer(settings: TransformerSettings, seed: int, folder: Path, report: Report) -> Measurements:
    """Train a Transformer and measure it, as `train_neural_gpu` does.

    Raises:
        RunError, BundleError, WriteError: as `train_neural_gpu`.
    """
    return _train(TransformerLearner, settings, seed, folder, report)


@dataclass
class Curriculum:
    """The length of the examples, which grows as they are learned (Kaiser & Sutskever 2016, section 3)."""

    length: int
    """Bits of the longest numbers."""
    error: float = 0.5
    """Share of sequences of this length that are wrong: a moving average, which starts again with each length."""

    def choose_length(self, generator: np.random.Generator, settings: TrainingSettings) -> int:
        """Bits of the numbers of an update."""
        is_longest = generator.random() < settings.longest_share
        return self.length if is_longest else int(generator.integers(1, self.length + 1))

    def record_error(self, length: int, error: float, settings: TrainingSettings) -> bool:
        """Take note of the share of wrong sequences of an update; whether the length grows."""
        if length < self.length:
            return False
        self.error += 0.2 * (error - self.error)
        if self.error >= settings.advance_error or self.length >= settings.longest_length:
            return False
        self.length, self.error = self.length + 1, 0.5
        return True


SettingsT = TypeVar("SettingsT", NeuralGPUSettings, ExtendedNeuralGPUSettings, TransformerSettings)


def _train(
    make_learner: Callable[[SettingsT], Learner], settings: SettingsT, seed: int, folder: Path, report: Report
) -> Measurements:
    training = settings.training
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_derive_seed(seed, 0))
        learner = make_learner(settings)
        optimizer = torch.optim.Adam(learner.network.parameters(), eps=training.adam_epsilon)
        curriculum = Curriculum(training.first_length)
        identity = json.dumps({type(learner.network).__name__: dataclasses.asdict(settings), "seed": seed})
        done = _resume(learner.network, optimizer, curriculum, identity, folder, report)
        start = time.perf_counter()
        for update in range(done + 1, training.updates + 1):
            length, error = update_network(learner, optimizer, curriculum, training, seed, update)
            if curriculum.record_error(length, error, training):
                report(f"update {update}: numbers of {curriculum.length} bits")
            if update % training.checkpoint_every == 0 or update == training.updates:
                _save(learner.network, optimizer, curriculum, identity, folder, update)
                report(f"update {update}: {curriculum.error:.0%} of sequences of {curriculum.length} bits are wrong")
        seconds = time.perf_counter() - start
    exact = measure_accuracy(learner, training, seed)
    num_parameters = sum(parameter.numel() for parameter in learner.network.parameters())
    return Measurements(num_parameters, seconds, curriculum.length, exact)


def update_network(
    learner: Learner,
    optimizer: torch.optim.Optimizer,
    curriculum: Curriculum,
    training: TrainingSettings,
    seed: int,
    update: int,
) -> tuple[int, float]:
    """One update, number `update` from 1; returns the length of its examples and the share of wrong sequences.

    The loss is the mean cross-entropy over all symbols.
    """
    generator = np.random.default_rng([seed, update])
    length = curriculum.choose_length(generator, training)
    examples = generate_examples(training.task, _derive_seed(seed, update), length, training.batch_size)
    torch.manual_seed(_derive_seed(seed, update))
    learner.network.train()
    logits, targets = learner.compute_logits(examples)
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()  # type: ignore[no-untyped-call]
    error = (logits.argmax(dim=-1) != targets).any(dim=1).float().mean().item()
    nn.utils.clip_grad_norm_(learner.network.parameters(), training.clip_norm)
    for group in optimizer.param_groups:
        group["lr"] = compute_learning_rate(training, update)
    optimizer.step()
    optimizer.zero_grad()
    return length, error


def compute_learning_rate(training: TrainingSettings, update: int) -> float:
    """The rate of update number `update`, from 1: up, constant, and down to nearly 0."""
    left = (training.updates + 1 - update) / max(1.0, training.decay_share * training.updates)
    return training.learning_rate * min(1.0, update / training.warmup, left)


@torch.no_grad()
def measure_accuracy(learner: Learner, training: TrainingSettings, seed: int) -> dict[int, float]:
    """For each length of the tests, the share of sequences that are right to the last symbol, given the sources alone.

    The examples are drawn with a seed of their own; of short numbers, many were in training, too.
    """
    learner.network.eval()
    exact = {}
    for length in training.test_lengths:
        examples = generate_examples(training.task, _derive_seed(seed, 0), length, training.num_tests)
        sources, targets = map(torch.from_numpy, examples)
        is_right = (learner.predict(sources, targets.size(1)) == targets).all(dim=1)
        exact[length] = is_right.float().mean().item()
    return exact


def _derive_seed(seed: int, update: int) -> int:
    """A seed for an update, from 1, or for what is not in an update, 0."""
    return int(np.random.SeedSequence([seed, update]).generate_state(1)[0])


def _save(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    curriculum: Curriculum,
    identity: str,
    folder: Path,
    update: int,
) -> None:
    moments = {
        f"{name}.{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    state = {"identity": identity, **dataclasses.asdict(curriculum)}
    save_checkpoint(folder, update, {"weights": collect_model_tensors(network), "optimizer": moments}, state)
    remove_checkpoints(folder, keep=1)


def _resume(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    curriculum: Curriculum,
    identity: str,
    folder: Path,
    report: Report,
) -> int:
    """Load the latest checkpoint, if there is one; returns the updates that have been done."""
    recover_checkpoints(folder)
    checkpoint = find_latest_checkpoint(folder, report)
    if checkpoint is None:
        return 0
    if checkpoint.state["identity"] != identity:
        raise RunError(
            f"{folder}: has a checkpoint of {checkpoint.state['identity']}, and these are {identity}: choose another "
            "folder, or remove this one"
        )
    tensors, state = load_checkpoint(folder, checkpoint.update)
    load_tensors(network, tensors["weights"], str(folder))
    for name, parameter in network.named_parameters():
        keys = ("step", "exp_avg", "exp_avg_sq")
        optimizer.state[parameter] = {key: tensors["optimizer"][f"{name}.{key}"] for key in keys}
    curriculum.length, curriculum.error = int(str(state["length"])), float(str(state["error"]))
    report(f"goes on after update {checkpoint.update}")
    return checkpoint.update
