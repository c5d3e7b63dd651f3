from typing import Any

import pytest
import torch
from pydantic import ValidationError

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import ConfigError
from transduce.model import Transformer


@pytest.mark.parametrize(("d_model", "num_heads", "width"), [(512, 8, 64), (256, 4, 64), (6, 3, 2), (8, 8, 1)])
def test_a_head_is_as_wide_as_its_share_of_d_model(d_model: int, num_heads: int, width: int) -> None:
    config = TransformerConfig(d_model=d_model, num_heads=num_heads)
    assert config.d_k == config.d_v == width


def test_a_width_that_is_given_stays() -> None:
    config = TransformerConfig(d_model=12, num_heads=4, d_k=7)
    assert (config.d_k, config.d_v) == (7, 3)


@pytest.mark.parametrize("given", [{}, {"d_k": 3}, {"d_v": 3}])
def test_a_share_must_be_whole(given: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="d_model = 10 cannot be divided by num_heads = 4"):
        TransformerConfig(d_model=10, num_heads=4, **given)


def test_more_heads_than_d_model_need_widths() -> None:
    with pytest.raises(ValidationError, match="cannot be divided"):
        TransformerConfig(d_model=2, num_heads=4)
    assert TransformerConfig(d_model=2, num_heads=4, d_k=1, d_v=1).num_heads == 4


def test_sinusoids_come_in_pairs() -> None:
    with pytest.raises(ValidationError, match="d_model = 9 must be even"):
        TransformerConfig(d_model=9, num_heads=3)
    assert TransformerConfig(d_model=9, num_heads=3, positions="learned").d_model == 9


def test_rotary_positions_turn_pairs() -> None:
    with pytest.raises(ValidationError, match="d_k = 3 must be even: rotary positions turn pairs"):
        TransformerConfig(d_model=9, num_heads=3, positions="rotary")
    assert TransformerConfig(d_model=9, num_heads=3, d_k=4, positions="rotary").d_k == 4


@pytest.mark.parametrize("positions", ["relative", "rotary"])
def test_positions_of_attention_need_dot_products(positions: str) -> None:
    message = f'positions = "{positions}" needs dot products .*: set attention_score to "scaled_dot" or "dot"'
    with pytest.raises(ValidationError, match=message):
        TransformerConfig.model_validate({"positions": positions, "attention_score": "additive"})
    assert TransformerConfig.model_validate({"positions": positions, "attention_score": "dot"}).positions == positions


@pytest.mark.parametrize(
    "setting",
    [
        {"vocabulary": 3},
        {"num_encoder_layers": 0},
        {"num_decoder_layers": 0},
        {"d_model": 0},
        {"d_ff": 0},
        {"num_heads": 0},
        {"d_k": 0},
        {"d_v": 0},
        {"max_positions": 0},
        {"max_relative_distance": 0},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"dropout": float("nan")},
        {"d_model": "512"},
        {"d_model": 512.0},
        {"positions": "circular"},
        {"heads": 8},
    ],
    ids=str,
)
def test_what_makes_no_network_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TransformerConfig.model_validate(setting)


def test_nothing_changes_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TransformerConfig().d_model = 3


SMALL = {"vocabulary": 11, "num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 8, "d_ff": 5, "num_heads": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        SMALL,
        {**SMALL, "d_k": 3, "d_v": 5, "attention_score": "additive"},
        {**SMALL, "normalization": "batch", "norm_order": "pre"},
        {**SMALL, "normalization": "rms", "norm_order": "pre"},
        {**SMALL, "feed_forward": "gated"},
        {**SMALL, "positions": "rotary"},
        {**SMALL, "positions": "relative", "max_relative_distance": 3, "d_k": 3},
        {**SMALL, "tied_embeddings": "two_way", "output_bias": True},
        {**SMALL, "tied_embeddings": "none", "positions": "learned", "max_positions": 7},
    ],
    ids=str,
)
def test_the_number_of_parameters_is_known_without_the_network(settings: dict[str, Any]) -> None:
    config = TransformerConfig(**settings)
    with torch.device("meta"):
        assert config.num_parameters == Transformer(config).num_parameters


def test_the_longest_translation_of_a_source() -> None:
    search = SearchConfig(max_extra_length=50)
    assert search.compute_max_target_length(10) == 60
    assert search.compute_max_target_length(10, required=7) == 67
    short = search.with_overrides({"max_length": 20})
    most = [short.compute_max_target_length(source, required) for source, required in ((10, 0), (10, 7), (1, 0))]
    assert most == [20, 20, 20]
    assert search.with_overrides({"max_length": 100}).compute_max_target_length(10) == 60


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 1}, "max_length = 1 leaves room for `</s>` only: set at least 2, or 0 for no limit"),
        ({"max_length": -1}, "max_length = -1: must be greater than or equal to 0"),
        ({"max_length": 5, "min_length": 6}, "min_length = 6 is above max_length = 5: change one of them"),
        ({"min_length": 308}, "min_length = 308: must be at most 307, the maximum length"),
        ({"max_length": 400, "min_length": 308}, "min_length = 308: must be at most 307, the maximum length"),
        ({"beam": "many"}, "beam = many: must be"),
        ({"beans": 3}, "beans is not a search setting; these exist: beam, "),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SearchConfig().with_overrides(settings)


def test_the_shortest_may_be_the_longest() -> None:
    assert SearchConfig().with_overrides({"min_length": 307, "max_length": 307}).min_length == 307
    with pytest.raises(ValidationError, match="min_length = 3 is above max_length = 2"):
        SearchConfig(min_length=3, max_length=2)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kernel_width": 4}, "kernel_width = 4 must be odd"),
        ({"architecture": "bytenet", "d_model": 15, "num_heads": 5, "positions": "none"}, "d_model = 15 must be even"),
    ],
)
def test_settings_of_other_networks_are_checked(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TransformerConfig(**settings)


def test_each_network_has_its_own_settings() -> None:
    config = TransformerConfig(architecture="bytenet", kernel_width=5)
    assert config.select_own_settings()["kernel_width"] == 5
    assert "num_heads" not in config.select_own_settings()
    assert "kernel_width" not in TransformerConfig().select_own_settings()
    assert TransformerConfig(architecture="convs2s").select_own_settings().keys() >= {"max_positions", "kernel_width"}
    assert "max_relative_distance" not in TransformerConfig().select_own_settings()
    assert "max_relative_distance" in TransformerConfig(positions="relative").select_own_settings()


def test_a_network_without_heads_may_be_narrower_than_their_usual_number() -> None:
    config = TransformerConfig(architecture="recurrent", d_model=4)
    assert (config.d_k, config.d_v) == (1, 1)
    assert TransformerConfig.model_validate(config.model_dump()) == config  # as it is read again


def test_what_is_computed_for_a_transformer_is_refused_to_other_networks() -> None:
    config = TransformerConfig(architecture="convs2s")
    with pytest.raises(ConfigError, match="is no Transformer"):
        _ = config.num_parameters
    with pytest.raises(ConfigError, match="is no Transformer"):
        Transformer(config)
