"""The networks that the paper compares its own with, and the choice between all of them by `model.architecture`."""

from transduce.baselines.architectures import ARCHITECTURES, make_encoder_decoder

__all__ = ["ARCHITECTURES", "make_encoder_decoder"]
