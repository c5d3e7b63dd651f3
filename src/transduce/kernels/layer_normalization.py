"""Layer normalisation whose gradients in bfloat16 on a CPU are summed in float32."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def layer_normalization(
    inputs: Float[Tensor, "*batch d_model"],
    gain: Float[Tensor, " d_model"],
    bias: Float[Tensor, " d_model"],
    epsilon: float,
) -> Float[Tensor, "*batch d_model"]:
    """Normalise every position to mean 0 and variance 1, then apply `gain` and `bias`, as `reference_normalization`."""
    if inputs.dtype == torch.bfloat16 and inputs.device.type == "cpu":
        normalized: Tensor = _LayerNormalizationInBfloat16.apply(inputs, gain, bias, epsilon)  # type: ignore[no-untyped-call]
        return normalized
    return reference_normalization(inputs, gain, bias, epsilon)


def reference_normalization(inputs: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """The same by torch alone."""
    return F.layer_norm(inputs, gain.shape, gain.to(inputs.dtype), bias.to(inputs.dtype), epsilon)


class _LayerNormalizationInBfloat16(torch.autograd.Function):
    """For a CPU, where torch's own backward pass sums the gradients of gain and bias in bfloat16.

    Such a sum stops growing when it is a few hundred times as large as its terms: of the gain's gradient over 4,096
    positions, torch loses a tenth to a fifth. `Tensor.sum` adds in float32.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:  # noqa: ANN401 - torch's context
        outputs, mean, reciprocal = torch.native_layer_norm(inputs, gain.shape, gain, bias, epsilon)
        ctx.save_for_backward(inputs, mean, reciprocal, gain, bias)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        inputs, mean, reciprocal, gain, bias = ctx.saved_tensors
        inputs_gradient, _, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, inputs, gain.shape, mean, reciprocal, gain, bias, [True, False, False]
        )
        normalized = (inputs - mean.to(inputs.dtype)).mul_(reciprocal.to(inputs.dtype))
        gain_gradient, bias_gradient = (
            part.reshape(-1, gain.numel()).sum(dim=0).to(gain.dtype) for part in (normalized.mul_(gradient), gradient)
        )
        return inputs_gradient, gain_gradient, bias_gradient, None
