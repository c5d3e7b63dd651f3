"""The weights of a bundle without PyTorch, held to what PyTorch makes and reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import collect_model_tensors
from transduce.bundle.arrays import has_usual_weights, list_shapes, read_arrays
from transduce.bundle.weights import make_model as make_model_of
from transduce.bundle.weights import write_tensors
from transduce.errors import BundleError
from transduce.model import Transformer

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "num_encoder_layers": 3, "num_decoder_layers": 1},
    {"tied_embeddings": "two_way", "output_bias": True},
    {"tied_embeddings": "none", "positions": "learned", "max_positions": 7},
    {"d_k": 3, "d_v": 5, "positions": "none", "attention_score": "dot"},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_they_are_those_of_the_network(
    make_model: Callable[..., Transformer], tmp_path: Path, settings: dict[str, Any]
) -> None:
    model = make_model(**settings)
    tensors, path = collect_model_tensors(model), tmp_path / "weights.safetensors"
    assert list_shapes(model.config) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    write_tensors(path, tensors)
    assert has_usual_weights(path, model.config)
    arrays = read_arrays(path)
    assert arrays.keys() == tensors.keys()
    assert all(np.array_equal(array, tensors[name].detach().numpy()) for name, array in arrays.items())
    made = make_model_of(model.config, arrays, "here")
    assert not made.training
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in collect_model_tensors(made).items())


@pytest.mark.parametrize(
    "settings",
    [
        {"attention_score": "additive"},
        {"normalization": "batch"},
        {"normalization": "rms"},
        {"feed_forward": "gated"},
        {"positions": "relative"},
    ],
    ids=str,
)
def test_other_networks_have_others(
    make_model: Callable[..., Transformer], tmp_path: Path, settings: dict[str, Any]
) -> None:
    model, path = make_model(**settings), tmp_path / "weights.safetensors"
    write_tensors(path, collect_model_tensors(model))
    assert not has_usual_weights(path, model.config)


def test_what_is_unusual_is_noticed(make_model: Callable[..., Transformer], tmp_path: Path) -> None:
    model, path = make_model(), tmp_path / "weights.safetensors"
    usual, config = dict(collect_model_tensors(model)), model.config
    name = "encoder.layers.0.feed_forward.inner.weight"
    changes = [
        {**usual, "another": torch.zeros(1)},
        {**usual, name: usual[name].T},
        {**usual, name: usual[name].half()},
        {**usual, name: usual[name].bfloat16()},
        {one: tensor for one, tensor in usual.items() if one != name},
    ]
    for changed in changes:
        write_tensors(path, changed)
        assert not has_usual_weights(path, config)
    for content in (b"", b"nothing", b"\xff" * 64):
        path.write_bytes(content)
        assert not has_usual_weights(path, config)
    assert not has_usual_weights(tmp_path / "nowhere", config)
    with pytest.raises(BundleError, match="has no tensor"):
        make_model_of(config, {}, "here")


def test_scales_of_damaged_weights_give_no_warning(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.full((1, 2), 100, dtype=torch.int8), "a.weight_scale": torch.tensor([3e38])}
    write_tensors(tmp_path / "weights.safetensors", tensors)
    assert np.isinf(read_arrays(tmp_path / "weights.safetensors")["a.weight"]).all()
