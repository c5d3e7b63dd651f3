import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.kernels.layers import (
    MAX_FEW_KEYS,
    _compute_row_max,
    attend_to_few_keys,
    dropout,
    layer_normalization,
    softmax_with_statistics,
)
from transduce.kernels.native.library import OFF, VARIABLE
from transduce.model import DotScore, causal_attention_mask, source_attention_mask

NUMBERS = 2**20


@pytest.fixture(params=["", OFF], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test runs with the compiled kernels, if the library was built, and without; with one thread, as they do."""
    monkeypatch.setenv(VARIABLE, request.param)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_a_share_of_p_becomes_zero_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(NUMBERS), p)
    deviation = (p * (1 - p) / NUMBERS) ** 0.5
    assert (dropped == 0).double().mean().item() == pytest.approx(p, abs=4 * deviation + 2**-17)
    assert dropped[dropped != 0].unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-3)
    assert dropped.double().mean().item() == pytest.approx(1, abs=4 * deviation / (1 - p))


def test_no_two_numbers_fall_together() -> None:
    """Four numbers share one draw of 64 bits: they must be as independent as numbers of different draws."""
    torch.manual_seed(0)
    kept = (dropout(torch.ones(NUMBERS), 0.5) != 0).double().view(-1, 4)
    within = torch.corrcoef(kept.T)
    limit = 4.5 / len(kept) ** 0.5
    for first, second in itertools.combinations(range(4), 2):
        assert abs(within[first, second].item()) < limit
    for lag in (1, 2, 3, 4, 5, 8):
        pair = torch.stack([kept.flatten()[:-lag], kept.flatten()[lag:]])
        assert abs(torch.corrcoef(pair)[0, 1].item()) < limit


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 5), (0,)])
def test_any_number_of_numbers(shape: tuple[int, ...]) -> None:
    dropped = dropout(torch.ones(shape), 0.5)
    assert dropped.shape == shape
    assert set(dropped.flatten().tolist()) <= {0.0, 2.0}


def test_the_seed_decides() -> None:
    def drop(seed: int) -> list[float]:
        torch.manual_seed(seed)
        kept: list[float] = dropout(torch.ones(101), 0.5).tolist()
        return kept

    assert drop(1) == drop(1)
    assert drop(1) != drop(2)


def test_the_gradient_takes_the_same_way() -> None:
    numbers = torch.ones(101, requires_grad=True)
    dropped = dropout(numbers, 0.3)
    dropped.sum().backward()
    assert numbers.grad is not None
    assert torch.equal(numbers.grad, dropped.detach())


@pytest.mark.parametrize("p", [1e-7, 1 - 1e-7])
def test_the_outermost_p_are_neither_all_nor_nothing(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(NUMBERS), p)
    assert dropped.isfinite().all()
    assert (dropped == 0).double().mean().item() == pytest.approx(round(p), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_type_stays(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(9, dtype=dtype), 0.5).dtype == dtype


@pytest.mark.parametrize("d_model", [128, 512])
def test_gradients_in_bfloat16_lose_nothing_over_many_positions(d_model: int) -> None:
    """Compared with float64: torch's own, on a CPU, are a fifth of gain's gradient short here."""
    torch.manual_seed(0)
    inputs = torch.randn(16, 256, d_model) + 0.5
    outer = (0.01 * torch.randn_like(inputs) + 0.003 * inputs).bfloat16()
    gain, bias = nn.Parameter(torch.empty(d_model).normal_(1, 0.2)), nn.Parameter(torch.empty(d_model).normal_(0, 0.2))
    theirs = nn.LayerNorm(d_model, dtype=torch.float64)
    theirs.load_state_dict({"weight": gain, "bias": bias})
    ours_in, theirs_in = (inputs.bfloat16().to(dtype).requires_grad_() for dtype in (torch.bfloat16, torch.float64))
    ours_out = layer_normalization(ours_in, gain, bias, 1e-5)
    theirs_out = theirs(theirs_in)
    torch.testing.assert_close(ours_out.double(), theirs_out, atol=0.01, rtol=0.01)
    ours_out.backward(outer)
    theirs_out.backward(outer.double())
    pairs = [
        (gain, theirs.weight),
        (bias, theirs.bias),
        (ours_in, theirs_in),
    ]
    for ours, wanted in pairs:
        assert ours.grad is not None
        assert wanted.grad is not None
        assert ours.grad.dtype == ours.dtype
        assert (ours.grad.double() - wanted.grad).norm() < 0.005 * wanted.grad.norm()


SCALE = 0.4
WIDTHS = [(6, 10), (16, 48)]
"""d_k and d_v; the compiled kernels take the second."""


def inputs(
    num_queries: int, num_keys: int, dtype: torch.dtype = torch.float32, widths: tuple[int, int] = WIDTHS[0]
) -> list[Tensor]:
    """Queries, keys and values of 3 sentences and 2 heads, as views of one projection: heads are not contiguous."""
    torch.manual_seed(num_queries * num_keys)
    d_k, d_v = widths
    shapes = [(num_queries, d_k), (num_keys, d_k), (num_keys, d_v)]
    wide = [torch.randn(3, length, 2 * width, dtype=dtype) for length, width in shapes]
    return [part.unflatten(-1, (2, -1)).transpose(1, 2).requires_grad_() for part in wide]


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (5, 5), (3, 9), (9, 3), (16, 16), (15, 17), (40, 40)])
@pytest.mark.parametrize("kind", ["causal", "source"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_equals_the_fused_operation_and_its_gradient(
    num_queries: int, num_keys: int, kind: str, widths: tuple[int, int]
) -> None:
    if kind == "causal":
        num_keys = num_queries
        mask = causal_attention_mask(num_queries, torch.device("cpu"))
    else:
        lengths = torch.tensor([num_keys, (num_keys + 1) // 2, 1])
        mask = source_attention_mask(torch.arange(num_keys) < lengths[:, None])
    ours = inputs(num_queries, num_keys, widths=widths)
    theirs = inputs(num_queries, num_keys, widths=widths)
    found = attend_to_few_keys(*ours, mask, SCALE)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=mask, scale=SCALE)
    outer = torch.randn_like(expected)
    found.backward(outer)
    expected.backward(outer)
    if widths == WIDTHS[0]:
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-5)
    # Either rounds every term of its sums, whose errors grow with the root of their number.
    bound = 2**-22 * math.sqrt(sum(widths) + num_keys)
    for one, other in [(found, expected), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]:
        assert (one - other).norm() <= bound * other.norm()


def test_gradient_is_that_of_finite_differences() -> None:
    mask = causal_attention_mask(4, torch.device("cpu"))
    parts = inputs(4, 4, torch.float64)
    assert torch.autograd.gradcheck(lambda *parts: attend_to_few_keys(*parts, mask, SCALE), parts)


@pytest.mark.parametrize("widths", WIDTHS)
def test_bfloat16_is_close(widths: tuple[int, int]) -> None:
    mask = causal_attention_mask(20, torch.device("cpu"))
    exact = inputs(20, 20, widths=widths)
    rough = [part.detach().bfloat16().requires_grad_() for part in exact]
    outer = torch.randn(3, 2, 20, widths[1])
    fine = attend_to_few_keys(*exact, mask, SCALE)
    found = attend_to_few_keys(*rough, mask, SCALE)
    fine.backward(outer)
    found.backward(outer.bfloat16())
    assert found.dtype == torch.bfloat16
    for one, other in [(found, fine), *((a.grad, b.grad) for a, b in zip(rough, exact, strict=True))]:
        assert (one.float() - other).norm() < 0.01 * other.norm()


@pytest.mark.parametrize("widths", WIDTHS)
def test_huge_scores_stay_finite(widths: tuple[int, int]) -> None:
    mask = causal_attention_mask(5, torch.device("cpu"))
    parts = [1e4 * part.detach() for part in inputs(5, 5, widths=widths)]
    assert attend_to_few_keys(*parts, mask, SCALE).isfinite().all()


@pytest.mark.parametrize("num_keys", [MAX_FEW_KEYS, MAX_FEW_KEYS + 1])
@pytest.mark.parametrize("widths", WIDTHS)
def test_long_and_short_sentences_have_the_same_attention_in_training_and_translation(
    num_keys: int, widths: tuple[int, int]
) -> None:
    parts = inputs(3, num_keys, widths=widths)
    mask = torch.ones(1, 1, 3, num_keys, dtype=torch.bool)
    score = DotScore(widths[0], scaled=True)
    with torch.no_grad():
        expected = score.attend(*parts, mask)
    torch.testing.assert_close(score.attend(*parts, mask), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "numbers", [[[3.0, -1.0, 0.0]], [[-3.0, -1.0, -torch.inf]], [[-0.0, -1.0, -2.0]], [[1.0, -4.0], [-5.0, -2.0]]]
)
def test_the_maximum_of_a_row_is_that_of_its_bits(numbers: list[list[float]]) -> None:
    rows = torch.tensor(numbers, dtype=torch.bfloat16)
    assert torch.equal(_compute_row_max(rows), rows.amax(dim=-1))


@pytest.mark.parametrize("targets", [torch.tensor([3, 50]), torch.tensor([3, -1])])
def test_a_target_outside_of_the_vocabulary_is_an_error(targets: Tensor) -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        softmax_with_statistics(torch.randn(2, 50), targets)
