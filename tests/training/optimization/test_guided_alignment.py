import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import TrainingConfig, TransformerConfig
from transduce.data import Batch, TokenStore, create_store
from transduce.model import Transformer, cross_attention_weights
from transduce.training.optimization import guided_alignment
from transduce.training.optimization.guided_alignment import (
    DIAGONAL_TENSIONS,
    MIN_COUNT,
    AlignmentModel,
    run_em_iteration,
    train_alignment_model,
)
from transduce.training.optimization.loss import compute_losses
from transduce.training.optimization.updater import Updater

NUM_WORDS = 30
FIRST = 2
VOCABULARY = FIRST + 2 * NUM_WORDS + 2
"""`<unk>`, `</s>`, words of both sides, a token that never occurs, `<pad>`."""
PAD = VOCABULARY - 1

Order = Callable[[np.random.Generator, int], Sequence[int]]
"""The source positions of the words of a target, given their number."""


def monotone(_: np.random.Generator, length: int) -> Sequence[int]:
    return range(length)


def any_order(random: np.random.Generator, length: int) -> Sequence[int]:
    order: list[int] = random.permutation(length).tolist()
    return order


def make_pairs(order: Order, count: int = 300) -> list[tuple[list[int], list[int], list[int]]]:
    """Sources, their translations word by word, and the source position of each target token, `</s>` included."""
    random = np.random.default_rng(2)
    pairs = []
    for _ in range(count):
        length = int(random.integers(3, 9))
        words = FIRST + random.choice(NUM_WORDS, size=length, replace=False)
        positions = list(order(random, length))
        pairs.append(([*words.tolist(), 1], [*(words[positions] + NUM_WORDS).tolist(), 1], [*positions, length]))
    return pairs


def learn(pairs: list[tuple[list[int], list[int], list[int]]], folder: Path) -> AlignmentModel:
    with create_store(folder / "store", VOCABULARY) as writer:
        for source, target, _ in pairs:
            writer.add(source, target)
    return train_alignment_model(TokenStore.open(folder / "store"), VOCABULARY)


@pytest.mark.parametrize("order", [monotone, any_order])
def test_finds_where_each_token_comes_from(tmp_path: Path, order: Order) -> None:
    pairs = make_pairs(order)
    model = learn(pairs, tmp_path)
    batch = Batch.from_ids([source for source, _, _ in pairs], [target for _, target, _ in pairs], PAD)
    weights, certainty = model.align(batch)
    for (_, _, positions), row, certain in zip(pairs, weights, certainty, strict=True):
        assert row[: len(positions)].argmax(dim=1).tolist() == positions
        assert certain[: len(positions)].min() > 0.5


def test_prefers_the_diagonal_as_far_as_the_text_does(tmp_path: Path) -> None:
    (tmp_path / "any").mkdir()
    free = learn(make_pairs(any_order), tmp_path / "any").diagonal_tension  # not 0, as `</s>` is always at the end
    assert free <= 2.0
    assert learn(make_pairs(monotone), tmp_path).diagonal_tension >= 6.0


def test_weights_sum_to_1_and_padding_has_none(tmp_path: Path) -> None:
    pairs = make_pairs(monotone)
    model = learn(pairs, tmp_path)
    batch = Batch.from_ids([pairs[0][0], [*range(2, 20), 1]], [pairs[0][1], [*range(2, 12), 1]], PAD)
    weights, certainty = model.align(batch)
    num_sources, num_targets = len(pairs[0][0]), len(pairs[0][1])
    torch.testing.assert_close(weights[0, :num_targets].sum(dim=1), torch.ones(num_targets), rtol=0, atol=1e-4)
    assert weights[0, :, num_sources:].count_nonzero() == 0
    assert certainty[0, num_targets:].count_nonzero() == 0
    alone = model.align(Batch.from_ids([pairs[0][0]], [pairs[0][1]], PAD))
    torch.testing.assert_close(weights[:1, :num_targets, :num_sources], alone[0])
    torch.testing.assert_close(certainty[:1, :num_targets], alone[1])


def test_a_token_that_is_not_known_has_no_alignment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guided_alignment, "MAX_TOKENS", NUM_WORDS)
    pairs = make_pairs(monotone)
    model = learn(pairs, tmp_path)
    assert model.target_given_source.shape == (NUM_WORDS + 1, NUM_WORDS + 1)
    unknown = VOCABULARY - 2
    weights, certainty = model.align(Batch.from_ids([[unknown, 1]], [[unknown, 1]], PAD))
    assert certainty[0, 0] == 0
    assert weights[0, 0].count_nonzero() == 0
    assert certainty[0, 1] > 0.5


def test_posteriors_follow_from_their_definition() -> None:
    torch.manual_seed(1)
    tables = torch.rand(6, 6), torch.rand(6, 6)
    model = AlignmentModel(torch.arange(6), *tables, diagonal_tension=3.0)
    source, target = [2, 4, 3], [5, 2]
    by_source, by_target = model.compute_posteriors(Batch.from_ids([source], [target], 0))
    prior = [
        [math.exp(-3 * abs((i + 0.5) / len(source) - (j + 0.5) / len(target))) for i in range(len(source))]
        for j in range(len(target))
    ]
    for j in range(len(target)):
        for i in range(len(source)):
            of_source = [float(tables[0][source[k], target[j]]) * prior[j][k] for k in range(len(source))]
            of_target = [float(tables[1][source[i], target[k]]) * prior[k][i] for k in range(len(target))]
            assert by_source[0, j, i].item() == pytest.approx(of_source[i] / sum(of_source), rel=1e-5)
            assert by_target[0, j, i].item() == pytest.approx(of_target[j] / sum(of_target), rel=1e-5)


def test_an_iteration_makes_probabilities_of_expected_counts() -> None:
    """Two words of the source, two of the target, without a preference for the diagonal, by hand."""
    start = AlignmentModel(torch.tensor([4, 0, 1, 2, 3]), torch.ones(5, 5), torch.ones(5, 5), diagonal_tension=0.0)
    first, second = Batch.from_ids([[1, 2]], [[3, 4]], 0), Batch.from_ids([[1]], [[3]], 0)
    found = run_em_iteration(start, iter([first, second]))
    # In the first pair each of two comes from each of two by halves; the second has one of each.
    counts = torch.full((4, 4), MIN_COUNT)
    counts[0, 2] += 0.5 + 1
    for row, column in ((0, 3), (1, 2), (1, 3)):
        counts[row, column] += 0.5
    torch.testing.assert_close(found.target_given_source[:4, :4], counts / counts.sum(dim=1, keepdim=True))
    torch.testing.assert_close(found.source_given_target[:4, :4], counts / counts.sum(dim=0, keepdim=True))
    for table in (found.target_given_source, found.source_given_target):
        assert table[4].count_nonzero() == table[:, 4].count_nonzero() == 0


def test_tables_are_probabilities(tmp_path: Path) -> None:
    model = learn(make_pairs(any_order), tmp_path)
    ones = torch.ones(len(model.target_given_source) - 1)
    torch.testing.assert_close(model.target_given_source[:-1].sum(dim=1), ones)
    torch.testing.assert_close(model.source_given_target[:, :-1].sum(dim=0), ones)


def test_learns_from_all_parts_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guided_alignment, "MAX_PAIRS", 100)
    pairs = [([2, 1], [40, 1], []) for _ in range(300)] + [([3, 1], [41, 1], []) for _ in range(300)]
    model = learn(pairs, tmp_path)
    _, certainty = model.align(Batch.from_ids([[2, 1], [3, 1]], [[40, 1], [41, 1]], PAD))
    assert certainty.min() > 0.9


@pytest.mark.parametrize("tension", DIAGONAL_TENSIONS)
def test_a_batch_without_a_loss_has_no_alignment(tmp_path: Path, tension: float) -> None:
    learned = learn(make_pairs(monotone, 20), tmp_path)
    model = AlignmentModel(learned.table_index, learned.target_given_source, learned.source_given_target, tension)
    weights, certainty = model.align(Batch.from_ids([[2, 1]], [[40, 1]], PAD).mask_loss())
    assert weights.count_nonzero() == certainty.count_nonzero() == 0


@pytest.mark.parametrize("num_threads", [1, 2])
def test_learning_is_a_pure_function_of_the_text(tmp_path: Path, num_threads: int) -> None:
    pairs = make_pairs(monotone, 50)
    (tmp_path / "again").mkdir()
    first = learn(pairs, tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        second = learn(pairs, tmp_path / "again")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(first.target_given_source, second.target_given_source)
    assert torch.equal(first.source_given_target, second.source_given_target)
    assert first.diagonal_tension == second.diagonal_tension


@pytest.fixture
def model() -> Transformer:
    return make_model()


def make_model(**changes: Any) -> Transformer:
    torch.manual_seed(5)
    sizes = {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 3}
    return Transformer(TransformerConfig(vocabulary=VOCABULARY, dropout=0.0, **{**sizes, **changes}))


def make_batch() -> Batch:
    pairs = make_pairs(monotone, 8)
    return Batch.from_ids([source for source, _, _ in pairs], [target for _, target, _ in pairs], PAD)


@pytest.fixture
def alignment(tmp_path: Path) -> AlignmentModel:
    """One that knows half of the words, so that tokens differ in how certain their alignment is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guided_alignment, "MAX_TOKENS", NUM_WORDS)
        return learn(make_pairs(monotone), tmp_path)


@pytest.mark.parametrize(("num_decoder_layers", "guided"), [(3, 1), (2, 0), (1, 0)])
@pytest.mark.parametrize("attention_score", ["scaled_dot", "additive"])
def test_the_loss_is_the_cross_entropy_of_one_head_against_the_alignment(
    alignment: AlignmentModel, num_decoder_layers: int, guided: int, attention_score: str
) -> None:
    model, batch = make_model(num_decoder_layers=num_decoder_layers, attention_score=attention_score), make_batch()
    found = compute_losses(model, batch, 0.1, alignment).alignment_loss
    layers = cross_attention_weights(model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    head = list(layers)[guided][:, 0].detach()
    weights, certainty = alignment.align(batch)
    assert len(certainty[batch.target_mask].unique()) > 10
    expected = -sum(
        float(certainty[row, target] * (weights[row, target] * head[row, target].log())[batch.source_mask[row]].sum())
        for row, target in batch.target_mask.nonzero().tolist()
    )
    assert found.item() == pytest.approx(expected, rel=1e-4)


def test_observing_changes_nothing_else(model: Transformer, alignment: AlignmentModel) -> None:
    batch = make_batch()
    plain, guided = compute_losses(model, batch, 0.1), compute_losses(model, batch, 0.1, alignment)
    assert plain.alignment_loss == 0
    for before, after in zip(plain[:3], guided[:3], strict=True):
        assert torch.equal(before, after)


def test_its_gradient_reaches_the_head_and_what_is_below_it(model: Transformer, alignment: AlignmentModel) -> None:
    compute_losses(model, make_batch(), 0.1, alignment).alignment_loss.backward()
    has_gradient = {name for name, one in model.named_parameters() if one.grad is not None and one.grad.any()}
    assert "decoder.layers.1.cross_attention.projection.weight" in has_gradient
    assert "encoder.layers.0.self_attention.projection.weight" in has_gradient
    assert not {name for name in has_gradient if name.startswith("decoder.layers.2")}
    width = model.config.d_k
    queries = model.decoder.layers[1].cross_attention.projection.weight.grad[: model.config.num_heads * width]
    assert queries[:width].any()
    assert not queries[width:].any()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_guided_head_learns_to_look_where_tokens_come_from(
    model: Transformer, alignment: AlignmentModel, precision: str
) -> None:
    batch = make_batch()
    config = TrainingConfig(
        guided_alignment=1.0, schedule="inverse_square_root", learning_rate=1e-2, warmup=5, precision=precision
    )
    updater = Updater(model, config, torch.device("cpu"))
    updater.set_alignment_model(alignment)
    before = compute_losses(model, batch, 0.0, alignment).alignment_loss.item()
    figures = [updater.update(number, [batch]) for number in range(1, 61)]
    after = compute_losses(model.eval(), batch, 0.0, alignment).alignment_loss.item()
    assert after < 0.5 * before
    assert figures[0].loss < 1.2 * math.log(VOCABULARY)  # what is reported is the loss of translation alone


def test_micro_batches_and_whole_batches_are_guided_alike(alignment: AlignmentModel) -> None:
    batch = make_batch()
    gradients = []
    for num_parts in (1, 2):
        model = make_model()
        updater = Updater(model, TrainingConfig(guided_alignment=1.0, precision="float32"), torch.device("cpu"))
        updater.set_alignment_model(alignment)
        updater.parallel_micro_batches = num_parts
        with closing(updater.processes):
            updater.sum_gradients(1, [batch], batch.num_target_tokens)
        gradients.append([one.grad.clone() for one in model.parameters()])
    for whole, divided in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, divided)


def test_with_r_drop_the_loss_is_the_mean_of_two_passes(alignment: AlignmentModel) -> None:
    """Which are equal here, as there is no dropout."""
    found = []
    for r_drop in (0.0, 5.0):
        model = make_model()
        losses = compute_losses(model, make_batch(), 0.1, alignment, r_drop)
        (losses.loss + losses.alignment_loss).backward()
        found.append((losses, [parameter.grad for parameter in model.parameters()]))
    (alone, gradients), (twice, same_gradients) = found
    torch.testing.assert_close(twice.alignment_loss, alone.alignment_loss)
    torch.testing.assert_close(twice.loss, alone.loss)
    torch.testing.assert_close(same_gradients, gradients)
