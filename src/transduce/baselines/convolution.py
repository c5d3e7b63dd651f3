"""Convolution over the positions of a sentence, as a matrix product for each window of positions.

A convolution with k weights for each pair of channels is a matrix that reads the inputs of k positions side by side,
W in R^(outputs × k·inputs) (Gehring et al. 2017, section 3.2). `gather_windows` puts them side by side; what multiplies
them is a linear layer.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def gather_windows(
    inputs: Float[Tensor, "batch padded channels"], kernel_width: int, dilation: int = 1
) -> Float[Tensor, "batch length window"]:
    """For each place of a window, the inputs of its `kernel_width` positions, `dilation` apart, side by side.

    There are (`kernel_width` - 1) · `dilation` fewer places than positions. What the first or last of them lack is
    added to the inputs before: on the left alone, and an output depends on no later input (a causal convolution).
    """
    length = inputs.size(1) - (kernel_width - 1) * dilation
    return torch.cat([inputs[:, i * dilation : i * dilation + length] for i in range(kernel_width)], dim=-1)
