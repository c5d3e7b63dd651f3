"""Products in every arithmetic, against torch's own."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.translation.device import packs_bfloat16
from transduce.translation.products import LARGE, Arithmetic, LargeProduct, PackedProduct, Product

KINDS = [Arithmetic(torch.float32), Arithmetic(torch.bfloat16), Arithmetic(torch.float32, large_in_bfloat16=True)]


@pytest.mark.parametrize("arithmetic", KINDS, ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_equals_torch(arithmetic: Arithmetic, *, with_bias: bool) -> None:
    random = torch.Generator().manual_seed(1)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=random)

    for rows, width, outputs in ((3, 40, 24), (70, 32, 96), (2, 1024, 512)):
        inputs, others, weight = draw(rows, width), draw(rows, outputs), draw(outputs, width) / width**0.5
        bias = draw(outputs) if with_bias else None
        product = arithmetic.product(weight, bias)
        expected = F.linear(inputs, weight, bias)
        given, added = inputs.to(arithmetic.dtype), others.to(arithmetic.dtype)
        found = product(given), product.plus(given, added), product.rectified(given)
        tolerance = 1e-5 if type(product) is Product else 0.06
        for one, wanted in zip(found, (expected, expected + others, expected.relu()), strict=True):
            assert torch.allclose(one.float(), wanted, atol=tolerance, rtol=0)
        assert product(given).dtype == arithmetic.dtype
        assert torch.equal(given, inputs.to(arithmetic.dtype)), "inputs stay as they are"


def test_the_kind_fits_type_and_size() -> None:
    small, large = torch.zeros(8, 8), torch.zeros(1024, LARGE // 1024)
    assert [type(KINDS[0].product(weight, None)) for weight in (small, large)] == [Product, Product]
    packed, of_large = (PackedProduct, LargeProduct) if packs_bfloat16() else (Product, Product)
    assert [type(KINDS[1].product(weight, None)) for weight in (small, large)] == [packed, packed]
    assert [type(KINDS[2].product(weight, None)) for weight in (small, large)] == [Product, of_large]


def test_weights_in_float32_are_shared_with_the_model() -> None:
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    assert KINDS[0].product(weight, None).weight.data_ptr() == weight.data_ptr()
