"""The choice of a network by the name that the settings give it."""

from transduce.baselines.bytenet import ByteNet
from transduce.baselines.convs2s import ConvS2S
from transduce.baselines.recurrent import RecurrentNetwork
from transduce.config import TransformerConfig
from transduce.model import EncoderDecoder, Transformer

ARCHITECTURES: dict[str, type[EncoderDecoder]] = {
    "transformer": Transformer,
    "recurrent": RecurrentNetwork,
    "convs2s": ConvS2S,
    "bytenet": ByteNet,
}
"""For each value of `model.architecture`, the class of the network."""


def make_encoder_decoder(config: TransformerConfig) -> EncoderDecoder:
    """The network that `config.architecture` names, with new weights."""
    return ARCHITECTURES[config.architecture](config)
