from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.bundle import average_weights, collect_model_tensors, load_tensors
from transduce.bundle.weights import check_tensors, make_empty_model, make_empty_tensors, read_tensors, write_tensors
from transduce.errors import BundleError, UserError
from transduce.model import Transformer


@pytest.mark.parametrize("tied", ["three_way", "two_way", "none"])
def test_each_number_is_there_once(make_model: Callable[..., Transformer], tied: str) -> None:
    model = make_model(tied_embeddings=tied)
    assert sum(tensor.numel() for tensor in collect_model_tensors(model).values()) == model.num_parameters


def test_they_are_the_models_own(make_model: Callable[..., Transformer]) -> None:
    model = make_model()
    collect_model_tensors(model)["source_embedding.weight"].data.zero_()
    assert model.projection.weight.abs().sum() == 0


@pytest.mark.parametrize(
    "settings", [{}, {"normalization": "batch", "positions": "learned"}, {"d_k": 3, "d_v": 5}], ids=str
)
def test_a_blank_model_has_the_same_tensors(make_model: Callable[..., Transformer], settings: dict[str, Any]) -> None:
    model = make_model(**settings)
    blank = make_empty_tensors(model.config)
    check_tensors(blank, collect_model_tensors(model), "blank")
    assert all(tensor.is_meta for tensor in blank.values())
    assert all(tensor.device.type == "cpu" for tensor in collect_model_tensors(make_empty_model(model.config)).values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_blank_model_is_in_float32_whatever_pytorchs_default_is(
    make_model: Callable[..., Transformer], dtype: torch.dtype
) -> None:
    config = make_model(normalization="batch").config
    torch.set_default_dtype(dtype)
    try:
        made = [collect_model_tensors(make_empty_model(config)), make_empty_tensors(config)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert {tensor.dtype for tensors in made for tensor in tensors.values()} == {torch.float32}


def test_a_blank_model_draws_no_random_numbers(make_model: Callable[..., Transformer]) -> None:
    config = make_model(positions="learned", attention_score="additive", tied_embeddings="none").config
    before = torch.get_rng_state()
    make_empty_model(config)
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_is_all_or_nothing(make_model: Callable[..., Transformer]) -> None:
    model = make_model()
    before = {name: tensor.detach().clone() for name, tensor in collect_model_tensors(model).items()}
    given = {name: torch.zeros_like(tensor) for name, tensor in before.items()}
    given[max(given)] = torch.zeros(1, 1, 1)
    with pytest.raises(BundleError, match=f"somewhere: '{max(given)}' is "):
        load_tensors(model, given, "somewhere")
    assert all(torch.equal(tensor, before[name]) for name, tensor in collect_model_tensors(model).items())


def test_a_matrix_and_its_scales_have_to_match(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"a": torch.zeros(4, 3, dtype=torch.int8), "a_scale": torch.zeros(3)})
    found = r"'a' is int8 \[4, 3\], and its scales are float32 \[3\]: they must be "
    with pytest.raises(BundleError, match=found):
        read_tensors(tmp_path / "file")


def test_views_are_written_as_they_look(tmp_path: Path) -> None:
    tensor = torch.arange(12.0).reshape(3, 4).T
    write_tensors(tmp_path / "file", {"a": tensor})
    assert torch.equal(read_tensors(tmp_path / "file")["a"], tensor)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="file: cannot be read"):
        read_tensors(tmp_path / "file")


def _model(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(5, 7, generator=generator),
        "half": torch.randn(3, generator=generator).bfloat16(),
        "double": torch.randn(2, generator=generator, dtype=torch.float64),
        "count": torch.tensor(seed),
    }


@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_mean_of_equals_is_the_same(count: int) -> None:
    average = average_weights([_model(1)] * count)
    # 3 times a float64 is rounded; 3 times a float32 is not, in float64.
    double = average.pop("double")
    assert all(torch.equal(tensor, _model(1)[name]) for name, tensor in average.items())
    torch.testing.assert_close(double, _model(1)["double"])


def test_the_mean_is_the_mean() -> None:
    models = [_model(seed) for seed in range(5)]
    average = average_weights(models)
    for name in ("weight", "half"):
        exact = torch.stack([model[name].double() for model in models]).mean(0)
        assert torch.equal(average[name], exact.to(models[0][name].dtype))
        assert average[name].dtype == models[0][name].dtype


def test_large_values_do_not_swallow_small_ones() -> None:
    values = [torch.tensor([value]) for value in (1e8, 1.0, -1e8, 1.0)]
    assert average_weights({"weight": value} for value in values)["weight"].item() == 0.5


def test_integers_are_the_last() -> None:
    assert average_weights(_model(seed) for seed in (3, 9, 4))["count"].item() == 4


def test_the_models_are_left_as_they_were() -> None:
    models = [_model(1), _model(2)]
    average = average_weights(models)
    for tensor in average.values():
        tensor.zero_()
    for seed, model in zip((1, 2), models, strict=True):
        assert all(torch.equal(model[name], tensor) for name, tensor in _model(seed).items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight": torch.zeros(7, 5)}, "model 2 .*'weight' is float32 .7, 5.*needs float32 .5, 7"),
        ({"weight": torch.zeros(5, 7).double()}, "model 2 .*'weight' is float64"),
        ({"extra": torch.zeros(1)}, "model 2 .*has a tensor 'extra'"),
    ],
)
def test_models_must_be_alike(change: dict[str, Tensor], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        average_weights([_model(1), _model(2) | change])


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(BundleError, match=r"model 2 .*has no tensor 'weight'"):
        average_weights([_model(1), {name: tensor for name, tensor in _model(2).items() if name != "weight"}])


def test_no_model_has_no_mean() -> None:
    with pytest.raises(UserError, match="at least one"):
        average_weights([])
