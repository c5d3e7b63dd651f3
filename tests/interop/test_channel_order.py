from typing import Any

import pytest
import torch

from transduce.bundle import collect_model_tensors, load_tensors
from transduce.config import TransformerConfig
from transduce.interop.channel_order import classify_positions, interleave_channels, split_channels
from transduce.model import Transformer, sinusoids

D_MODEL = 8

SETTINGS: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "tied_embeddings": "two_way", "positions": "learned", "max_positions": 9},
    {"norm_order": "pre", "normalization": "batch", "tied_embeddings": "none"},
    {"norm_order": "pre", "normalization": "rms", "feed_forward": "gated"},
    {"positions": "rotary"},
    {"positions": "relative"},
    {"attention_score": "additive", "d_k": 3, "d_v": 5},
]


def make_model(seed: int, settings: dict[str, Any]) -> Transformer:
    """All of its numbers differ, those too that start as 0 or 1."""
    torch.manual_seed(seed)
    sizes = {"vocabulary": 20, "num_encoder_layers": 2, "num_decoder_layers": 1, "d_ff": 12, "num_heads": 2}
    model = Transformer(TransformerConfig(d_model=D_MODEL, **sizes, **settings))
    with torch.no_grad():
        for tensor in collect_model_tensors(model).values():
            tensor.add_(torch.rand_like(tensor) / 8)
    return model.eval()


def halves_of_sinusoids(length: int) -> torch.Tensor:
    """As Marian computes them."""
    frequency = 10_000 ** -(torch.arange(0, D_MODEL, 2) / D_MODEL)
    angle = torch.arange(length)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@torch.no_grad()
def test_it_is_the_same_model(settings: dict[str, Any]) -> None:
    model, other = make_model(0, settings), make_model(1, settings)
    load_tensors(other, split_channels(collect_model_tensors(model)), "rearranged")
    if other.config.positions == "sinusoidal":
        other.positions.table = halves_of_sinusoids(9)
    source, target = torch.randint(1, 19, (2, 3, 9))
    real = torch.ones_like(source, dtype=torch.bool)
    expected, found = (one(source, real, target, real)[..., :-1] for one in (model, other))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_there_and_back_is_bit_equal(settings: dict[str, Any]) -> None:
    tensors = collect_model_tensors(make_model(0, settings))
    back = interleave_channels(split_channels(tensors))
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def test_even_channels_come_first() -> None:
    assert split_channels({"encoder.final.gain": torch.arange(6)})["encoder.final.gain"].tolist() == [0, 2, 4, 1, 3, 5]


def test_the_bias_of_the_logits_is_left_alone() -> None:
    assert split_channels({"projection.bias": torch.arange(4)})["projection.bias"].tolist() == [0, 1, 2, 3]


def test_a_foreign_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lm_head\.scale: is not the name"):
        interleave_channels({"lm_head.scale": torch.ones(3)})


def halves() -> torch.Tensor:
    return split_channels({"positions.table": sinusoids(9, 8)})["positions.table"].clone()


def test_kinds() -> None:
    assert classify_positions(halves()) == classify_positions(sinusoids(9, 8), is_split=False) == "sinusoidal"
    assert classify_positions(halves(), is_split=False) == classify_positions(sinusoids(9, 8)) == "learned"
    assert classify_positions(torch.zeros(9, 8)) == classify_positions(torch.zeros(9, 7)) == "none"
    assert classify_positions(torch.rand(9, 7)) == "learned"


@pytest.mark.parametrize("place", [(0, 0), (8, 7)])
def test_one_number_that_is_another_is_noticed_unless_rounding_explains_it(place: tuple[int, int]) -> None:
    table = halves()
    table[place] += 1e-3
    assert classify_positions(table) == "learned"
    assert classify_positions(table, rounding=2e-3) == "sinusoidal"
