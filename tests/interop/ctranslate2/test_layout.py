from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.bundle import model_tensors
from transduce.errors import BundleError
from transduce.interop.conversion import split_channels
from transduce.interop.ctranslate2.layout import (
    POSITIONS,
    find_obstacles,
    find_unknown_variables,
    from_variables,
    has_shared_positions,
    map_copies,
    map_tensors_to_variables,
    read_embedding_scale,
    read_network_settings,
    read_positions,
    to_variables,
)
from transduce.interop.ctranslate2.model_file import ModelFile, Variables
from transduce.model import Transformer, sinusoids

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
    assert map_tensors_to_variables(model.config).keys() == tensors.keys()
    found = from_variables(model.config, to_variables(model.config, tensors).__getitem__)
    assert found.keys() == tensors.keys()
    for name in tensors:
        without_pad = slice(None, -1) if name.startswith("projection.") else slice(None)
        assert found[name][without_pad].equal(tensors[name][without_pad]), name


def test_no_variable_has_two_places(random_model: Callable[..., Transformer]) -> None:
    for settings in SETTINGS:
        config = random_model(**settings).config
        places = [variable for variables in map_tensors_to_variables(config).values() for variable in variables]
        assert len({*places, *map_copies(config)}) == len(places) + len(map_copies(config))


def test_copies_that_differ_are_refused(random_model: Callable[..., Transformer]) -> None:
    model = random_model()
    variables = to_variables(model.config, model_tensors(model))
    variables["decoder/projection/weight"] = variables["decoder/projection/weight"] + torch.eye(309, 16)
    with pytest.raises(BundleError, match=r"decoder/projection/weight and encoder/embeddings_0/weight differ"):
        from_variables(model.config, variables.__getitem__)


GAMMA = {"encoder/layer_0/self_attention/layer_norm/gamma": torch.ones(8)}
IN_TURN = sinusoids(50, 8)
HALVES = split_channels({"positions.table": IN_TURN})["positions.table"]


def variables(*tables: Tensor) -> Variables:
    found = dict(zip(POSITIONS, tables, strict=False))
    return Variables(ModelFile("TransformerSpec", 7, GAMMA | found, {}), Path("model.bin"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("table", "is_split"), [(IN_TURN, False), (HALVES, True)])
def test_sinusoids_are_known_in_either_layout(table: Tensor, is_split: bool, dtype: torch.dtype) -> None:
    found = read_positions(variables(table.to(dtype)))
    assert (found.kind, found.is_split, found.precision) == ("sinusoidal", is_split, str(dtype)[6:])


def test_another_table_is_learned_and_zeros_are_none() -> None:
    other = IN_TURN.clone()
    other[3, 2] += 1e-4
    found = read_positions(variables(other))
    assert (found.kind, found.precision) == ("learned", "float32")
    assert torch.equal(found.rows, other)
    assert read_positions(variables(torch.zeros(50, 8))).kind == "none"
    assert read_positions(variables(IN_TURN[:, :6])).kind == "learned"


def test_without_a_table_it_is_that_of_tensor2tensor() -> None:
    found = read_positions(variables())
    assert (found.kind, found.rows.shape) == ("learned", (2048, 8))
    rates = torch.tensor([1.0, 10_000 ** -(1 / 3), 10_000 ** -(2 / 3), 1e-4])
    torch.testing.assert_close(found.rows[0], torch.cat([rates.sin(), rates.cos()]))
    torch.testing.assert_close(found.rows[6], torch.cat([(7 * rates).sin(), (7 * rates).cos()]))


def test_both_sides_must_have_the_same() -> None:
    assert has_shared_positions(variables())
    assert has_shared_positions(variables(IN_TURN, IN_TURN.clone()))
    assert not has_shared_positions(variables(IN_TURN))
    assert not has_shared_positions(variables(IN_TURN, HALVES))


@pytest.mark.parametrize("table", [torch.ones(8), torch.ones(0, 8), torch.tensor(1.0)])
def test_a_table_has_rows(table: Tensor) -> None:
    with pytest.raises(BundleError, match="must be a matrix"):
        read_positions(variables(table))


ATTENTION = "encoder/layer_0/self_attention"
WHOLE = {
    f"{ATTENTION}/layer_norm/gamma": torch.ones(16),
    f"{ATTENTION}/layer_norm/beta": torch.ones(16),
    "encoder/layer_0/ffn/linear_0/weight": torch.ones(24, 16),
    "decoder/layer_0/ffn/linear_0/weight": torch.ones(24, 16),
    "decoder/layer_1/ffn/linear_0/weight": torch.ones(24, 16),
    "encoder/num_heads": torch.tensor(2, dtype=torch.int16),
    "decoder/num_heads": torch.tensor(2, dtype=torch.int16),
    "encoder/layer_norm/gamma": torch.ones(16),
    "decoder/layer_norm/gamma": torch.ones(16),
}


def network_variables(**changes: Tensor | None) -> Variables:
    found = WHOLE | {name.replace("__", "/"): value for name, value in changes.items()}
    present = {name: value for name, value in found.items() if value is not None}
    return Variables(ModelFile("TransformerSpec", 7, present, {}), Path("model.bin"))


def test_settings_in_our_words() -> None:
    assert list(find_obstacles(network_variables())) == []
    assert read_network_settings(network_variables()) == {
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 2,
        "d_k": 8,
        "d_v": 8,
        "attention_score": "scaled_dot",
        "activation": "relu",
        "norm_order": "pre",  # unless it says something else
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"decoder__num_heads": torch.tensor(4)}, "num_heads = 2 and 4: must be the same"),
        ({"encoder__activation": torch.tensor(1), "decoder__activation": torch.tensor(1)}, "activation = 1: must be 0"),
        ({"decoder__alibi": torch.tensor(1)}, "decoder/alibi = 1: linear biases"),
        ({"encoder__multi_query_attention": torch.tensor(1)}, "multi_query_attention = 1: keys and values"),
        ({"decoder__scale_outputs": torch.tensor(0.5)}, "decoder/scale_outputs = 0.5: scaled logits"),
        ({"decoder__layer_norm__gamma": None}, "decoder/layer_norm is missing"),
        ({"encoder__num_heads": torch.tensor(3), "decoder__num_heads": torch.tensor(3)}, "num_heads = 3: must divide"),
        ({f"{ATTENTION}/head_dim": torch.tensor(5)}, "layer_0/attention/head_dim = 8: must be 5"),
    ],
)
def test_what_ours_cannot_express_is_said(changes: dict[str, Tensor | None], words: str) -> None:
    assert any(words in problem for problem in find_obstacles(network_variables(**changes)))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [(None, 4.0), (torch.tensor(1, dtype=torch.int8), 4.0), (torch.tensor(0, dtype=torch.int8), 1.0)]
    + [(torch.tensor(value), value) for value in (4.0, 1.0, 2.5)],
)
def test_embeddings_are_multiplied_by_a_number_or_as_a_switch_says(setting: Tensor | None, expected: float) -> None:
    found = network_variables(encoder__scale_embeddings=setting)
    assert read_embedding_scale(found, "encoder/embeddings_0/weight") == expected


def test_what_is_left_is_named_and_the_rest_counted() -> None:
    found = network_variables(**{f"{ATTENTION}/relative_position_keys": torch.ones(2), "zzz": torch.ones(1)})
    for name in WHOLE:
        found.raw(name)
    problems = list(find_unknown_variables(found))
    assert problems == [f"{ATTENTION}/relative_position_keys: relative positions", "zzz: ours has no such thing"]
    many = list(find_unknown_variables(network_variables()))
    assert len(many) == 6
    assert many[-1] == f"and {len(WHOLE) - 5} more variables that ours has no place for"
