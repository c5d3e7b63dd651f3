from pathlib import Path

import pytest
import torch

from transduce.errors import BundleError
from transduce.interop.ctranslate2.file import ModelFile
from transduce.interop.ctranslate2.variables import Variables

GAMMA = "encoder/layer_0/self_attention/layer_norm/gamma"
NUMBERS = {
    GAMMA: torch.ones(3),
    "matrix": torch.tensor([[1, -2, 3], [4, 5, 6]], dtype=torch.int8),
    "matrix_scale": torch.tensor([2.0, 10.0]),
    "whole": torch.tensor([[10, 20, 30], [40, 50, 60]], dtype=torch.int16),
    "whole_scale": torch.tensor(10.0),
    "half": torch.tensor([0.1, 0.2, 0.3], dtype=torch.float16),
    "lonely": torch.tensor([[1, 2, 3]], dtype=torch.int8),
    "badly": torch.tensor([[1, 2, 3]], dtype=torch.int8),
    "badly_scale": torch.tensor([1.0, 2.0]),
    "num_heads": torch.tensor(7, dtype=torch.int16),
    "odd": torch.tensor(torch.nan),
    "encoder/embeddings/weight": torch.zeros(5, 3),
}


def variables(revision: int = 7) -> Variables:
    return Variables(ModelFile("TransformerSpec", revision, NUMBERS, {"alias": "half"}), Path("model.bin"))


def test_whole_numbers_are_divided_by_the_scale_of_their_row() -> None:
    assert torch.equal(variables()["matrix"], torch.tensor([[0.5, -1.0, 1.5], [0.4, 0.5, 0.6]]))
    assert torch.equal(variables()["whole"], torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


def test_half_precision_is_widened_exactly() -> None:
    assert torch.equal(variables()["alias"], NUMBERS["half"].float())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "has no variable 'none'"),
        ("lonely", "no variable 'lonely_scale'"),
        ("badly", r"'badly_scale' .*\[2\]"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_named(name: str, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        variables()[name]


def test_single_numbers() -> None:
    assert variables().number("num_heads", 8.0) == 7
    assert variables().number("nothing", 8.0) == 8
    for name in ("matrix", "odd"):
        with pytest.raises(BundleError, match="must be one number"):
            variables().number(name, 0.0)


def test_shapes_are_checked() -> None:
    found = variables()
    assert found.d_model == 3
    assert found.rows("matrix", 2).shape == (2, 3)
    assert found.rows("half", 3).shape == (3,)
    with pytest.raises(BundleError, match=r"has the shape \[2, 3\], must have a row of 3 numbers for each of the 4"):
        found.rows("matrix", 4)
    with pytest.raises(BundleError, match=r"'half' has the shape \[3\], must be a matrix"):
        found.matrix("half")


def test_older_names_are_found() -> None:
    assert variables()["encoder/embeddings_0/weight"].shape == (5, 3)
    assert variables(4).number("encoder/num_heads", 8.0) == variables(4).number("decoder/num_heads", 8.0) == 7
    assert variables(5).number("encoder/num_heads", 8.0) == 8


def test_what_nobody_asked_for_is_known() -> None:
    found = variables()
    before = set(found.unread())
    assert before == {*NUMBERS, "alias"}
    found["matrix"]
    assert "half" in found
    assert before - set(found.unread()) == {"matrix", "matrix_scale"}
