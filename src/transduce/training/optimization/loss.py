"""The training loss: cross-entropy with label smoothing over real target tokens (paper 5.4), and the term of R-Drop."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.data import Batch
from transduce.kernels.layers import softmax_with_statistics
from transduce.kernels.linear import accumulate_in_float32, uses_onednn_bfloat16
from transduce.model import EXCLUDED_TOKEN_BIAS, EncoderDecoder, as_transformer
from transduce.training.optimization.guided_alignment import (
    AlignmentModel,
    compute_alignment_loss,
    decode_with_guided_head,
)

CHUNK_LOGITS = 2**22
"""Maximum number of logits that the loss holds at a time on a CPU, unless d_model rows of logits are more: few enough
for a processor's cache, and enough rows for matrix products at full speed."""

ACCELERATOR_CHUNK_LOGITS = 2**28
"""Maximum number of logits that the loss holds at a time on a GPU or another accelerator, in place of `CHUNK_LOGITS`:
few large matrix products are faster there than many small ones."""

R_DROP_CHUNK_DIVISOR = 4
"""With R-Drop, both maximums are divided by this: beside the logits, the divergence of two passes holds about four
matrices of their size, in float32."""

MAX_BFLOAT16_ROWS = 512
"""In bfloat16 on a CPU, the loss computes the logits of at most this many tokens at a time, or of d_model tokens if
that is more."""

CHUNK_ROW_MULTIPLE = 32
"""In bfloat16 on a CPU, the number of tokens whose logits are computed together is a multiple of this, so that matrix
products have few different shapes."""


class TokenLosses(NamedTuple):
    """Losses of a batch, each summed over its real target tokens."""

    loss: Float[Tensor, ""]
    """Cross-entropy against the smoothed target, with R-Drop plus the weighted divergence; differentiable."""
    cross_entropy: Float[Tensor, ""]
    """Cross-entropy against the target itself, in nats; its mean is the logarithm of perplexity."""
    num_correct: Num[Tensor, ""]
    """Tokens whose logit is the largest of all."""
    divergence: Float[Tensor, ""]
    """(KL(p‖q) + KL(q‖p)) / 2 of the predictions p and q of two passes, in nats; 0 without R-Drop."""
    alignment_loss: Float[Tensor, ""] = torch.zeros(())
    """Loss of guided alignment, without its weight; differentiable. 0 without an alignment model."""


def label_smoothed_cross_entropy(
    hidden: Float[Tensor, "tokens d_model"],
    weight: Float[Tensor, "vocabulary d_model"],
    targets: Int[Tensor, " tokens"],
    smoothing: float,
    bias: Float[Tensor, " vocabulary"] | None = None,
    r_drop: float = 0.0,
) -> TokenLosses:
    """Cross-entropy against a target of 1 - `smoothing` on the right token, the rest spread evenly over all tokens.

    "All tokens" are those that can be predicted (Szegedy et al. 2016; paper 5.4): neither `<pad>`, the last row of
    `weight`, whose logit is -inf, nor tokens with the bias `EXCLUDED_TOKEN_BIAS`. The logits, hidden · weightᵀ + bias,
    are computed and used for loss and gradient a chunk of rows at a time: the full matrix is never held.

    With `r_drop`, rows 2i and 2i + 1 are two passes over the same token, which differ in dropout, and `r_drop` times
    their divergence is added (R-Drop: Liang et al. 2021, section 2).
    """
    return TokenLosses(*_ChunkedCrossEntropy.apply(hidden, weight, bias, targets, smoothing, r_drop))  # type: ignore[no-untyped-call]


def compute_losses(
    model: EncoderDecoder,
    batch: Batch,
    smoothing: float,
    alignment: AlignmentModel | None = None,
    r_drop: float = 0.0,
) -> TokenLosses:
    """The losses of a model over the real target tokens of a batch.

    With an `alignment` model, the loss by which one head is guided is among them.

    With `r_drop`, the two passes of R-Drop are one over a batch with all rows twice. Losses are means of both, so that
    they are comparable with those of a single pass: `loss` is half of that of Liang et al., who add cross-entropies.
    """
    num_passes = 2 if r_drop else 1
    given = batch.repeat(num_passes)
    memory = model.encode(given.source_ids, given.source_mask)
    weights = None
    if alignment is None:
        hidden = model.decode_hidden(given.target_ids, given.target_mask, memory, given.source_mask)
    else:
        hidden, weights = decode_with_guided_head(as_transformer(model, "guided alignment"), given, memory)
    # The passes of a token side by side.
    states = torch.unflatten(hidden, 0, (num_passes, -1)).movedim(0, 2)[batch.target_mask].flatten(0, 1)
    targets = batch.target_ids[batch.target_mask].repeat_interleave(num_passes)
    weight, bias = model.projection.weight, model.projection.bias
    sums = label_smoothed_cross_entropy(states, weight, targets, smoothing, bias, r_drop)
    if alignment is not None and weights is not None:
        sums = sums._replace(alignment_loss=compute_alignment_loss(weights, given, alignment))
    means = TokenLosses(*(one / num_passes for one in sums))
    return means._replace(divergence=sums.divergence)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, from a chunk's probabilities.

    With p the probabilities, V the number of tokens that can be predicted and s the smoothing, the gradient of a row of
    logits is p - s/V - (1 - s) [right token]. Only p takes a product of the size of the logits; the two other terms are
    sparse or the same for every row, and are added to the gradients of the small matrices on either side. The gradient
    of R-Drop's divergence is added to p.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        r_drop: float,
    ) -> tuple[Tensor, ...]:
        predictable = _find_predictable(bias)
        real = weight[predictable].float()
        matrix, addend = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
        # The mean logit of a row is its product with the mean row of the matrix: no pass over the logits.
        mean_row = real.mean(dim=0)
        mean_bias = 0.0 if bias is None else bias[predictable].mean()
        needs_gradient = any(ctx.needs_input_grad[:3]) and not torch.is_inference_mode_enabled()
        hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        bias_gradient = None if bias is None else torch.zeros_like(bias)
        sums = torch.zeros(3, device=hidden.device)
        num_correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        # A buffer that every chunk reuses, as it is still in the cache.
        size = _choose_chunk_size(hidden, weight, has_two_passes=r_drop > 0)
        buffer = hidden.new_empty(size, weight.size(0))
        for part, num_twice in _iterate_chunks(hidden, size):
            states, right = hidden[part], targets[part]
            logits = buffer[: len(right)]
            if addend is None:
                torch.mm(states, matrix.T, out=logits)
            else:
                torch.addmm(addend, states, matrix.T, out=logits)
            logits[:, -1] = -torch.inf
            if r_drop:
                divergences, divergence_gradient = _differentiate_divergence(logits)
                sums[2] += divergences[num_twice // 2 :].sum()
            log_totals, right_logits, largest = softmax_with_statistics(logits, right)
            probabilities = logits  # written over them
            cross_entropy = (log_totals - right_logits)[num_twice:].sum()
            smooth = (log_totals - states.float() @ mean_row - mean_bias)[num_twice:].sum()
            sums[0] += (1 - smoothing) * cross_entropy + smoothing * smooth
            sums[1] += cross_entropy
            num_correct += (right_logits == largest)[num_twice:].sum()
            if needs_gradient:
                if r_drop:
                    probabilities.add_(divergence_gradient, alpha=r_drop)
                wanted = torch.add(smoothing * mean_row, weight[right].float(), alpha=1 - smoothing)
                hidden_gradient[part] = (probabilities @ matrix).float().sub_(wanted)
                probabilities[:num_twice] = 0
                accumulate_in_float32(weight_gradient, probabilities.T @ states)
                if bias_gradient is not None:
                    bias_gradient += probabilities.sum(dim=0, dtype=torch.float32)
        if needs_gradient:
            wide_hidden = hidden.float()
            weight_gradient[predictable] -= wide_hidden.sum(dim=0).mul_(smoothing / len(real))
            weight_gradient.index_add_(0, targets, wide_hidden, alpha=smoothing - 1)
            if bias_gradient is not None:
                bias_gradient[predictable] -= len(targets) * smoothing / len(real)
                bias_gradient.index_add_(0, targets, torch.ones_like(bias_gradient[targets]), alpha=smoothing - 1)
        ctx.save_for_backward(hidden_gradient, weight_gradient.to(weight.dtype), bias_gradient)
        sums[0] += r_drop * sums[2]
        loss, cross_entropy_sum, divergence = (part.clone() for part in sums)  # what is returned may not be a view
        ctx.mark_non_differentiable(cross_entropy_sum, num_correct, divergence)
        return loss, cross_entropy_sum, num_correct, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        of_hidden = hidden_gradient * loss_gradient.to(hidden_gradient.dtype)
        of_weight = weight_gradient * loss_gradient
        of_bias = None if bias_gradient is None else bias_gradient * loss_gradient
        return of_hidden, of_weight, of_bias, None, None, None


def _differentiate_divergence(
    logits: Float[Tensor, "rows vocabulary"],
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, "rows vocabulary"]]:
    """The divergence (KL(p‖q) + KL(q‖p)) / 2 of each token and its gradient, in float32.

    The logits of p and of q are neighbouring rows; the last column is -inf, and in float16, so are those of tokens with
    the bias `EXCLUDED_TOKEN_BIAS`. The gradient of a row of logits is (p (log(p/q) - KL(p‖q)) + p - q) / 2, and the
    same with p and q exchanged.
    """
    log_probabilities = torch.unflatten(logits.float().log_softmax(dim=-1), 0, (-1, 2))
    probabilities = log_probabilities.exp()
    ratios = log_probabilities - log_probabilities.flip(1)
    # Of two infinities, a ratio is not a number.
    if logits.dtype == torch.float16:
        ratios.masked_fill_(log_probabilities == -torch.inf, 0)
    else:
        ratios[..., -1] = 0
    divergences = (probabilities * ratios).sum(dim=-1, keepdim=True)
    gradient = ratios.sub_(divergences).mul_(probabilities).add_(probabilities).sub_(probabilities.flip(1)).div_(2)
    return divergences.mean(dim=(1, 2)), gradient.flatten(0, 1)


def _choose_chunk_size(
    hidden: Float[Tensor, "tokens d_model"], weight: Float[Tensor, "vocabulary d_model"], *, has_two_passes: bool
) -> int:
    """Rows of a chunk, an even number with two passes; only the last may have fewer."""
    num_tokens, on_cpu = hidden.size(0), hidden.device.type == "cpu"
    # Each chunk adds a gradient of the whole matrix, which is not worthwhile for fewer than d_model rows.
    max_logits = CHUNK_LOGITS if on_cpu else ACCELERATOR_CHUNK_LOGITS
    if has_two_passes:
        max_logits //= R_DROP_CHUNK_DIVISOR
    rows = max(max_logits // weight.size(0), weight.size(1))
    if has_two_passes:
        rows -= rows % 2
    if not uses_onednn_bfloat16(hidden):
        return min(rows, num_tokens)
    rows = min(rows, max(MAX_BFLOAT16_ROWS, weight.size(1)))
    num_chunks = max(1, -(-num_tokens // rows))
    even = -(-num_tokens // num_chunks)
    return min(-(-even // CHUNK_ROW_MULTIPLE) * CHUNK_ROW_MULTIPLE, num_tokens)


def _iterate_chunks(hidden: Float[Tensor, "tokens d_model"], size: int) -> Iterator[tuple[slice, int]]:
    """The rows of each chunk of `size` rows, and how many of its first rows the chunk before it had, too.

    Chunks overlap only where oneDNN compiles a kernel for every new number of rows, which takes up to 20 ms: there all
    chunks have the same number of rows, of which there are few, and the last overlaps the one before it.
    """
    num_tokens = hidden.size(0)
    for start in range(0, num_tokens, max(size, 1)):
        end = min(start + size, num_tokens)
        begin = max(0, end - size) if uses_onednn_bfloat16(hidden) else start
        yield slice(begin, end), start - begin


def _find_predictable(bias: Float[Tensor, " vocabulary"] | None) -> slice | Bool[Tensor, " vocabulary"]:
    """The tokens that can be predicted: all but `<pad>` and those that a bias excludes."""
    if bias is None:
        return slice(None, -1)
    can_be = bias > EXCLUDED_TOKEN_BIAS / 2
    can_be[-1] = False
    return can_be
