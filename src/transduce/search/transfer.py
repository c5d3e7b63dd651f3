"""The one way from the device to the host in a step of the search."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def to_host(scores: Float[Tensor, "*shape"], *integers: Int[Tensor, "*shape"]) -> tuple[Tensor, ...]:
    """The same tensors on the host, as float32 and int64, in a single copy: each one would wait for the device.

    The integers must fit into 32 bits, as ids do.
    """
    if scores.device.type == "cpu":
        return scores.float(), *(part.long() for part in integers)
    bits = scores.float().view(torch.int32)
    host_bits, *host_integers = torch.stack([bits, *(part.int() for part in integers)]).cpu()
    return host_bits.view(torch.float32), *(part.long() for part in host_integers)
