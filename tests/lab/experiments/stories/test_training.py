import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from transduce.errors import BundleError
from transduce.lab.experiments.stories.stories import KINDS, encode_stories, generate_story
from transduce.lab.experiments.stories.training import (
    END,
    PERIOD,
    WEIGHTS,
    MemoryNetworkSettings,
    StorySettings,
    TransformerSettings,
    draw_stories,
    insert_empty_sentences,
    iterate_batches,
    join_stories,
    load_memory_network,
    make_batch,
    make_memory_network,
    train_memory_network,
    train_transformer,
    weigh_sentences,
)

TINY = StorySettings(num_stories=40, num_tests=20)
TINY_MEMORY = MemoryNetworkSettings(d_model=8, num_hops=2, epochs=2, max_linear_epochs=1, stories=TINY)
TINY_TRANSFORMER = TransformerSettings(
    d_model=8, d_ff=8, num_heads=2, num_encoder_layers=1, epochs=2, warmup=5, stories=TINY
)


def ignore(_: str) -> None:
    """A report that nobody reads."""


def test_a_memory_network_depends_on_its_seed_alone_and_is_read_back(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again, other = (
        train_memory_network(TINY_MEMORY, seed, tmp_path / name, ignore)
        for seed, name in ((1, "first"), (1, "again"), (2, "other"))
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert set(first.accuracy) == set(KINDS)
    assert dataclasses.replace(again, seconds=first.seconds) == first
    networks = [load_memory_network(TINY_MEMORY, tmp_path / name) for name in ("first", "again", "other")]
    assert all(torch.equal(one, two) for one, two in zip(networks[0].words, networks[1].words, strict=True))
    assert not torch.equal(networks[0].words[0], networks[2].words[0])
    assert first.num_parameters == other.num_parameters == networks[0].num_parameters
    for wrong in (dataclasses.replace(TINY_MEMORY, num_hops=3), dataclasses.replace(TINY_MEMORY, d_model=9)):
        with pytest.raises(BundleError, match=WEIGHTS):
            load_memory_network(wrong, tmp_path / "first")


def test_softmax_comes_back_after_the_linear_start(tmp_path: Path) -> None:
    messages: list[str] = []
    train_memory_network(TINY_MEMORY, 1, tmp_path, messages.append)
    assert messages[1] == "from now on with softmax"
    messages.clear()
    train_memory_network(dataclasses.replace(TINY_MEMORY, max_linear_epochs=0), 1, tmp_path, messages.append)
    assert len(messages) == 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_linear_start_ends_when_the_loss_on_the_validation_stories_rises(seed: int, tmp_path: Path) -> None:
    """With few stories and a high rate, which soon leads too far."""
    stories = StorySettings(kinds=(1,), num_stories=10, num_tests=20)
    settings = MemoryNetworkSettings(
        d_model=8, num_hops=2, learning_rate=0.1, epochs=30, halve_every=30, max_linear_epochs=30, stories=stories
    )
    messages: list[str] = []
    train_memory_network(settings, seed, tmp_path, messages.append)
    losses = [float(message.split()[3]) for message in messages[: messages.index("from now on with softmax")]]
    assert 2 < len(losses) < 30
    assert losses[:-1] == sorted(set(losses[:-1]), reverse=True)
    assert losses[-1] > losses[-2]


def test_the_rate_is_halved_every_few_epochs_and_is_half_in_the_linear_start(tmp_path: Path) -> None:
    settings = dataclasses.replace(
        TINY_MEMORY, epochs=7, halve_every=2, max_linear_epochs=3, learning_rate=0.008, batch_size=120
    )
    rates: list[float] = []  # an epoch is one update
    with register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])):
        train_memory_network(settings, 1, tmp_path, ignore)
    assert rates == pytest.approx([0.004, 0.004, 0.002, 0.004, 0.002, 0.002, 0.001])


def test_empty_sentences_are_between_the_others_in_training_alone(tmp_path: Path) -> None:
    settings = dataclasses.replace(TINY_MEMORY, stories=dataclasses.replace(TINY, num_sentences=(10, 10)))
    read: dict[bool, list[Tensor]] = {True: [], False: []}
    with register_module_forward_pre_hook(lambda network, inputs: read[network.training].append(inputs[0])):
        train_memory_network(settings, 1, tmp_path, ignore)
    is_empty, is_empty_in_tests = ((torch.cat(read[training]) == 0).all(dim=-1) for training in (True, False))
    assert is_empty.shape == (settings.epochs * 120, 11)
    assert (is_empty.sum(dim=1) == 1).all()  # a tenth of ten sentences
    assert is_empty.any(dim=0).all()
    assert is_empty_in_tests.size(1) == 10
    assert not is_empty_in_tests.any()


def test_a_transformer_depends_on_its_seed_alone(tmp_path: Path) -> None:
    losses: list[list[str]] = [[], [], []]
    first, again, _ = (
        train_transformer(TINY_TRANSFORMER, seed, tmp_path, messages.append)
        for seed, messages in zip((1, 1, 2), losses, strict=True)
    )
    assert dataclasses.replace(again, seconds=first.seconds) == first
    assert losses[0] == losses[1] != losses[2]


def test_one_fact_is_learned_in_seconds(tmp_path: Path) -> None:
    stories = StorySettings(kinds=(1,), num_stories=1500, num_tests=200)
    settings = MemoryNetworkSettings(d_model=32, num_hops=1, epochs=14, max_linear_epochs=3, stories=stories)
    measured = train_memory_network(settings, 1, tmp_path, ignore)
    assert measured.accuracy[1] > 0.9


def test_the_networks_have_about_equally_many_parameters() -> None:
    memory_network = make_memory_network(MemoryNetworkSettings()).num_parameters
    assert TransformerSettings().model_config.num_parameters == pytest.approx(memory_network, rel=0.15)


def test_parts_share_no_story() -> None:
    settings = StorySettings(num_stories=30, num_tests=10)
    parts = [set(draw_stories(settings, 1, part, 2)) for part in ("training", "validation", "test")]
    assert [len(part) for part in parts] == [30, 10, 10]
    assert len(set.union(*parts)) == 50


def test_every_story_is_in_one_batch_of_an_epoch() -> None:
    stories = encode_stories([generate_story(1, number, 1, (5, 8)) for number in range(23)])
    numbered = stories._replace(answers=np.arange(23))
    batches = list(iterate_batches(numbered, 10, np.random.default_rng(1)))
    assert [len(batch.answers) for batch in batches] == [10, 10, 3]
    assert sorted(np.concatenate([batch.answers for batch in batches]).tolist()) == list(range(23))
    for batch in batches:
        assert (batch.sentences == stories.sentences[batch.answers]).all()
        assert (batch.questions == stories.questions[batch.answers]).all()


def test_sets_of_stories_are_joined_whatever_their_lengths() -> None:
    parts = [encode_stories([generate_story(1, 0, 1, (length, length))]) for length in (5, 8)]
    joined = join_stories(iter(parts))
    assert joined.sentences.shape[:2] == (2, 8)
    assert (joined.sentences[0, :5] == parts[0].sentences[0]).all()
    assert (joined.sentences[0, 5:] == 0).all()


def test_empty_sentences_are_put_between_the_others() -> None:
    stories = encode_stories([generate_story(1, number, 1, (10, 10)) for number in range(200)])
    filled = insert_empty_sentences(stories, 12, np.random.default_rng(1))
    assert filled.sentences.shape[1] == 12
    is_empty = (filled.sentences == 0).all(axis=-1)
    assert (is_empty.sum(axis=1) == 2).all()
    assert (is_empty.mean(axis=0) > 0.08).all()  # at every place
    for before, after, empty in zip(stories.sentences, filled.sentences, is_empty, strict=True):
        assert (after[~empty] == before).all()  # and the order stays


def test_a_transformer_reads_story_and_question_and_writes_the_answer() -> None:
    stories = [generate_story(1, number, 2, (5, 9)) for number in range(3)]
    batch = make_batch(stories)
    for row, story in enumerate(stories):
        source = batch.source_ids[row][batch.source_mask[row]].tolist()
        assert source[-1] == END
        assert source.count(PERIOD) == len(story.sentences) + 1
        assert len(source) == sum(len(part.split()) + 1 for part in (*story.sentences, story.question)) + 1
    assert batch.target_ids.shape == (3, 2)
    assert (batch.target_ids[:, 1] == END).all()


def test_weights_of_sentences_are_in_the_order_of_telling(tmp_path: Path) -> None:
    train_memory_network(TINY_MEMORY, 1, tmp_path, ignore)
    network = load_memory_network(TINY_MEMORY, tmp_path)
    story = generate_story(1, 99, 2, (7, 7))
    hops = weigh_sentences(network, story)
    sentences, questions, _ = map(torch.from_numpy, encode_stories([story]))
    assert len(hops) == 2
    for hop, (weights, _) in zip(hops, network.iterate_hops(sentences, questions), strict=True):
        assert sum(hop) == pytest.approx(1)
        assert list(reversed(hop)) == pytest.approx(weights[0].tolist())
