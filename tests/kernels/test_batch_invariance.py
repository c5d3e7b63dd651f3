"""The results for a row do not depend on the other rows."""

import pytest
import torch
from torch.nn import functional as F

from transduce.kernels.batch_invariance import linear


@torch.no_grad()
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize(("width", "num_outputs"), [(16, 24), (128, 384), (512, 129), (33, 24), (10, 17)])
def test_what_a_row_gets_does_not_depend_on_the_number_of_rows(
    width: int, num_outputs: int, num_threads: int, *, adds_up_alike: bool
) -> None:
    inputs, weight, bias = torch.randn(70, width), torch.randn(num_outputs, width), torch.randn(num_outputs)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        expected = linear(inputs, weight, bias)
        exact = F.linear(inputs.double(), weight.double(), bias.double())
        # Each of so many additions and products is off by at most 2^-24 of what is added up.
        bound = 2 * width * 2**-24 * (F.linear(inputs.abs(), weight.abs()) + bias.abs())
        assert ((expected - exact).abs() <= bound).all()
        for num_rows in (0, *range(1, 20), 33, 66):
            for first in (0, 3):
                rows = slice(first, first + num_rows)
                found = linear(inputs[rows], weight, bias)
                assert ((found - exact[rows]).abs() <= bound[rows]).all()
                assert torch.equal(found, expected[rows]) or not adds_up_alike
        found = linear(inputs[:6].view(3, 1, 2, width), weight, bias).flatten(0, 2)
        assert torch.equal(found, expected[:6]) or not adds_up_alike
    finally:
        torch.set_num_threads(before)
