"""Dropout whose mask is drawn several times faster on a CPU than by torch."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def dropout(inputs: Tensor, p: float) -> Tensor:
    """Set each number to 0 with probability `p` and divide the others by 1 - `p`, as `reference_dropout`.

    On a CPU four numbers share one 64-bit random draw; `p` is then exact to 1/65536.
    """
    if inputs.device.type != "cpu":
        return reference_dropout(inputs, p)
    # torch's generator decides once for all numbers; numpy's draws 64 bits in half the time.
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    draws = generator.random_raw((inputs.numel() + 3) // 4).view(np.int16)[: inputs.numel()]
    numbers = torch.from_numpy(draws).view(inputs.shape)
    # Never all or nothing: the smallest and the largest p are one draw in 2^16.
    kept = min(max(round((1 - p) * 2**16), 1), 2**16 - 1)
    # int16 counts from -2^15; `kept` of its 2^16 values lie below this.
    mask = torch.lt(numbers, kept - 2**15, out=torch.empty_like(inputs))
    return inputs * mask.mul_(2**16 / kept)


def reference_dropout(inputs: Tensor, p: float) -> Tensor:
    """The same by torch alone, with other random numbers."""
    return F.dropout(inputs, p)
