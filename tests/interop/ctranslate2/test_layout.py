from collections.abc import Callable
from typing import Any

import pytest
import torch

from transduce.bundle import model_tensors
from transduce.errors import BundleError
from transduce.interop.ctranslate2.layout import copies_of, from_variables, to_variables, variables_of
from transduce.model import Transformer

SETTINGS: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "tied_embeddings": "two_way", "output_bias": True},
    {"tied_embeddings": "none", "positions": "learned", "max_positions": 30, "num_heads": 4, "d_k": 3, "d_v": 3},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_tensor_has_its_place_and_comes_back(
    random_model: Callable[..., Transformer], settings: dict[str, Any]
) -> None:
    model = random_model(**settings)
    tensors = model_tensors(model)
    assert variables_of(model.config).keys() == tensors.keys()
    found = from_variables(model.config, to_variables(model.config, tensors).__getitem__)
    assert found.keys() == tensors.keys()
    for name in tensors:
        without_pad = slice(None, -1) if name.startswith("projection.") else slice(None)
        assert found[name][without_pad].equal(tensors[name][without_pad]), name


def test_no_variable_has_two_places(random_model: Callable[..., Transformer]) -> None:
    for settings in SETTINGS:
        config = random_model(**settings).config
        places = [variable for variables in variables_of(config).values() for variable in variables]
        assert len({*places, *copies_of(config)}) == len(places) + len(copies_of(config))


def test_copies_that_differ_are_refused(random_model: Callable[..., Transformer]) -> None:
    model = random_model()
    variables = to_variables(model.config, model_tensors(model))
    variables["decoder/projection/weight"] = variables["decoder/projection/weight"] + torch.eye(309, 16)
    with pytest.raises(BundleError, match=r"decoder/projection/weight and encoder/embeddings_0/weight differ"):
        from_variables(model.config, variables.__getitem__)
