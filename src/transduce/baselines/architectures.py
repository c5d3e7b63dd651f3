"""The choice of a network by `model.architecture`."""

from transduce.config import TransformerConfig
from transduce.model import EncoderDecoder, Transformer

ARCHITECTURES: dict[str, type[EncoderDecoder]] = {"transformer": Transformer}
"""For each value of `model.architecture`, its network."""


def make_encoder_decoder(config: TransformerConfig) -> EncoderDecoder:
    """The network that `config` describes, with random weights, in training mode."""
    return ARCHITECTURES[config.architecture](config)
