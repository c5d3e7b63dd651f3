"""Muon, against singular values and against PyTorch's own."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transduce.baselines import make_encoder_decoder
from transduce.config import RunConfig, TransformerConfig
from transduce.kernels.device import use_one_thread
from transduce.kernels.linear import Linear
from transduce.model import EncoderDecoder, MultiHeadAttention, OutputProjection, Transformer
from transduce.training.optimization.muon import STEP_SIZE, Muon, assign_matrices, find_matrices, orthogonalize

SIZES: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}


def make_model(**changes: Any) -> EncoderDecoder:
    torch.manual_seed(1)
    return make_encoder_decoder(TransformerConfig(vocabulary=30, **{**SIZES, **changes}))


def fill_gradients(model: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def step(optimizer: Muon, rate: float = 0.1) -> None:
    (group,) = optimizer.param_groups
    group["lr"] = rate
    optimizer.step()


@pytest.mark.parametrize("shape", [(3, 8, 20), (3, 20, 8), (2, 12, 12)], ids=str)
def test_the_singular_values_of_an_orthogonalized_block_are_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    blocks = torch.randn(*shape) * torch.tensor([1e-6, 1.0, 1e4])[: shape[0], None, None]
    found = orthogonalize(blocks)
    assert found.shape == blocks.shape
    left, values, right = torch.linalg.svd(blocks, full_matrices=False)
    # U and V stay; of the singular values, all but the smallest come near 1.
    diagonal = left.mT @ found @ right.mT
    torch.testing.assert_close(diagonal, torch.diag_embed(diagonal.diagonal(dim1=1, dim2=2)), rtol=0, atol=1e-3)
    large = values > 0.01 * values.norm(dim=1, keepdim=True)
    assert large.float().mean() > 0.9
    assert 0.65 < diagonal.diagonal(dim1=1, dim2=2)[large].min() <= diagonal.max() < 1.25


def test_blocks_of_zeros_stay_zeros_and_blocks_do_not_depend_on_each_other() -> None:
    torch.manual_seed(1)
    blocks = torch.randn(3, 6, 10)
    blocks[1] = 0
    found = orthogonalize(blocks)
    assert not found[1].any()
    for block, alone in zip(found, (orthogonalize(one[None])[0] for one in blocks), strict=True):
        torch.testing.assert_close(block, alone, rtol=0, atol=1e-5)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon since 2.9")
@pytest.mark.parametrize("shape", [(24, 16), (16, 24), (16, 16)], ids=str)
def test_steps_are_those_of_pytorch(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    ours = Linear(shape[1], shape[0])
    theirs = copy.deepcopy(ours)
    mine = Muon(find_matrices(ours), weight_decay=0.5)
    other = torch.optim.Muon([theirs.weight], lr=0.1, weight_decay=0.5, adjust_lr_fn="match_rms_adamw")
    before = ours.weight.detach().clone()
    for seed in (1, 2, 3):
        for model in (ours, theirs):
            fill_gradients(model, seed)
        step(mine)
        other.step()  # type: ignore[no-untyped-call]
    # PyTorch's iterates in bfloat16.
    moved, difference = (ours.weight.detach() - one.detach() for one in (before, theirs.weight))
    assert difference.norm() < 0.05 * moved.norm()


def test_a_step_is_as_long_as_that_of_adam() -> None:
    matrix = Linear(64, 48)
    optimizer = Muon(find_matrices(matrix), weight_decay=0.0)
    before = matrix.weight.detach().clone()
    fill_gradients(matrix, 1)
    step(optimizer, 0.01)
    assert (matrix.weight.detach() - before).square().mean().sqrt() == pytest.approx(0.01 * STEP_SIZE, rel=0.2)


def test_without_a_gradient_nothing_moves_and_weight_decay_alone_shrinks() -> None:
    matrix = Linear(8, 6)
    optimizer = Muon(find_matrices(matrix), weight_decay=0.5)
    before = matrix.weight.detach().clone()
    step(optimizer)
    assert torch.equal(matrix.weight, before)
    matrix.weight.grad = torch.zeros_like(matrix.weight)
    step(optimizer)
    torch.testing.assert_close(matrix.weight.detach(), 0.95 * before)


@pytest.mark.parametrize("widths", [{}, {"d_k": 4, "d_v": 6}, {"num_heads": 1}], ids=str)
def test_every_head_is_a_block(widths: dict[str, int]) -> None:
    model = make_model(**widths)
    attention = next(module for module in model.modules() if isinstance(module, MultiHeadAttention))
    heads, d_k, d_v = attention.num_heads, attention.d_k, attention.d_v
    split = {matrix.weight: matrix.split for matrix in find_matrices(model)}

    expected = torch.split(attention.projection.weight, [d_k] * 2 * heads + [d_v] * heads)
    found = [block for blocks in split[attention.projection.weight](attention.projection.weight) for block in blocks]
    assert [block.tolist() for block in found] == [part.tolist() for part in expected]

    expected = torch.split(attention.output.weight, [d_v] * heads, dim=1)
    found = [block for blocks in split[attention.output.weight](attention.output.weight) for block in blocks]
    assert [block.tolist() for block in found] == [part.tolist() for part in expected]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"feed_forward": "gated", "positions": "relative", "normalization": "rms"},
        {"attention_score": "additive", "tied_embeddings": "none", "output_bias": True, "positions": "learned"},
        *({"architecture": name} for name in ("recurrent", "bytenet")),
    ],
    ids=str,
)
def test_the_matrices_of_all_linear_transformations_are_moved_and_nothing_else(changes: dict[str, Any]) -> None:
    model = make_model(**changes)
    assert not any(
        isinstance(part, Linear) for part in (*model.projection.modules(), *model.source_embedding.modules())
    )
    assert isinstance(model.projection, OutputProjection)
    fill_gradients(model, 1)
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    step(Muon(find_matrices(model), weight_decay=0.0))
    moved = {name for name, tensor in model.named_parameters() if not torch.equal(tensor, before[name])}
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear)}
    assert moved == linear
    assert len(linear) >= 6


def test_a_head_moves_as_if_it_were_alone() -> None:
    model = make_model()
    assert isinstance(model, Transformer)
    (attention, *_) = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    fill_gradients(model, 1)
    first: Tensor = attention.projection.weight.detach()[:8].clone()
    alone = Linear(16, 8)
    with torch.no_grad():
        alone.weight.copy_(first)
    assert attention.projection.weight.grad is not None
    alone.weight.grad = attention.projection.weight.grad[:8].clone()
    for part in (model, alone):
        step(Muon(find_matrices(part), weight_decay=0.1))
    torch.testing.assert_close(attention.projection.weight[:8], alone.weight, rtol=0, atol=1e-6)


def test_ranks_have_about_the_same_work() -> None:
    matrices = find_matrices(make_model(num_encoder_layers=6, num_decoder_layers=6))
    assert assign_matrices(matrices, 1) == [0] * len(matrices)
    for num_ranks in (2, 3, 8):
        owners = assign_matrices(matrices, num_ranks)
        assert set(owners) == set(range(num_ranks))
        # All matrices of feed-forward networks cost the same, and more than any other.
        counts = [0] * num_ranks
        for matrix, owner in zip(matrices, owners, strict=True):
            counts[owner] += 24 in matrix.weight.shape
        assert max(counts) - min(counts) <= 1
    assert len(set(assign_matrices(matrices[:2], 8))) == 2


def test_threads_change_nothing() -> None:
    model = make_model()
    found = []
    for num_threads in (1, 3):
        copied = copy.deepcopy(model)
        fill_gradients(copied, 1)
        optimizer = Muon(find_matrices(copied), weight_decay=0.1)
        optimizer.num_threads = num_threads
        with use_one_thread():
            assert optimizer.measure_seconds() > 0
            assert not optimizer.state
            step(optimizer)
        found.append([parameter.detach().numpy().tobytes() for parameter in copied.parameters()])
    assert found[0] == found[1]


def test_it_is_not_for_normalized_weights() -> None:
    settings = {"model": {"architecture": "convs2s"}, "training": {"optimizer": "muon"}}
    with pytest.raises(
        ValueError, match=r'training\.optimizer = "muon" needs .*convs2s.* set training\.optimizer to "adam"'
    ):
        RunConfig.model_validate(settings)
