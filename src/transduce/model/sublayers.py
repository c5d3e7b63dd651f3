"""The parts of every layer: dropout, normalisation, residual connection, position-wise feed-forward network."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.batch_invariance import compute_elementwise
from transduce.kernels.layers import dropout, layer_normalization
from transduce.kernels.linear import Linear


class Dropout(nn.Module):
    """Sets each number to 0 with probability `p`, in training only, and divides the others by 1 - p (paper 5.4).

    Srivastava et al. 2014.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, inputs: Tensor) -> Tensor:
        """Zeros and scaled numbers; `inputs` themselves in evaluation."""
        return inputs if not self.training or self.p == 0 else dropout(inputs, self.p)


EPSILON = 1e-5
"""Number that normalisations add to the variance or mean square; other runtimes fix it at this value."""


class LayerNormalization(nn.Module):
    """Normalises each position to mean 0 and variance 1 over its d_model components.

    A learned gain and bias follow. Ba et al. 2016, as the paper uses it in 3.1.
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
        """Normalise every position by itself, padding included."""
        return layer_normalization(inputs, self.gain, self.bias, EPSILON)


class BatchNormalization(nn.Module):
    """Normalises each component to mean 0 and variance 1 over the real positions of the batch (Ioffe & Szegedy 2015).

    A learned gain and bias follow. Padding never enters the statistics. In training, the output at a position depends
    on all real positions of the batch, later ones of its own sentence included. In evaluation the running statistics of
    training are used instead, so that a sentence's result does not depend on its batch.
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
        """Normalise every component by the statistics of the positions where `mask` is True, or by running ones."""
        mean, variance = self.running_mean, self.running_variance
        if self.training:
            mean, variance = self._batch_statistics(inputs, mask)
        return (inputs - mean) * torch.rsqrt(variance + EPSILON) * self.gain + self.bias

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


class RMSNormalization(nn.Module):
    """Divides each position by the root mean square of its d_model components (Zhang & Sennrich 2019, eq. 4).

    A learned gain follows. Unlike layer normalisation, it subtracts no mean and has no bias.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(
        self,
        inputs: Float[Tensor, "batch length d_model"],
        mask: Bool[Tensor, "batch length"],  # noqa: ARG002 - called like BatchNormalization
    ) -> Float[Tensor, "batch length d_model"]:
        """Normalise every position by itself, padding included."""
        return F.rms_norm(inputs, self.gain.shape, self.gain.to(inputs.dtype), EPSILON)


Normalization = LayerNormalization | BatchNormalization | RMSNormalization


def make_normalization(config: TransformerConfig) -> Normalization:
    """Make the normalisation that the configuration names."""
    kinds: dict[str, type[Normalization]] = {
        "layer": LayerNormalization,
        "batch": BatchNormalization,
        "rms": RMSNormalization,
    }
    return kinds[config.normalization](config.d_model)


Sublayer = Callable[[Tensor], Tensor]


class ResidualConnection(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): post-norm, the paper's order (3.1 and 5.4).

    With `norm_order = "pre"` it is x + Dropout(Sublayer(LayerNorm(x))) instead (Xiong et al. 2020).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.post = config.norm_order == "post"
        self.normalization = make_normalization(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"], sublayer: Sublayer
    ) -> Float[Tensor, "batch length d_model"]:
        """The output of `sublayer` within the residual connection; `mask` is True at real positions."""
        if self.post:
            normalized: Tensor = self.normalization(x + self.dropout(sublayer(x)), mask)
            return normalized
        residual: Tensor = x + self.dropout(sublayer(self.normalization(x, mask)))
        return residual


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position (paper eq. 2).

    gelu (Hendrycks & Gimpel 2016, exact) or swish (Ramachandran et al. 2017) may replace max(0, ·).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.activation = ACTIVATIONS[config.activation]
        self.outer = Linear(config.d_ff, config.d_model)

    def forward(self, inputs: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """Transform each position: from width d_model to d_ff and back."""
        if self.activation is ACTIVATIONS["relu"]:
            hidden = self.inner(inputs, should_apply_relu=True)
        else:
            hidden = compute_elementwise(self.activation, self.inner(inputs))
        outputs: Tensor = self.outer(hidden)
        return outputs


class GatedFeedForward(nn.Module):
    """FFN(x) = (f(x W_1 + b_1) * (x V + c)) W_2 + b_2, the same at every position (Shazeer 2020, there without biases).

    The activation f makes it the paper's ReGLU (relu), GEGLU (gelu) or SwiGLU (swish). It has three matrices where
    `FeedForward` has two: with two thirds of the d_ff it has as many parameters.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.gate = Linear(config.d_model, config.d_ff)
        self.activation = ACTIVATIONS[config.activation]
        self.outer = Linear(config.d_ff, config.d_model)

    def forward(self, inputs: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """Transform each position: from width d_model to d_ff, twice, and back."""
        outputs: Tensor = self.outer(compute_elementwise(self.activation, self.inner(inputs)) * self.gate(inputs))
        return outputs


def make_feed_forward(config: TransformerConfig) -> FeedForward | GatedFeedForward:
    """Make the feed-forward network that the configuration names."""
    return GatedFeedForward(config) if config.feed_forward == "gated" else FeedForward(config)
