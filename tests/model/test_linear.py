import pytest
import torch
from torch import nn

from transduce.model.linear import Linear


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


def test_in_float32_equals_torch_to_the_bit(linear: Linear) -> None:
    inputs = torch.randn(3, 6)
    assert torch.equal(linear(inputs), nn.Linear.forward(linear, inputs))


def test_some_rows_are_some_outputs(linear: Linear) -> None:
    inputs = torch.randn(3, 6)
    torch.testing.assert_close(linear(inputs, slice(1, 3)), linear(inputs)[:, 1:3])
