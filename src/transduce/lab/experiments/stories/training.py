"""Training the memory network and a Transformer to answer the same questions, and measuring them.

The memory network is trained as in Sukhbaatar et al. 2015, section 4.2, with the epochs and rates that they use for all
tasks together with 10,000 examples of each; but its linear start ends after 5 epochs at the latest, where theirs lasts
until the loss on the validation stories rises. The Transformer reads story and question as one sequence and writes the
answer. Both train for less than two minutes and begin anew when they were stopped. With one seed, results are the same
every time on one machine.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.bundle import collect_model_tensors, load_tensors
from transduce.bundle.weights import read_tensors, write_tensors
from transduce.config import TrainingConfig, TransformerConfig
from transduce.data import Batch
from transduce.kernels.device import use_one_thread
from transduce.lab.experiments.stories.network import MemoryNetwork
from transduce.lab.experiments.stories.stories import (
    KINDS,
    MAX_WORDS,
    WORD_IDS,
    WORDS,
    EncodedStories,
    Story,
    encode_stories,
    generate_story,
)
from transduce.model import Transformer
from transduce.storage import replace_file
from transduce.training import Updater

END = 0
"""Id of `</s>` for the Transformer: that of the empty word, which its sequences do not have."""
PERIOD = len(WORDS)
"""Id of the end of a sentence for the Transformer; `<pad>` is the next and last one."""

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StorySettings:
    """The stories and questions, the same for both networks; there are as many of each kind."""

    kinds: tuple[int, ...] = KINDS
    """Numbers of supporting facts; one network learns all kinds together."""
    num_stories: int = 3000
    """Stories of each kind for training, each with one question."""
    num_tests: int = 500
    """Stories of each kind for the test, and as many for validation."""
    num_sentences: tuple[int, int] = (5, 12)
    """Least and greatest number of sentences of a story."""


@dataclass(frozen=True, kw_only=True)
class MemoryNetworkSettings:
    """A `MemoryNetwork` and its training by stochastic gradient descent."""

    d_model: int = 80
    num_hops: int = 3
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 0.01
    """Step along the gradient of the loss summed over a batch; half of it without softmax."""
    halve_every: int = 5
    """Epochs after which the rate is halved."""
    max_linear_epochs: int = 5
    """Most epochs without softmax at the start; fewer if the loss on the validation stories rises before. 0: none."""
    empty_share: float = 0.1
    """Empty sentences put between the others in training, per sentence, so that the exact age of a sentence counts less
    ("random noise")."""
    clip_norm: float = 40.0
    stories: StorySettings = field(default_factory=StorySettings)

    @property
    def max_sentences(self) -> int:
        """Sentences of the longest story, with the empty ones between them."""
        longest = self.stories.num_sentences[1]
        return longest + math.ceil(self.empty_share * longest)


@dataclass(frozen=True, kw_only=True)
class TransformerSettings:
    """A Transformer with about as many parameters as the memory network, and its training."""

    d_model: int = 20
    d_ff: int = 48
    num_heads: int = 4
    num_encoder_layers: int = 2
    num_decoder_layers: int = 1
    epochs: int = 14
    batch_size: int = 64
    learning_rate: float = 0.008
    """Peak of the learning rate, which is reached after `warmup` updates and falls linearly to 0."""
    warmup: int = 200
    stories: StorySettings = field(default_factory=StorySettings)

    @property
    def model_config(self) -> TransformerConfig:
        """The network: normalised before each sub-layer, without dropout."""
        return TransformerConfig(
            vocabulary=PERIOD + 2,
            d_model=self.d_model,
            d_ff=self.d_ff,
            num_heads=self.num_heads,
            num_encoder_layers=self.num_encoder_layers,
            num_decoder_layers=self.num_decoder_layers,
            norm_order="pre",
            dropout=0.0,
        )


@dataclass(frozen=True)
class Measurements:
    """What training gave."""

    num_parameters: int
    seconds: float
    """Time of training, without making the stories and without the test; differs from run to run."""
    accuracy: dict[int, float]
    """For each kind of question, the share of test questions that are answered rightly."""


@use_one_thread()  # the networks are so small that threads would only wait for each other
def train_memory_network(settings: MemoryNetworkSettings, seed: int, folder: Path, report: Report) -> Measurements:
    """Train a memory network, write it to `folder` (see `load_memory_network`), and measure it.

    Raises:
        ConfigError: the settings of the stories are impossible.
        OSError: the network could not be written.
    """
    stories = settings.stories
    training, validation = (
        join_stories(encode_stories(draw_stories(stories, seed, part, kind)) for kind in stories.kinds)
        for part in ("training", "validation")
    )
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_memory_network(settings)
    network.has_softmax = settings.max_linear_epochs == 0
    optimizer = torch.optim.SGD(network.parameters())
    generator = np.random.default_rng(seed)
    lowest = math.inf
    for epoch in range(settings.epochs):
        rate = settings.learning_rate * 0.5 ** (epoch // settings.halve_every)
        optimizer.param_groups[0]["lr"] = rate if network.has_softmax else rate / 2
        network.train()
        for batch in iterate_batches(training, settings.batch_size, generator):
            loss = compute_loss(network, insert_empty_sentences(batch, settings.max_sentences, generator))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
            optimizer.step()
        with torch.no_grad():
            validation_loss = compute_loss(network.eval(), validation).item() / len(validation.answers)
        report(f"epoch {epoch + 1}: loss {validation_loss:.3f} on the validation stories")
        if not network.has_softmax and (validation_loss > lowest or epoch + 1 == settings.max_linear_epochs):
            network.has_softmax = True
            report("from now on with softmax")
        lowest = min(lowest, validation_loss)
    seconds = time.perf_counter() - start
    network.has_softmax = True
    save_memory_network(network, folder)
    accuracy = {}
    for kind in stories.kinds:
        tests = encode_stories(draw_stories(stories, seed, "test", kind))
        accuracy[kind] = measure_accuracy(network, tests)
    return Measurements(network.num_parameters, seconds, accuracy)


def make_memory_network(settings: MemoryNetworkSettings) -> MemoryNetwork:
    """A memory network for stories of these settings, with initial weights."""
    return MemoryNetwork(len(WORDS), MAX_WORDS, settings.max_sentences, settings.d_model, settings.num_hops)


def draw_stories(settings: StorySettings, seed: int, part: str, kind: int) -> list[Story]:
    """The stories of one kind for "training", "validation" or "test"; no two parts have the same story numbers."""
    first = {"training": 0, "validation": settings.num_stories, "test": settings.num_stories + settings.num_tests}[part]
    count = settings.num_stories if part == "training" else settings.num_tests
    return [generate_story(seed, number, kind, settings.num_sentences) for number in range(first, first + count)]


def join_stories(parts: Iterator[EncodedStories]) -> EncodedStories:
    """All stories of several sets, one set after the other."""
    sentences, questions, answers = zip(*parts, strict=True)
    most = max(part.shape[1] for part in sentences)
    filled = [np.pad(part, ((0, 0), (0, most - part.shape[1]), (0, 0))) for part in sentences]
    return EncodedStories(np.concatenate(filled), np.concatenate(questions), np.concatenate(answers))


def iterate_batches(
    stories: EncodedStories, batch_size: int, generator: np.random.Generator
) -> Iterator[EncodedStories]:
    """All stories once, in random order, in batches of which the last may be smaller."""
    chosen = generator.permutation(len(stories.answers))
    for start in range(0, len(chosen), batch_size):
        rows = chosen[start : start + batch_size]
        yield EncodedStories(*(part[rows] for part in stories))


def insert_empty_sentences(
    stories: EncodedStories, num_sentences: int, generator: np.random.Generator
) -> EncodedStories:
    """The same stories with empty sentences at random places, so that each has `num_sentences` in all.

    It is the "random noise" of Sukhbaatar et al. 2015, section 4.1: a sentence then seems older than it is.
    """
    number, given, words = stories.sentences.shape
    sentences = np.zeros((number, num_sentences, words), dtype=np.int64)
    # The places of the given sentences: a random subset, in ascending order, for each story.
    places = np.sort(generator.permuted(np.tile(np.arange(num_sentences), (number, 1)), axis=1)[:, :given], axis=1)
    np.put_along_axis(sentences, places[..., None], stories.sentences, axis=1)
    return stories._replace(sentences=sentences)


def compute_loss(network: MemoryNetwork, stories: EncodedStories) -> Tensor:
    """Cross-entropy of the answers in nats, summed over the stories."""
    sentences, questions, answers = map(torch.from_numpy, stories)
    return F.cross_entropy(network(sentences, questions), answers, reduction="sum")


@torch.no_grad()
def measure_accuracy(network: MemoryNetwork, stories: EncodedStories) -> float:
    """Share of the questions whose most probable answer is right."""
    sentences, questions, answers = map(torch.from_numpy, stories)
    return float((network(sentences, questions).argmax(dim=-1) == answers).float().mean())


WEIGHTS = "memory-network.safetensors"
"""Name of the file of a trained memory network."""


def save_memory_network(network: MemoryNetwork, folder: Path) -> None:
    """Write a network to `folder`, completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / WEIGHTS) as path:
        write_tensors(path, collect_model_tensors(network))


@torch.no_grad()
def weigh_sentences(network: MemoryNetwork, story: Story) -> list[list[float]]:
    """For each hop, the weight of each sentence of a story, in the order of `story.sentences`; a hop's sum to 1."""
    sentences, questions, _ = map(torch.from_numpy, encode_stories([story]))
    # The network has the latest sentence first.
    return [weights[0].flip(0).tolist() for weights, _ in network.iterate_hops(sentences, questions)]


def load_memory_network(settings: MemoryNetworkSettings, folder: Path) -> MemoryNetwork:
    """The network that `train_memory_network` wrote to `folder`.

    Raises:
        BundleError: the file is missing or damaged, or its network is one of other settings.
    """
    network = make_memory_network(settings)
    load_tensors(network, read_tensors(folder / WEIGHTS), str(folder / WEIGHTS))
    return network.eval()


@use_one_thread()  # the networks are so small that threads would only wait for each other
def train_transformer(settings: TransformerSettings, seed: int, folder: Path, report: Report) -> Measurements:  # noqa: ARG001 - as every training function
    """Train a Transformer on the same stories as `train_memory_network` with the same seed, and measure it.

    Its source is the story in the order of telling, then the question; its target is the answer. Nothing is written to
    `folder`.

    Raises:
        ConfigError: the settings of the stories or of the network are impossible.
    """
    stories = [
        story for kind in settings.stories.kinds for story in draw_stories(settings.stories, seed, "training", kind)
    ]
    updates_per_epoch = math.ceil(len(stories) / settings.batch_size)
    training = TrainingConfig(
        updates=settings.epochs * updates_per_epoch,
        schedule="linear",
        learning_rate=settings.learning_rate,
        warmup=settings.warmup,
        label_smoothing=0.0,
        precision="float32",
        seed=seed,
    )
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(settings.model_config)
        updater = Updater(model, training, torch.device("cpu"))
        generator = np.random.default_rng(seed)
        update = 0
        for epoch in range(settings.epochs):
            losses = []
            for rows in np.array_split(generator.permutation(len(stories)), updates_per_epoch):
                update += 1
                losses.append(updater.update(update, [make_batch([stories[row] for row in rows])]).loss)
            report(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")
    seconds = time.perf_counter() - start
    accuracy = {}
    for kind in settings.stories.kinds:
        accuracy[kind] = measure_transformer_accuracy(model, draw_stories(settings.stories, seed, "test", kind))
    return Measurements(model.num_parameters, seconds, accuracy)


def make_batch(stories: Sequence[Story]) -> Batch:
    """Story and question as one source, and the answer as target, for a Transformer."""
    sources = []
    for story in stories:
        parts = [[*(WORD_IDS[word] for word in part.split()), PERIOD] for part in (*story.sentences, story.question)]
        sources.append([*(number for part in parts for number in part), END])
    return Batch.from_ids(sources, [[WORD_IDS[story.answer], END] for story in stories], PERIOD + 1)


@torch.no_grad()
def measure_transformer_accuracy(model: Transformer, stories: Sequence[Story]) -> float:
    """Share of the questions whose most probable answer is right."""
    batch = make_batch(stories)
    logits = model.eval()(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    # The answer is the first token, which depends on no other token of the target.
    return float((logits[:, 0].argmax(dim=-1) == batch.target_ids[:, 0]).float().mean())
