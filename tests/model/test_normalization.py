from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model import BatchNormalization, LayerNormalization, ResidualConnection

ALL_REAL = torch.ones(4, 6, dtype=torch.bool)
RAGGED = torch.arange(6) < torch.tensor([6, 2, 1, 5])[:, None]


@pytest.fixture
def inputs() -> Tensor:
    torch.manual_seed(0)
    return 3 + 2 * torch.randn(4, 6, 16)


@pytest.fixture
def batch_norm() -> BatchNormalization:
    normalization = BatchNormalization(16)
    nn.init.normal_(normalization.gain)
    nn.init.normal_(normalization.bias)
    return normalization


def of_torch(ours: BatchNormalization) -> nn.BatchNorm1d:
    theirs = nn.BatchNorm1d(16)
    with torch.no_grad():
        theirs.weight.copy_(ours.gain)
        theirs.bias.copy_(ours.bias)
    return theirs


def test_layer_normalisation_is_the_formula(inputs: Tensor) -> None:
    normalization = LayerNormalization(16)
    nn.init.normal_(normalization.gain)
    nn.init.normal_(normalization.bias)
    mean = inputs.mean(dim=-1, keepdim=True)
    variance = inputs.var(dim=-1, keepdim=True, correction=0)
    expected = (inputs - mean) / (variance + 1e-5).sqrt() * normalization.gain + normalization.bias
    torch.testing.assert_close(normalization(inputs, ALL_REAL), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("d_model", [128, 512])
def test_gradients_in_bfloat16_lose_nothing_over_many_positions(d_model: int) -> None:
    """Compared with float64: torch's own, on a CPU, are a fifth of gain's gradient short here."""
    torch.manual_seed(0)
    inputs = torch.randn(16, 256, d_model) + 0.5
    outer = (0.01 * torch.randn_like(inputs) + 0.003 * inputs).bfloat16()
    normalization = LayerNormalization(d_model)
    nn.init.normal_(normalization.gain, mean=1, std=0.2)
    nn.init.normal_(normalization.bias, std=0.2)
    theirs = nn.LayerNorm(d_model, dtype=torch.float64)
    theirs.load_state_dict({"weight": normalization.gain, "bias": normalization.bias})
    ours_in, theirs_in = (inputs.bfloat16().to(dtype).requires_grad_() for dtype in (torch.bfloat16, torch.float64))
    ours_out = normalization(ours_in, torch.ones(inputs.shape[:2], dtype=torch.bool))
    theirs_out = theirs(theirs_in)
    torch.testing.assert_close(ours_out.double(), theirs_out, atol=0.01, rtol=0.01)
    ours_out.backward(outer)
    theirs_out.backward(outer.double())
    pairs = [
        (normalization.gain, theirs.weight),
        (normalization.bias, theirs.bias),
        (ours_in, theirs_in),
    ]
    for ours, wanted in pairs:
        assert ours.grad is not None
        assert wanted.grad is not None
        assert ours.grad.dtype == ours.dtype
        assert (ours.grad.double() - wanted.grad).norm() < 0.005 * wanted.grad.norm()


def test_batch_normalisation_without_padding_is_that_of_torch(inputs: Tensor, batch_norm: BatchNormalization) -> None:
    theirs = of_torch(batch_norm)
    exact = {"atol": 1e-6, "rtol": 1e-6}
    for step in range(3):
        x = inputs * (step + 1)
        torch.testing.assert_close(batch_norm(x, ALL_REAL), theirs(x.transpose(1, 2)).transpose(1, 2), **exact)
        assert theirs.running_mean is not None
        assert theirs.running_var is not None
        torch.testing.assert_close(batch_norm.running_mean, theirs.running_mean, **exact)
        torch.testing.assert_close(batch_norm.running_variance, theirs.running_var, **exact)
    batch_norm.eval()
    theirs.eval()
    torch.testing.assert_close(batch_norm(inputs, ALL_REAL), theirs(inputs.transpose(1, 2)).transpose(1, 2), **exact)


def test_padding_never_enters_the_statistics(inputs: Tensor, batch_norm: BatchNormalization) -> None:
    theirs = of_torch(batch_norm)
    expected = theirs(inputs[RAGGED])
    inputs[~RAGGED] = 1e4
    outputs = batch_norm(inputs, RAGGED)
    torch.testing.assert_close(outputs[RAGGED], expected, atol=1e-5, rtol=1e-5)
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(batch_norm.running_mean, theirs.running_mean)
    torch.testing.assert_close(batch_norm.running_variance, theirs.running_var)


def test_gradients_go_through_the_statistics(inputs: Tensor, batch_norm: BatchNormalization) -> None:
    theirs = of_torch(batch_norm)
    ours_in, theirs_in = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    weights = torch.randn(int(RAGGED.sum()), 16)
    (batch_norm(ours_in, RAGGED)[RAGGED] * weights).sum().backward()
    (theirs(theirs_in[RAGGED]) * weights).sum().backward()
    assert ours_in.grad is not None
    assert theirs_in.grad is not None
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, atol=1e-5, rtol=1e-5)
    assert (ours_in.grad[~RAGGED] == 0).all()


def test_one_real_position_is_enough(batch_norm: BatchNormalization) -> None:
    x = torch.randn(1, 1, 16, requires_grad=True)
    outputs = batch_norm(x, torch.ones(1, 1, dtype=torch.bool))
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert batch_norm.running_variance.isfinite().all()


def test_evaluation_changes_no_statistics(inputs: Tensor, batch_norm: BatchNormalization) -> None:
    batch_norm.eval()(inputs, ALL_REAL)
    assert (batch_norm.running_mean == 0).all()
    assert (batch_norm.running_variance == 1).all()


@pytest.mark.parametrize(("name", "kind"), [("layer", LayerNormalization), ("batch", BatchNormalization)])
def test_the_configuration_chooses(small_config: Callable[..., TransformerConfig], name: str, kind: type) -> None:
    assert type(ResidualConnection(small_config(normalization=name)).normalization) is kind
