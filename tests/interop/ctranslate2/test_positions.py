from pathlib import Path

import pytest
import torch
from torch import Tensor

from transduce.errors import BundleError
from transduce.interop.ctranslate2.file import ModelFile
from transduce.interop.ctranslate2.layout import POSITIONS
from transduce.interop.ctranslate2.positions import are_shared, positions
from transduce.interop.ctranslate2.variables import Variables
from transduce.interop.residual_channels import in_halves
from transduce.model import sinusoids

GAMMA = {"encoder/layer_0/self_attention/layer_norm/gamma": torch.ones(8)}
IN_TURN = sinusoids(50, 8)
HALVES = in_halves({"positions.table": IN_TURN})["positions.table"]


def variables(*tables: Tensor) -> Variables:
    found = dict(zip(POSITIONS, tables, strict=False))
    return Variables(ModelFile("TransformerSpec", 7, GAMMA | found, {}), Path("model.bin"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("table", "is_in_halves"), [(IN_TURN, False), (HALVES, True)])
def test_sinusoids_are_known_in_either_layout(table: Tensor, is_in_halves: bool, dtype: torch.dtype) -> None:
    found = positions(variables(table.to(dtype)))
    assert (found.kind, found.is_in_halves, found.precision) == ("sinusoidal", is_in_halves, str(dtype)[6:])


def test_another_table_is_learned_and_zeros_are_none() -> None:
    other = IN_TURN.clone()
    other[3, 2] += 1e-4
    found = positions(variables(other))
    assert (found.kind, found.precision) == ("learned", "float32")
    assert torch.equal(found.rows, other)
    assert positions(variables(torch.zeros(50, 8))).kind == "none"
    assert positions(variables(IN_TURN[:, :6])).kind == "learned"


def test_without_a_table_it_is_that_of_tensor2tensor() -> None:
    found = positions(variables())
    assert (found.kind, found.rows.shape) == ("learned", (2048, 8))
    rates = torch.tensor([1.0, 10_000 ** -(1 / 3), 10_000 ** -(2 / 3), 1e-4])
    torch.testing.assert_close(found.rows[0], torch.cat([rates.sin(), rates.cos()]))
    torch.testing.assert_close(found.rows[6], torch.cat([(7 * rates).sin(), (7 * rates).cos()]))


def test_both_sides_must_have_the_same() -> None:
    assert are_shared(variables())
    assert are_shared(variables(IN_TURN, IN_TURN.clone()))
    assert not are_shared(variables(IN_TURN))
    assert not are_shared(variables(IN_TURN, HALVES))


@pytest.mark.parametrize("table", [torch.ones(8), torch.ones(0, 8), torch.tensor(1.0)])
def test_a_table_has_rows(table: Tensor) -> None:
    with pytest.raises(BundleError, match="must be a matrix"):
        positions(variables(table))
