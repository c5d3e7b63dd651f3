from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import load_tensors, model_tensors
from transduce.bundle.weights import blank_model, check_tensors, empty_tensors, read_tensors, write_tensors
from transduce.errors import BundleError
from transduce.model import Transformer


@pytest.mark.parametrize("tied", ["three_way", "two_way", "none"])
def test_each_number_is_there_once(make_model: Callable[..., Transformer], tied: str) -> None:
    model = make_model(tied_embeddings=tied)
    assert sum(tensor.numel() for tensor in model_tensors(model).values()) == model.num_parameters


def test_they_are_the_models_own(make_model: Callable[..., Transformer]) -> None:
    model = make_model()
    model_tensors(model)["source_embedding.weight"].data.zero_()
    assert model.projection.weight.abs().sum() == 0


@pytest.mark.parametrize(
    "settings", [{}, {"normalization": "batch", "positions": "learned"}, {"d_k": 3, "d_v": 5}], ids=str
)
def test_a_blank_model_has_the_same_tensors(make_model: Callable[..., Transformer], settings: dict[str, Any]) -> None:
    model = make_model(**settings)
    blank = empty_tensors(model.config)
    check_tensors(blank, model_tensors(model), "blank")
    assert all(tensor.device.type == "cpu" for tensor in blank.values())


def test_a_blank_model_draws_no_random_numbers(make_model: Callable[..., Transformer]) -> None:
    config = make_model(positions="learned", attention_score="additive", tied_embeddings="none").config
    before = torch.get_rng_state()
    blank_model(config)
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_is_all_or_nothing(make_model: Callable[..., Transformer]) -> None:
    model = make_model()
    before = {name: tensor.detach().clone() for name, tensor in model_tensors(model).items()}
    given = {name: torch.zeros_like(tensor) for name, tensor in before.items()}
    given[max(given)] = torch.zeros(1, 1, 1)
    with pytest.raises(BundleError, match=f"somewhere: '{max(given)}' is "):
        load_tensors(model, given, "somewhere")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model_tensors(model).items())


def test_views_are_written_as_they_look(tmp_path: Path) -> None:
    tensor = torch.arange(12.0).reshape(3, 4).T
    write_tensors(tmp_path / "file", {"a": tensor})
    assert torch.equal(read_tensors(tmp_path / "file")["a"], tensor)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="file: cannot be read"):
        read_tensors(tmp_path / "file")
