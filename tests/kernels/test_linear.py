"""Linear transformations against torch's own."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.kernels import linear as linear_module
from transduce.kernels.device import ComputePrecision
from transduce.kernels.linear import (
    MIN_WEIGHTS_OF_BFLOAT16,
    FrozenLinear,
    Linear,
    MixedPrecisionLinear,
    PackedLinear,
    has_packed_bfloat16,
)


@pytest.fixture
def linear() -> Linear:
    torch.manual_seed(3)
    return Linear(6, 4)


def test_computes_in_the_type_of_its_inputs_and_keeps_its_own(linear: Linear) -> None:
    inputs = torch.randn(3, 5, 6).bfloat16()
    outputs = linear(inputs)
    outputs.sum().backward()
    assert outputs.dtype == torch.bfloat16
    assert linear.weight.grad.dtype == linear.bias.grad.dtype == torch.float32
    torch.testing.assert_close(outputs.float(), nn.Linear.forward(linear, inputs.float()), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("num_rows", [0, 1, 6, 7, 8, 14, 15, 20])
@pytest.mark.parametrize("part", [None, slice(1, 3)])
def test_blocks_make_no_difference(
    linear: Linear, num_rows: int, part: slice | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_module, "BLOCK", 7)
    inputs = torch.randn(num_rows, 6).bfloat16().requires_grad_()
    weight, bias = (one.detach()[part or slice(None)].bfloat16().requires_grad_() for one in linear.parameters())
    same_inputs = inputs.detach().clone().requires_grad_()
    outputs, expected = linear(inputs, part), F.linear(same_inputs, weight, bias)
    outer = torch.randn_like(outputs)
    outputs.backward(outer)
    expected.backward(outer)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(inputs.grad, same_inputs.grad)
    for own, other in ((linear.weight, weight), (linear.bias, bias)):
        torch.testing.assert_close(own.grad[part or slice(None)], other.grad.float(), atol=1e-2, rtol=1e-2)


def test_blocks_of_sentences_with_relu(linear: Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    """As self-attention gives and the feed-forward network takes them: transposed."""
    monkeypatch.setattr(linear_module, "BLOCK", 7)
    inputs = torch.randn(6, 3, 5).bfloat16().requires_grad_()
    same_inputs = inputs.detach().clone().requires_grad_()
    linear(inputs.transpose(0, 2), should_apply_relu=True).sum().backward()
    weight, bias = linear.weight.detach().bfloat16(), linear.bias.detach().bfloat16()
    torch.relu(F.linear(same_inputs.transpose(0, 2), weight, bias)).sum().backward()
    torch.testing.assert_close(inputs.grad, same_inputs.grad)


def test_products_for_training_have_few_shapes(linear: Linear) -> None:
    with torch.profiler.profile(record_shapes=True) as profile:
        for num_rows in range(2 * linear_module.BLOCK + 1, 3 * linear_module.BLOCK, 100):
            inputs = torch.randn(1, num_rows, 6).bfloat16().requires_grad_()
            linear(inputs).sum().backward()
    shapes = {str(event.input_shapes) for event in profile.events() if event.name in ("aten::mm", "aten::addmm")}
    assert len(shapes) == 3 * 2


def test_in_float32_equals_torch_to_the_bit(linear: Linear) -> None:
    inputs = torch.randn(3, 6)
    assert torch.equal(linear(inputs), nn.Linear.forward(linear, inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_rows", "width", "num_outputs"), [(0, 300, 272), (1, 6, 4), (37, 64, 48), (300, 300, 272)]
)
@pytest.mark.parametrize("should_apply_relu", [False, True])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_outputs_and_gradients_are_those_of_float64(
    num_rows: int, width: int, num_outputs: int, num_threads: int, dtype: torch.dtype, *, should_apply_relu: bool
) -> None:
    torch.manual_seed(3)
    linear = Linear(width, num_outputs)
    with torch.no_grad():  # so that both round the same weights
        linear.weight.copy_(linear.weight.to(dtype))
        linear.bias.copy_(linear.bias.to(dtype))
    inputs, outer = torch.randn(num_rows, width).to(dtype), torch.randn(num_rows, num_outputs).to(dtype)
    exact_inputs, exact_weight, exact_bias = (
        part.detach().double().requires_grad_() for part in (inputs, linear.weight, linear.bias)
    )
    before = F.linear(exact_inputs, exact_weight, exact_bias)
    if should_apply_relu:  # outputs so near to zero that rounding decides have no gradient
        outer[before.abs() < 1e-3] = 0
    exact = before.relu() if should_apply_relu else before
    expected = [exact, *torch.autograd.grad(exact, (exact_inputs, exact_weight, exact_bias), outer.double())]
    threads = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        inputs.requires_grad_()
        outputs = linear(inputs, should_apply_relu=should_apply_relu)
        found = [outputs, *torch.autograd.grad(outputs, (inputs, linear.weight, linear.bias), outer)]
    finally:
        torch.set_num_threads(threads)
    precision = {torch.float32: 2**-23, torch.bfloat16: 2**-8}[dtype]
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= 4 * precision * other.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [6, 300])
def test_a_weight_that_is_no_number_is_not_hidden_by_relu(width: int, dtype: torch.dtype) -> None:
    linear = Linear(width, width)
    with torch.no_grad():
        linear.weight[1, 2] = torch.nan
    outputs = linear(torch.ones(3, width, dtype=dtype), should_apply_relu=True)
    assert outputs.isnan().any(dim=0).nonzero().flatten().tolist() == [1]


def test_without_gradients_relu_is_the_same(linear: Linear) -> None:
    inputs = torch.randn(3, 6)
    with torch.no_grad():
        torch.testing.assert_close(linear(inputs, should_apply_relu=True), linear(inputs).relu())


def test_some_rows_are_some_outputs(linear: Linear) -> None:
    inputs = torch.randn(3, 6)
    torch.testing.assert_close(linear(inputs, slice(1, 3)), linear(inputs)[:, 1:3])


KINDS = [
    ComputePrecision(torch.float32),
    ComputePrecision(torch.bfloat16),
    ComputePrecision(torch.float32, is_mixed=True),
]


@pytest.mark.parametrize("precision", KINDS, ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_equals_torch(precision: ComputePrecision, *, with_bias: bool) -> None:
    random = torch.Generator().manual_seed(1)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=random)

    for rows, width, outputs in ((3, 40, 24), (70, 32, 96), (2, 1024, 512)):
        inputs, others, weight = draw(rows, width), draw(rows, outputs), draw(outputs, width) / width**0.5
        bias = draw(outputs) if with_bias else None
        layer = precision.make_linear(weight, bias)
        expected = F.linear(inputs, weight, bias)
        given, added = inputs.to(precision.compute_dtype), others.to(precision.compute_dtype)
        found = layer(given), layer.add(given, added), layer.relu(given)
        # Roundings, of half a step of the type each: input, weight, product and sum in bfloat16; in float32,
        # where both sides round, every term of a sum besides.
        is_bfloat16 = precision.compute_dtype == torch.bfloat16 or isinstance(layer, MixedPrecisionLinear)
        num_roundings, step = (4, 2**-8) if is_bfloat16 else (width + 4, 2**-24)
        terms = F.linear(inputs.abs(), weight.abs(), None if bias is None else bias.abs()) + others.abs()
        for one, wanted in zip(found, (expected, expected + others, expected.relu()), strict=True):
            assert ((one.float() - wanted).abs() <= num_roundings * step * terms).all()
        assert layer(given).dtype == precision.compute_dtype
        assert torch.equal(given, inputs.to(precision.compute_dtype)), "inputs stay as they are"


def test_the_kind_fits_type_and_size() -> None:
    small, large = torch.zeros(8, 8), torch.zeros(1024, MIN_WEIGHTS_OF_BFLOAT16 // 1024)
    assert [type(KINDS[0].make_linear(weight, None)) for weight in (small, large)] == [FrozenLinear, FrozenLinear]
    packed, of_large = (PackedLinear, MixedPrecisionLinear) if has_packed_bfloat16() else (FrozenLinear, FrozenLinear)
    assert [type(KINDS[1].make_linear(weight, None)) for weight in (small, large)] == [packed, packed]
    assert [type(KINDS[2].make_linear(weight, None)) for weight in (small, large)] == [FrozenLinear, of_large]


def test_weights_in_float32_are_shared_with_the_model() -> None:
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    assert KINDS[0].make_linear(weight, None).weight.data_ptr() == weight.data_ptr()
