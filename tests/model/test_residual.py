from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.model import Dropout, ResidualConnection

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
