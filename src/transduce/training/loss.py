"""The loss of training: cross-entropy with label smoothing, per real target token (paper 5.4)."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.model import NEVER

CHUNK_LOGITS = 2**23
"""Logits held at a time, if that is at least d_model rows: few enough for a processor's cache, and enough rows for
products at full speed."""

ACCELERATOR_CHUNK_LOGITS = 2**28
"""The same on an accelerator, where few large products are fast."""


@dataclass(frozen=True)
class TokenLosses:
    """Sums over tokens.

    Args:
        loss: cross-entropy against the smoothed target; what is minimised; differentiable.
        cross_entropy: the same against the target itself, in nats; its mean is the logarithm of perplexity.
        num_correct: tokens whose logit is the largest of all.
    """

    loss: Float[Tensor, ""]
    cross_entropy: Float[Tensor, ""]
    num_correct: Int[Tensor, ""]


def label_smoothed_cross_entropy(
    hidden: Float[Tensor, "tokens d_model"],
    weight: Float[Tensor, "vocabulary d_model"],
    targets: Int[Tensor, " tokens"],
    smoothing: float,
    bias: Float[Tensor, " vocabulary"] | None = None,
) -> TokenLosses:
    """Cross-entropy against a target of 1 - `smoothing` on the right token, the rest spread evenly over all tokens.

    "All tokens" are those that can be predicted: `<pad>`, the last row of `weight`, has the logit -inf and no share,
    and neither has a token whose `bias` is `NEVER` (Szegedy et al. 2016; paper 5.4). The logits,
    hidden · weightᵀ + bias, are made, used for loss and gradient, and dropped a chunk of rows at a time: the full
    matrix of them is never held.
    """
    return TokenLosses(*_ChunkedCrossEntropy.apply(hidden, weight, bias, targets, smoothing))  # type: ignore[no-untyped-call]


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, while a chunk's probabilities are at hand.

    With p the probabilities, V the tokens that can be predicted and s the smoothing, the gradient of a row of logits is
    p - s/V - (1 - s) [right token]. Only p takes a product of the size of the logits; the two other terms are sparse or
    the same for every row, and are added to the gradients of the small matrices on either side.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, ...]:
        predicted = _predicted(bias)
        real = weight[predicted].float()
        matrix, addend = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
        # The mean logit of a row is its product with the mean row of the matrix: no pass over the logits.
        mean_row = real.mean(dim=0)
        mean_bias = 0.0 if bias is None else bias[predicted].mean()
        needs_gradient = any(ctx.needs_input_grad[:3]) and not torch.is_inference_mode_enabled()
        hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        bias_gradient = None if bias is None else torch.zeros_like(bias)
        sums = torch.zeros(2, device=hidden.device)
        num_correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        # Each chunk adds a gradient of the whole matrix, which fewer than d_model rows would not be worth.
        most = CHUNK_LOGITS if hidden.device.type == "cpu" else ACCELERATOR_CHUNK_LOGITS
        chunk_rows = max(most // weight.size(0), weight.size(1))
        for start in range(0, len(targets), chunk_rows):
            part = slice(start, start + chunk_rows)
            states, right = hidden[part], targets[part]
            logits = states @ matrix.T if addend is None else torch.addmm(addend, states, matrix.T)
            logits[:, -1] = -torch.inf
            right_logit = logits.gather(1, right[:, None]).float()
            largest = logits.amax(dim=-1, keepdim=True).float()
            probabilities = logits.softmax(dim=-1)
            # The largest probability, unlike the right one, is never too small to have a logarithm.
            log_total = largest - probabilities.amax(dim=-1, keepdim=True).float().log()
            cross_entropy = log_total - right_logit
            smooth = log_total.squeeze(1) - states.float() @ mean_row - mean_bias
            sums[0] += (1 - smoothing) * cross_entropy.sum() + smoothing * smooth.sum()
            sums[1] += cross_entropy.sum()
            num_correct += (right_logit == largest).sum()
            if needs_gradient:
                wanted = torch.add(smoothing * mean_row, weight[right].float(), alpha=1 - smoothing)
                hidden_gradient[part] = (probabilities @ matrix).float().sub_(wanted)
                weight_gradient += probabilities.T @ states
                if bias_gradient is not None:
                    bias_gradient += probabilities.sum(dim=0, dtype=torch.float32)
        if needs_gradient:
            wide_hidden = hidden.float()
            weight_gradient[predicted] -= wide_hidden.sum(dim=0).mul_(smoothing / len(real))
            weight_gradient.index_add_(0, targets, wide_hidden, alpha=smoothing - 1)
            if bias_gradient is not None:
                bias_gradient[predicted] -= len(targets) * smoothing / len(real)
                bias_gradient.index_add_(0, targets, torch.ones_like(bias_gradient[targets]), alpha=smoothing - 1)
        ctx.save_for_backward(hidden_gradient, weight_gradient.to(weight.dtype), bias_gradient)
        loss, cross_entropy_sum = (part.clone() for part in sums)  # what is returned may not be a view
        ctx.mark_non_differentiable(cross_entropy_sum, num_correct)
        return loss, cross_entropy_sum, num_correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        of_bias = None if bias_gradient is None else bias_gradient * outer
        return hidden_gradient * outer.to(hidden_gradient.dtype), weight_gradient * outer, of_bias, None, None


def _predicted(bias: Float[Tensor, " vocabulary"] | None) -> slice | Bool[Tensor, " vocabulary"]:
    """The tokens that can be predicted: all but `<pad>`, and those that a bias rules out."""
    if bias is None:
        return slice(None, -1)
    can_be = bias > NEVER / 2
    can_be[-1] = False
    return can_be
