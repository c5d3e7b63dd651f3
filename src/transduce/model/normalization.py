"""What normalises the output of every sub-layer: layer normalisation (paper 3.1), or batch normalisation to compare."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.config import TransformerConfig

EPSILON = 1e-5
"""Added to the variance; other runtimes fix it at this value."""


class LayerNormalization(nn.Module):
    """Mean 0 and variance 1 over the d_model components of each position, then a learned gain and bias.

    Ba et al. 2016, as the paper uses it in 3.1.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(
        self,
        inputs: Float[Tensor, "batch length d_model"],
        mask: Bool[Tensor, "batch length"],  # noqa: ARG002 - called like BatchNormalization
    ) -> Float[Tensor, "batch length d_model"]:
        """Every position by itself, padding like the rest."""
        if inputs.dtype == torch.bfloat16 and inputs.device.type == "cpu":
            normalized: Tensor = _LayerNormalizationInBfloat16.apply(inputs, self.gain, self.bias)  # type: ignore[no-untyped-call]
            return normalized
        gain, bias = self.gain.to(inputs.dtype), self.bias.to(inputs.dtype)
        return F.layer_norm(inputs, self.gain.shape, gain, bias, EPSILON)


class _LayerNormalizationInBfloat16(torch.autograd.Function):
    """On a CPU, where torch's own backward pass adds up the gradients of gain and bias in bfloat16.

    A sum so large that the next number is lost in it stops growing: of the gain's gradient over 4,096 positions, torch
    leaves out a tenth to a fifth. `Tensor.sum` adds up in float32.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, gain: Tensor, bias: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        outputs, mean, reciprocal = torch.native_layer_norm(inputs, gain.shape, gain, bias, EPSILON)
        ctx.save_for_backward(inputs, mean, reciprocal, gain, bias)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401 - torch's context
        inputs, mean, reciprocal, gain, bias = ctx.saved_tensors
        inputs_gradient, _, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, inputs, gain.shape, mean, reciprocal, gain, bias, [True, False, False]
        )
        normalized = (inputs - mean.to(inputs.dtype)).mul_(reciprocal.to(inputs.dtype))
        gain_gradient, bias_gradient = (
            part.reshape(-1, gain.numel()).sum(dim=0).to(gain.dtype) for part in (normalized.mul_(gradient), gradient)
        )
        return inputs_gradient, gain_gradient, bias_gradient


class BatchNormalization(nn.Module):
    """Mean 0 and variance 1 of each component over the real positions of the batch (Ioffe & Szegedy 2015).

    Padding never enters the statistics. In evaluation the running means of training stand in for the batch's, so that
    a sentence's result does not depend on its batch; in training it does, and later positions count too.
    """

    running_mean: Tensor
    running_variance: Tensor
    momentum = 0.1

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_variance", torch.ones(d_model))

    def forward(
        self, inputs: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Every component by the statistics of the positions where `mask` is True; in training these are recorded."""
        mean, variance = self._batch_statistics(inputs, mask) if self.training else self._running_statistics()
        return (inputs - mean) * torch.rsqrt(variance + EPSILON) * self.gain + self.bias

    def _running_statistics(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_variance

    def _batch_statistics(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        real = mask.unsqueeze(-1)
        count = mask.sum()
        mean = (inputs * real).sum(dim=(0, 1)) / count
        variance = ((inputs - mean).square() * real).sum(dim=(0, 1)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            unbiased = variance.to(self.running_variance) * count / (count - 1).clamp(min=1)
            self.running_variance.lerp_(unbiased, self.momentum)
        return mean, variance


Normalization = LayerNormalization | BatchNormalization


def make_normalization(config: TransformerConfig) -> Normalization:
    """The normalisation that the configuration names."""
    kinds: dict[str, type[Normalization]] = {"layer": LayerNormalization, "batch": BatchNormalization}
    return kinds[config.normalization](config.d_model)
