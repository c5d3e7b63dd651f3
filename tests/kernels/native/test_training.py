import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels import layers
from transduce.kernels.native.library import OFF, VARIABLE, load_levels
from transduce.kernels.native.training import NativeDropout, add_native_numbers, differentiate_native_bias
from transduce.model import causal_attention_mask, source_attention_mask

pytestmark = pytest.mark.skipif(not load_levels(), reason="the library was not built")

LEVELS = [*load_levels()]
DTYPES = [torch.float32, torch.bfloat16]
PRECISION = {torch.float32: 2**-23, torch.bfloat16: 2**-8}
"""Distance of 1 and the next number."""

SCALE = 0.3
SHAPES = [
    # sentences, heads, queries, keys, d_k, d_v
    (3, 4, 13, 13, 32, 32),
    (2, 2, 1, 7, 16, 48),
    (3, 4, 20, 33, 64, 32),
    (1, 1, 128, 128, 32, 32),
    (5, 8, 17, 5, 64, 64),
]
Shape = tuple[int, int, int, int, int, int]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As each process has that computes a micro-batch."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    monkeypatch.setattr(layers, "MAX_WIDTH_IN_BFLOAT16", 64)  # the kernels compute it, if more slowly
    return str(request.param)


def make_heads(shape: Shape, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values whose heads are side by side in memory, as a projection gives them."""
    num_sentences, num_heads, num_queries, num_keys, d_k, d_v = shape
    torch.manual_seed(0)
    sizes = [(num_queries, d_k), (num_keys, d_k), (num_keys, d_v)]
    wide = [torch.randn(num_sentences, length, num_heads, width).to(dtype) for length, width in sizes]
    return [part.transpose(1, 2).requires_grad_() for part in wide]


def make_mask(shape: Shape) -> Tensor:
    num_sentences, _, num_queries, num_keys, _, _ = shape
    if num_queries == num_keys:
        return causal_attention_mask(num_queries, torch.device("cpu"))
    lengths = torch.randint(1, num_keys + 1, (num_sentences, 1))
    return source_attention_mask(torch.arange(num_keys) < lengths)


def attend(parts: list[Tensor], mask: Tensor, outer: Tensor) -> list[Tensor]:
    attended = layers.attend_to_few_keys(*parts, mask, SCALE)
    return [attended, *torch.autograd.grad(attended, parts, outer.to(attended.dtype))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_and_its_gradients_are_those_of_float64(level: str, shape: Shape, dtype: torch.dtype) -> None:
    """To rounding: in bfloat16 that of what is written; in float32 that of sums, whose errors grow with their roots."""
    parts, mask = make_heads(shape, dtype), make_mask(shape)
    outer = torch.randn(shape[0], shape[1], shape[2], shape[5]).to(dtype)
    expected = attend([part.detach().double().requires_grad_() for part in parts], mask, outer)
    terms = sum(shape[2:]) if dtype == torch.float32 else 4
    for found, exact in zip(attend(parts, mask, outer), expected, strict=True):
        assert found.dtype == dtype
        error = (found.double() - exact).norm() / exact.norm()
        assert error < PRECISION[dtype] * math.sqrt(terms), level


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sentence_alone_has_the_bits_that_it_has_in_its_batch(level: str, dtype: torch.dtype) -> None:
    shape = SHAPES[2]
    parts, mask, outer = make_heads(shape, dtype), make_mask(shape), torch.randn(3, 4, 20, 32)
    together = attend(parts, mask, outer)
    for sentence in range(shape[0]):
        only = slice(sentence, sentence + 1)
        alone = attend([part[only].detach().requires_grad_() for part in parts], mask[only], outer[only])
        for one, others in zip(alone, together, strict=True):
            assert torch.equal(one, others[only]), level


def test_keys_behind_the_mask_change_nothing(level: str) -> None:
    shape = SHAPES[2]
    parts, mask, outer = make_heads(shape, torch.float32), make_mask(shape), torch.randn(3, 4, 20, 32)
    before = attend(parts, mask, outer)
    hidden = ~mask[:, 0, 0]
    with torch.no_grad():
        for part in parts[1:]:
            part.transpose(1, 2)[hidden] = 1e4
    after = attend(parts, mask, outer)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other), level


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_relu", [False, True])
@pytest.mark.parametrize(("num_rows", "width"), [(1, 16), (7, 48), (300, 272), (0, 32)])
def test_gradients_before_bias_and_relu_are_torchs(
    level: str, num_rows: int, width: int, dtype: torch.dtype, *, has_relu: bool
) -> None:
    torch.manual_seed(0)
    outer = torch.randn(num_rows, width).to(dtype)
    outputs = torch.randn(num_rows, width).to(dtype).relu() if has_relu else None
    gradient, bias_gradient = differentiate_native_bias(outer, outputs, load_levels()[level])
    expected = outer if outputs is None else torch.where(outputs > 0, outer, 0)
    assert torch.equal(gradient, expected)
    assert bias_gradient.dtype == torch.float32
    torch.testing.assert_close(bias_gradient.double(), expected.double().sum(dim=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_added_in_float32(level: str, dtype: torch.dtype) -> None:
    sums, numbers = torch.randn(5, 48), torch.randn(5, 48).to(dtype)
    expected = sums + numbers
    add_native_numbers(sums, numbers, load_levels()[level])
    assert torch.equal(sums, expected)


@pytest.mark.parametrize("shape", [(3, 7, 32), (5, 300, 128), (2, 600, 48), (1, 1, 16), (3, 1024, 16)])
def test_normalization_in_bfloat16_and_its_gradients_are_those_of_float64(level: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(shape) + 0.5).bfloat16().requires_grad_()
    gain, bias = (torch.randn(shape[-1]).requires_grad_() for _ in range(2))
    outer = torch.randn(shape).bfloat16()
    outputs = layers.layer_normalization(inputs, gain, bias, 1e-5)
    found = [outputs, *torch.autograd.grad(outputs, (inputs, gain, bias), outer)]
    exact = [part.detach().double().requires_grad_() for part in (inputs, gain, bias)]
    wanted = F.layer_norm(exact[0], (shape[-1],), exact[1], exact[2], 1e-5)
    expected = [wanted, *torch.autograd.grad(wanted, exact, outer.double())]
    rounding, rounding_of_sums = PRECISION[torch.bfloat16], PRECISION[torch.float32] * math.prod(shape) ** 0.5
    bounds = [rounding, rounding, rounding_of_sums, rounding_of_sums]
    for one, other, bound in zip(found, expected, bounds, strict=True):
        assert one.dtype == (torch.bfloat16 if bound == rounding else torch.float32)
        assert (one.double() - other).norm() < bound * other.norm().clamp(min=1e-3), level


def test_dropout_drops_the_same_numbers_at_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in LEVELS:
        monkeypatch.setenv(VARIABLE, name)
        for dtype in DTYPES:
            torch.manual_seed(3)
            found.append(layers.dropout(torch.ones(9001, dtype=dtype), 0.3) != 0)
    assert all(torch.equal(one, found[0]) for one in found)


def test_dropout_is_the_same_with_any_number_of_threads() -> None:
    def drop(num_threads: int) -> Tensor:
        torch.set_num_threads(num_threads)
        torch.manual_seed(0)
        return layers.dropout(torch.ones(9001), 0.3)

    assert torch.equal(drop(1), drop(3))


def test_numbers_in_bfloat16_are_rounded_to_the_nearest(level: str) -> None:
    """Of two equally near ones to the even one, beyond the greatest to infinity: as PyTorch rounds."""
    inputs = torch.cat([torch.randn(999), torch.tensor([3.38e38, -3.38e38, torch.inf, 0.0, -0.0, 1e-40])]).bfloat16()
    for kept in (1, 40_000, 65_535):
        factor = 2**16 / kept
        found = NativeDropout.apply(inputs, kept, 7, load_levels()[level])
        expected = (inputs.float() * factor).bfloat16()
        is_kept = found.abs() > 0
        assert torch.equal(found[is_kept], expected[is_kept])
    # 1 + 2^-8 is halfway between 1 and 1 + 2^-7, 1 + 3 * 2^-8 between that and 1 + 2^-6.
    halves = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20] * 4)
    written = layers.layer_normalization(
        torch.zeros(1, 16, dtype=torch.bfloat16, requires_grad=True), torch.ones(16), halves, 1e-5
    )
    assert torch.equal(written[0], halves.bfloat16())


def test_what_is_dropped_is_zero_unless_it_is_no_number(level: str) -> None:
    """As `F.dropout`: what is not finite does not vanish."""
    for value in (torch.nan, torch.inf):
        dropped = NativeDropout.apply(torch.full((99,), value), 20_000, 7, load_levels()[level])
        assert not dropped.isfinite().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [1, 5, 16, 50, 2000])
@pytest.mark.parametrize("kernels", [OFF, *LEVELS])
def test_softmax_and_its_statistics_are_those_of_float64(
    kernels: str, vocabulary: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, kernels)
    torch.manual_seed(0)
    logits = (4 * torch.randn(20, vocabulary)).to(dtype)
    if vocabulary > 1:
        logits[:, -1] = -torch.inf
    targets = torch.randint(max(1, vocabulary - 1), (20,))
    exact = logits.double()
    log_totals, target_logits, greatest = layers.softmax_with_statistics(logits, targets)
    expected = exact.softmax(dim=-1)
    # An error of a difference of logits, which grows with it, is one of its power in proportion. Of at least four sums
    # side by side, each has a fourth of the powers.
    differences = (exact - exact.amax(dim=1, keepdim=True)).clamp(min=-100).abs()
    bound = PRECISION[dtype] + PRECISION[torch.float32] * (4 + differences + vocabulary / 8)
    assert ((logits.double() - expected).abs() <= bound * expected + 1e-30).all()
    assert torch.equal(target_logits.double(), exact.gather(1, targets[:, None]).squeeze(1))
    assert torch.equal(greatest.double(), exact.amax(dim=1))
    # Without compiled kernels the logarithm is of a probability in the type of the logits.
    is_rough = dtype == torch.bfloat16 and kernels == OFF
    assert np.allclose(log_totals, exact.logsumexp(dim=1), rtol=0, atol=PRECISION[dtype] if is_rough else 1e-5)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_of_logits_that_are_no_numbers_has_no_softmax(level: str, value: float) -> None:
    logits = torch.randn(3, 40)
    logits[1, 7] = value
    log_totals, _, _ = layers.softmax_with_statistics(logits, torch.zeros(3, dtype=torch.int64))
    assert logits[1].isnan().any(), level
    assert log_totals.isfinite().tolist() == [True, False, True]


def test_numbers_that_are_none_stay_that_in_bfloat16(level: str) -> None:
    inputs = torch.full((2, 16), torch.nan, dtype=torch.bfloat16)
    assert layers.dropout(inputs, 1e-7).isnan().any(), level
    assert layers.layer_normalization(inputs, torch.ones(16), torch.ones(16), 1e-5).isnan().all()
