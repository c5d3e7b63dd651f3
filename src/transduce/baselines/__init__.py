"""The networks that the paper compares itself with, each from its own paper, and the choice among all networks."""

from transduce.baselines.architectures import ARCHITECTURES, make_encoder_decoder
from transduce.baselines.bytenet import ByteNet
from transduce.baselines.convs2s import ConvS2S
from transduce.baselines.recurrent import RecurrentNetwork

__all__ = ["ARCHITECTURES", "ByteNet", "ConvS2S", "RecurrentNetwork", "make_encoder_decoder"]
