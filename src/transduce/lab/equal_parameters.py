"""Networks of the paper's comparison with as many parameters as a given Transformer."""

from transduce.bundle.weights import count_parameters
from transduce.config import TransformerConfig

LAYERS = {"recurrent": 1 / 6, "convs2s": 15 / 6, "bytenet": 30 / 6}
"""For each network, its layers for every layer of the Transformer: as deep as its own paper has it, beside six layers.

Bahdanau et al. 2015 have one layer on either side, Gehring et al. 2017 fifteen, Kalchbrenner et al. 2016 thirty.
"""

_NUM_LAYERS = ("num_encoder_layers", "num_decoder_layers")
_SHARED = ("vocabulary", "kernel_width", "max_positions", "dropout", "tied_embeddings", "output_bias")


def match_rivals(transformer: TransformerConfig) -> dict[str, TransformerConfig]:
    """The Transformer and its rivals with equally many parameters, by `TransformerConfig.architecture`.

    Numbers of layers follow `LAYERS`; d_model is the even number that brings the parameters nearest.
    """
    wanted = count_parameters(transformer)
    rivals = {"transformer": transformer}
    for name, ratio in LAYERS.items():
        rivals[name] = _find_width(transformer, name, ratio, wanted)
    return rivals


def _find_width(transformer: TransformerConfig, architecture: str, ratio: float, wanted: int) -> TransformerConfig:
    layers = {name: max(1, round(ratio * getattr(transformer, name))) for name in _NUM_LAYERS}
    given = {name: getattr(transformer, name) for name in _SHARED} | layers | {"architecture": architecture}

    def make(half: int) -> TransformerConfig:
        return TransformerConfig.model_validate({**given, "d_model": 2 * half})

    half = 1
    while count_parameters(make(2 * half)) < wanted:
        half *= 2
    low, high = half, 2 * half  # too few, and enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_parameters(make(middle)) < wanted else (low, middle)
    return min((make(low), make(high)), key=lambda config: abs(count_parameters(config) - wanted))
