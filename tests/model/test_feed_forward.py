import math
from collections.abc import Callable

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.model import FeedForward

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


def test_it_is_the_same_at_every_position(small_config: Callable[..., TransformerConfig]) -> None:
    network = FeedForward(small_config())
    x = torch.randn(1, 5, 16)
    torch.testing.assert_close(network(x.flip(1)), network(x).flip(1))
