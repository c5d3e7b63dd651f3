"""Dropout (paper 5.4), with a mask that is cheap to draw on a processor."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Each number becomes 0 with probability `p`, in training only; the others are divided by 1 - p.

    Srivastava et al. 2014. On a CPU four numbers share one 64-bit random draw, several times faster than
    `torch.nn.Dropout`; `p` is then exact to 1/65536.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, inputs: Tensor) -> Tensor:
        """The numbers that are left, scaled so that every mean is kept; `inputs` itself in evaluation."""
        if not self.training or self.p == 0:
            return inputs
        if inputs.device.type != "cpu":
            return F.dropout(inputs, self.p)
        # torch's own generator decides, once for all; numpy's draws 64 bits in half the time.
        generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
        draws = generator.random_raw((inputs.numel() + 3) // 4).view(np.int16)[: inputs.numel()]
        numbers = torch.from_numpy(draws).view(inputs.shape)
        # Never all or nothing: the smallest and the largest p are one draw in 2^16.
        kept = min(max(round((1 - self.p) * 2**16), 1), 2**16 - 1)
        # int16 counts from -2^15; `kept` of its 2^16 values lie below this.
        mask = torch.lt(numbers, kept - 2**15, out=torch.empty_like(inputs))
        return inputs * mask.mul_(2**16 / kept)
