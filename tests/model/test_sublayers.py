import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.model import (
    BatchNormalization,
    Dropout,
    FeedForward,
    GatedFeedForward,
    LayerNormalization,
    ResidualConnection,
    RMSNormalization,
)


def test_nothing_happens_in_evaluation_or_without_p() -> None:
    numbers = torch.randn(50)
    assert Dropout(0.5).eval()(numbers) is numbers
    assert Dropout(0.0)(numbers) is numbers


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


def by_root_mean_square(inputs: Tensor, gain: Tensor) -> Tensor:
    return inputs / (inputs.square().sum(dim=-1, keepdim=True) / 16 + 1e-5).sqrt() * gain


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_rms_normalisation_is_the_formula_and_has_its_gradients(inputs: Tensor, size: float) -> None:
    normalization = RMSNormalization(16).double()
    nn.init.normal_(normalization.gain)
    assert [name for name, _ in normalization.named_parameters()] == ["gain"]
    gain = normalization.gain.detach().clone().requires_grad_()
    ours_in, theirs_in = ((size * inputs).double().requires_grad_() for _ in range(2))
    found, expected = normalization(ours_in, RAGGED), by_root_mean_square(theirs_in, gain)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found, F.rms_norm(theirs_in, (16,), gain, eps=1e-5), atol=1e-12, rtol=1e-12)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(normalization.gain.grad, gain.grad, atol=1e-9, rtol=1e-9)


def test_the_gain_of_rms_normalisation_adds_up_its_gradient_in_float32() -> None:
    """Summed in bfloat16, the gradient of so many positions would stop growing."""
    normalization = RMSNormalization(16)
    x = torch.randn(8, 512, 16)
    normalization(x.bfloat16(), torch.ones(8, 512, dtype=torch.bool)).float().square().sum().backward()
    assert normalization.gain.grad is not None
    expected = 2 * by_root_mean_square(x, torch.ones(16)).square().sum(dim=(0, 1))
    torch.testing.assert_close(normalization.gain.grad, expected, atol=0, rtol=0.01)


def test_rms_normalisation_knows_no_size_and_keeps_the_mean(inputs: Tensor) -> None:
    normalization = RMSNormalization(16)
    normalized = normalization(inputs, ALL_REAL)
    torch.testing.assert_close(normalization(100 * inputs, ALL_REAL), normalized, atol=1e-4, rtol=1e-4)
    assert (normalization(inputs + 5, ALL_REAL) - normalized).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "kind"), [("layer", LayerNormalization), ("batch", BatchNormalization), ("rms", RMSNormalization)]
)
def test_the_configuration_chooses(small_config: Callable[..., TransformerConfig], name: str, kind: type) -> None:
    assert type(ResidualConnection(small_config(normalization=name)).normalization) is kind


MASK = torch.ones(2, 3, dtype=torch.bool)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (16,))


def triple(x: Tensor) -> Tensor:
    return 3 * x


def test_post_norm_normalises_the_sum(small_config: Callable[..., TransformerConfig]) -> None:
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(ResidualConnection(small_config())(x, MASK, triple), norm(x + 3 * x))


def test_pre_norm_leaves_the_sum_alone(small_config: Callable[..., TransformerConfig]) -> None:
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(ResidualConnection(small_config(norm_order="pre"))(x, MASK, triple), x + 3 * norm(x))


def test_dropout_is_on_the_sublayer_before_the_sum(small_config: Callable[..., TransformerConfig]) -> None:
    x = torch.randn(2, 3, 16)
    connection = ResidualConnection(small_config(dropout=0.5))
    torch.manual_seed(7)
    outputs = connection(x, MASK, triple)
    torch.manual_seed(7)
    torch.testing.assert_close(outputs, norm(x + Dropout(0.5)(3 * x)))


FORMULAS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "swish": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("activation", FORMULAS)
def test_two_linear_maps_with_the_activation_between(
    small_config: Callable[..., TransformerConfig], activation: str
) -> None:
    network = FeedForward(small_config(activation=activation))
    x = torch.randn(2, 3, 16)
    inner = (x @ network.inner.weight.T + network.inner.bias).detach().apply_(FORMULAS[activation])
    expected = inner @ network.outer.weight.T + network.outer.bias
    torch.testing.assert_close(network(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", FORMULAS)
def test_the_second_linear_map_multiplies_the_activation(
    small_config: Callable[..., TransformerConfig], activation: str
) -> None:
    network = GatedFeedForward(small_config(activation=activation, feed_forward="gated"))
    w_1, v, w_2 = (part.weight.tolist() for part in (network.inner, network.gate, network.outer))
    b_1, c, b_2 = (part.bias.tolist() for part in (network.inner, network.gate, network.outer))
    x = torch.randn(2, 3, 16)

    def dot(left: list[float], right: list[float]) -> float:
        return sum(a * b for a, b in zip(left, right, strict=True))

    def transform(position: list[float]) -> list[float]:
        f, units = FORMULAS[activation], range(24)
        hidden = [f(dot(w_1[unit], position) + b_1[unit]) * (dot(v[unit], position) + c[unit]) for unit in units]
        return [dot(row, hidden) + bias for row, bias in zip(w_2, b_2, strict=True)]

    expected = torch.tensor([[transform(position) for position in sentence] for sentence in x.tolist()])
    torch.testing.assert_close(network(x), expected, atol=1e-5, rtol=1e-5)


def test_two_thirds_of_the_width_have_as_many_numbers_in_matrices(
    small_config: Callable[..., TransformerConfig],
) -> None:
    def count(network: nn.Module) -> int:
        return sum(parameter.numel() for parameter in network.parameters() if parameter.dim() == 2)

    gated = GatedFeedForward(small_config(feed_forward="gated", d_ff=16))
    assert count(gated) == count(FeedForward(small_config(d_ff=24)))


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_it_is_the_same_at_every_position(
    small_config: Callable[..., TransformerConfig], kind: type[FeedForward | GatedFeedForward]
) -> None:
    network = kind(small_config())
    x = torch.randn(1, 5, 16)
    torch.testing.assert_close(network(x.flip(1)), network(x).flip(1))
