"""The loss of training: cross-entropy with label smoothing, per real target token (paper 5.4)."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_NUMBERS = 2**20
"""Logits held at a time, if that is at least d_model rows; 4 MB in float32, so that they stay in the cache."""

ACCELERATOR_CHUNK_NUMBERS = 2**27
"""The same on an accelerator, where few large products are fast: 512 MB in float32."""


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
) -> TokenLosses:
    """Cross-entropy against a target of 1 - `smoothing` on the right token, the rest spread evenly over all tokens.

    "All tokens" are those that can be predicted: `<pad>`, the last row of `weight`, has the logit -inf and no share
    (Szegedy et al. 2016; paper 5.4). The logits, hidden · weightᵀ, are made, used for loss and gradient, and dropped a
    chunk of rows at a time: the full matrix of them is never held.
    """
    return TokenLosses(*_ChunkedCrossEntropy.apply(hidden, weight, targets, smoothing))  # type: ignore[no-untyped-call]


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, while a chunk's probabilities are at hand."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, ...]:  # noqa: ANN401 - torch's context
        num_real = weight.size(0) - 1
        matrix = weight.to(hidden.dtype)
        # The mean logit of a row is its product with the mean row of the matrix: no pass over the logits.
        mean_row = weight[:-1].float().mean(dim=0)
        needs_gradient = any(ctx.needs_input_grad[:2]) and not torch.is_inference_mode_enabled()
        hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        sums = torch.zeros(2, device=hidden.device)
        num_correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        # Each chunk adds a gradient of the whole matrix, which fewer than d_model rows would not be worth.
        numbers = CHUNK_NUMBERS if hidden.device.type == "cpu" else ACCELERATOR_CHUNK_NUMBERS
        chunk_rows = max(1, numbers // weight.size(0), weight.size(1))
        for start in range(0, len(targets), chunk_rows):
            part = slice(start, start + chunk_rows)
            states, right = hidden[part], targets[part, None]
            logits = (states @ matrix.T).float()
            logits[:, -1] = -torch.inf
            largest, best = logits.max(dim=-1, keepdim=True)
            right_logit = logits.gather(1, right)
            probabilities = logits.sub_(largest).exp_()
            total = probabilities.sum(dim=-1, keepdim=True)
            log_total = largest + total.log()
            cross_entropy = log_total - right_logit
            smooth = log_total.squeeze(1) - states.float() @ mean_row
            sums[0] += (1 - smoothing) * cross_entropy.sum() + smoothing * smooth.sum()
            sums[1] += cross_entropy.sum()
            num_correct += (best == right).sum()
            if needs_gradient:
                gradient = probabilities.div_(total).sub_(smoothing / num_real)
                gradient[:, -1] = 0
                gradient.scatter_add_(1, right, gradient.new_full(right.shape, smoothing - 1))
                gradient = gradient.to(hidden.dtype)
                torch.mm(gradient, matrix, out=hidden_gradient[part])
                weight_gradient += gradient.T @ states
        ctx.save_for_backward(hidden_gradient, weight_gradient.to(weight.dtype))
        loss, cross_entropy_sum = (part.clone() for part in sums)  # what is returned may not be a view
        ctx.mark_non_differentiable(cross_entropy_sum, num_correct)
        return loss, cross_entropy_sum, num_correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * outer.to(hidden_gradient.dtype), weight_gradient * outer, None, None
