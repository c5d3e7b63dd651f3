"""Rivals have the parameters of the Transformer."""

import pytest

from transduce.baselines import make_encoder_decoder
from transduce.bundle.weights import count_parameters
from transduce.config import TransformerConfig
from transduce.lab.equal_parameters import match_rivals
from transduce.lab.experiments.path_length import recall_task

MAX_DIFFERENCE = 0.05
"""Part of the parameters by which networks with equally many may differ, as widths are whole numbers."""

MODELS = [
    recall_task.SMALL,
    TransformerConfig(vocabulary=500, num_encoder_layers=2, num_decoder_layers=2, d_model=64, d_ff=256, num_heads=4),
    TransformerConfig(vocabulary=4000, num_encoder_layers=3, num_decoder_layers=3, d_model=128, d_ff=512, num_heads=4),
]


def test_parameters_are_those_of_the_network() -> None:
    config = TransformerConfig(architecture="bytenet", vocabulary=20, num_encoder_layers=1, d_model=8, num_heads=1)
    assert count_parameters(config) == make_encoder_decoder(config).num_parameters


@pytest.mark.parametrize("transformer", MODELS)
def test_rivals_have_as_many_parameters(transformer: TransformerConfig) -> None:
    rivals = match_rivals(transformer)
    assert list(rivals) == ["transformer", "recurrent", "convs2s", "bytenet"]
    wanted = count_parameters(transformer)
    for name, config in rivals.items():
        assert config.architecture == name
        assert config.vocabulary == transformer.vocabulary
        assert abs(count_parameters(config) / wanted - 1) <= MAX_DIFFERENCE


def test_rivals_are_as_deep_in_proportion_as_published() -> None:
    six = TransformerConfig(vocabulary=100, d_model=32, d_ff=64, num_heads=4, max_positions=64)
    depths = {name: config.num_encoder_layers for name, config in match_rivals(six).items()}
    assert depths == {"transformer": 6, "recurrent": 1, "convs2s": 15, "bytenet": 30}


@pytest.mark.parametrize("architecture", ["transformer", "recurrent", "convs2s", "bytenet"])
def test_layers_are_counted_without_building_them(architecture: str) -> None:
    config = TransformerConfig(architecture=architecture, vocabulary=20, d_model=8, num_heads=1, num_encoder_layers=7)
    assert count_parameters(config) == make_encoder_decoder(config).num_parameters
    assert count_parameters(config.model_copy(update={"num_decoder_layers": 10**9})) > 10**11
