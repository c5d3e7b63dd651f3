import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.attention import MOST_PLAIN_KEYS, plain_attention
from transduce.model import DotScore, causal_attention_mask, source_attention_mask

D_K, D_V, SCALE = 6, 10, 0.4


def inputs(num_queries: int, num_keys: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Queries, keys and values of 3 sentences and 2 heads, as views of one projection: heads are not contiguous."""
    torch.manual_seed(num_queries * num_keys)
    shapes = [(num_queries, D_K), (num_keys, D_K), (num_keys, D_V)]
    wide = [torch.randn(3, length, 2 * width, dtype=dtype) for length, width in shapes]
    return [part.unflatten(-1, (2, -1)).transpose(1, 2).requires_grad_() for part in wide]


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (5, 5), (3, 9), (9, 3), (16, 16), (15, 17), (40, 40)])
@pytest.mark.parametrize("kind", ["causal", "source"])
def test_equals_the_fused_operation_and_its_gradient(num_queries: int, num_keys: int, kind: str) -> None:
    if kind == "causal":
        num_keys = num_queries
        mask = causal_attention_mask(num_queries, torch.device("cpu"))
    else:
        lengths = torch.tensor([num_keys, (num_keys + 1) // 2, 1])
        mask = source_attention_mask(torch.arange(num_keys) < lengths[:, None])
    ours = inputs(num_queries, num_keys)
    theirs = inputs(num_queries, num_keys)
    found = plain_attention(*ours, mask, SCALE)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=mask, scale=SCALE)
    outer = torch.randn_like(expected)
    found.backward(outer)
    expected.backward(outer)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-5)


def test_gradient_is_that_of_finite_differences() -> None:
    mask = causal_attention_mask(4, torch.device("cpu"))
    parts = inputs(4, 4, torch.float64)
    assert torch.autograd.gradcheck(lambda *parts: plain_attention(*parts, mask, SCALE), parts)


def test_bfloat16_is_close() -> None:
    mask = causal_attention_mask(20, torch.device("cpu"))
    exact = inputs(20, 20)
    rough = [part.detach().bfloat16().requires_grad_() for part in exact]
    outer = torch.randn(3, 2, 20, D_V)
    fine = plain_attention(*exact, mask, SCALE)
    found = plain_attention(*rough, mask, SCALE)
    fine.backward(outer)
    found.backward(outer.bfloat16())
    assert found.dtype == torch.bfloat16
    for one, other in [(found, fine), *((a.grad, b.grad) for a, b in zip(rough, exact, strict=True))]:
        assert (one.float() - other).norm() < 0.01 * other.norm()


def test_huge_scores_stay_finite() -> None:
    mask = causal_attention_mask(5, torch.device("cpu"))
    parts = [1e4 * part.detach() for part in inputs(5, 5)]
    assert plain_attention(*parts, mask, SCALE).isfinite().all()


@pytest.mark.parametrize("num_keys", [MOST_PLAIN_KEYS, MOST_PLAIN_KEYS + 1])
def test_long_and_short_sentences_have_the_same_attention_in_training_and_translation(num_keys: int) -> None:
    parts, mask = inputs(3, num_keys), torch.ones(1, 1, 3, num_keys, dtype=torch.bool)
    score = DotScore(D_K, scaled=True)
    with torch.no_grad():
        expected = score.attend(*parts, mask)
    torch.testing.assert_close(score.attend(*parts, mask), expected, atol=1e-6, rtol=1e-5)
