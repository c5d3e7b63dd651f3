import pytest
import torch

from transduce.interop.position_tables import position_kind
from transduce.interop.residual_channels import in_halves
from transduce.model import sinusoids


def halves() -> torch.Tensor:
    return in_halves({"positions.table": sinusoids(9, 8)})["positions.table"].clone()


def test_kinds() -> None:
    assert position_kind(halves()) == position_kind(sinusoids(9, 8), is_in_halves=False) == "sinusoidal"
    assert position_kind(halves(), is_in_halves=False) == position_kind(sinusoids(9, 8)) == "learned"
    assert position_kind(torch.zeros(9, 8)) == position_kind(torch.zeros(9, 7)) == "none"
    assert position_kind(torch.rand(9, 7)) == "learned"


@pytest.mark.parametrize("place", [(0, 0), (8, 7)])
def test_one_number_that_is_another_is_noticed_unless_rounding_explains_it(place: tuple[int, int]) -> None:
    table = halves()
    table[place] += 1e-3
    assert position_kind(table) == "learned"
    assert position_kind(table, rounding=2e-3) == "sinusoidal"
