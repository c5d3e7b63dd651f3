"""Operations in training on a CPU: dropout, layer normalisation, attention to short sentences, softmax of the loss.

Each is computed by the compiled kernels (`native/training.py`) where the library was built and supports the tensors,
otherwise by PyTorch's operations, which are its plain reference.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels.native.training import (
    WIDTH_MULTIPLE,
    NativeAttention,
    NativeDropout,
    NativeLayerNormalization,
    compute_native_softmax,
    find_library_for,
    has_one_thread,
)


def dropout(inputs: Tensor, p: float) -> Tensor:
    """Set each number to 0 with probability `p` and divide the others by 1 - `p`, as `F.dropout`.

    On a CPU a number takes 16 random bits, so that `p` is exact to 1/65536. The compiled kernels and NumPy draw
    different ones from the seed that PyTorch's generator gives.
    """
    if inputs.device.type != "cpu":
        return F.dropout(inputs, p)
    # Clamp so that at least one of the 2^16 values is kept and one dropped.
    kept = min(max(round((1 - p) * 2**16), 1), 2**16 - 1)
    seed = int(torch.randint(2**63 - 1, ()))
    library = find_library_for(inputs)
    if library is not None:
        return _apply(NativeDropout, inputs, kept, seed, library)
    # torch's generator only seeds NumPy's SFC64, which is twice as fast.
    draws = np.random.SFC64(seed).random_raw((inputs.numel() + 3) // 4).view(np.int16)[: inputs.numel()]
    numbers = torch.from_numpy(draws).view(inputs.shape)
    # int16 counts from -2^15; `kept` of its 2^16 values lie below this.
    mask = torch.lt(numbers, kept - 2**15, out=torch.empty_like(inputs))
    return inputs * mask.mul_(2**16 / kept)


def layer_normalization(
    inputs: Float[Tensor, "*batch d_model"],
    gain: Float[Tensor, " d_model"],
    bias: Float[Tensor, " d_model"],
    epsilon: float,
) -> Float[Tensor, "*batch d_model"]:
    """Normalise every position to mean 0 and variance 1, then apply `gain` and `bias`, as `F.layer_norm`."""
    if inputs.dtype not in {torch.bfloat16, torch.float16} or inputs.device.type != "cpu":
        # In float32, compiled kernels save no time.
        return F.layer_norm(inputs, gain.shape, gain.to(inputs.dtype), bias.to(inputs.dtype), epsilon)
    # Without gradients, a sentence's bits must not depend on the number of threads.
    if torch.is_grad_enabled() and has_one_thread() and gain.shape == bias.shape == inputs.shape[-1:]:
        library = find_library_for(inputs) if gain.dtype == bias.dtype == torch.float32 else None
        if library is not None and inputs.size(-1) % WIDTH_MULTIPLE == 0:
            return _apply(NativeLayerNormalization, inputs, gain, bias, epsilon, library)
    return _apply(_LayerNormalizationInHalf, inputs, gain, bias, epsilon)


class _LayerNormalizationInHalf(torch.autograd.Function):
    """For a CPU, where torch's own backward pass sums the gradients of gain and bias in bfloat16 or float16.

    Such a sum stops growing when it is a few hundred times as large as its terms: of the gain's gradient over 4,096
    positions in bfloat16, torch loses a tenth to a fifth. `Tensor.sum` adds in float32.
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


MAX_FEW_KEYS = 128
"""Above this number of keys, fused attention, which stores no weights, is faster on a CPU, too."""

MAX_WIDTH_IN_BFLOAT16 = 32
"""Largest d_k and d_v in bfloat16 with which compiled attention, computed in float32, is faster than PyTorch's."""

NARROWEST_ROW = 16
"""Numbers in one AVX-512 register: torch's softmax of shorter rows takes up to ten times as long."""


def attend_to_few_keys(
    queries: Float[Tensor, "batch heads query d_k"],
    keys: Float[Tensor, "batch heads key d_k"],
    values: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query key"],
    scale: float,
) -> Float[Tensor, "batch heads query d_v"]:
    """softmax(scale · Q Kᵀ) V (paper eq. 1) for short sentences on a CPU: by compiled kernels where they support the
    tensors, else by six batched products, two forward and four backward.

    Queries attend to the keys where `mask` is True, as in `F.scaled_dot_product_attention`. This fused attention reads
    its inputs head by head on a CPU, and its backward pass is slow below some hundred positions: both passes together
    take up to fifteen times as long, in bfloat16, as the six products. They need more memory, as the weights of all
    heads are kept for the backward pass. The softmax of inputs in bfloat16 is computed in float32.
    """
    library = find_library_for(queries, keys, values) if has_one_thread() else None
    widths = queries.size(3), values.size(3)
    is_fast = queries.dtype == torch.float32 or max(widths) <= MAX_WIDTH_IN_BFLOAT16
    is_known = not any(width % WIDTH_MULTIPLE for width in widths) and mask.shape[1::2] == (1, keys.size(2))
    if library is not None and is_fast and is_known and mask.dtype == torch.bool:
        return _apply(NativeAttention, queries, keys, values, mask, scale, library)
    return _apply(_AttentionByProducts, queries, keys, values, mask, scale)


def _apply(operation: type[torch.autograd.Function], *arguments: object) -> Tensor:
    result: Tensor = operation.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


class _AttentionByProducts(torch.autograd.Function):
    """Every head of every sentence is one small matrix in a batch of them."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:  # noqa: ANN401 - torch's context
        heads = queries.shape[:2]
        queries, keys, values = (part.reshape(-1, *part.shape[2:]) for part in (queries, keys, values))
        wide = torch.promote_types(queries.dtype, torch.float32)
        products = torch.bmm(queries, keys.transpose(1, 2)).to(wide).mul_(scale)
        torch.unflatten(products, 0, heads).masked_fill_(~mask, -torch.inf)
        weights = _softmax(products).to(values.dtype)
        ctx.save_for_backward(queries, keys, values, weights)
        ctx.scale = scale
        return torch.unflatten(torch.bmm(weights, values), 0, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        queries, keys, values, weights = ctx.saved_tensors
        heads = output_gradient.shape[:2]
        output_gradient = output_gradient.reshape(-1, *output_gradient.shape[2:])
        values_gradient = torch.bmm(weights.transpose(1, 2), output_gradient)
        wide_weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        weights_gradient = torch.bmm(output_gradient, values.transpose(1, 2)).to(wide_weights.dtype)
        # The softmax passes on w (g - w·g).
        mean = (weights_gradient * wide_weights).sum(dim=-1, keepdim=True)
        scores_gradient = weights_gradient.sub_(mean).mul_(wide_weights).mul_(ctx.scale).to(queries.dtype)
        queries_gradient = torch.bmm(scores_gradient, keys)
        keys_gradient = torch.bmm(scores_gradient.transpose(1, 2), queries)
        gradients = (queries_gradient, keys_gradient, values_gradient)
        return *(torch.unflatten(gradient, 0, heads) for gradient in gradients), None, None


def _softmax(scores: Float[Tensor, "heads query key"]) -> Float[Tensor, "heads query key"]:
    num_keys = scores.size(2)
    if num_keys >= NARROWEST_ROW:
        return scores.softmax(dim=-1)
    return F.pad(scores, (0, NARROWEST_ROW - num_keys), value=-torch.inf).softmax(dim=-1)[..., :num_keys]


def softmax_with_statistics(
    logits: Float[Tensor, "rows vocabulary"], targets: Int[Tensor, " rows"]
) -> Float[Tensor, "3 rows"]:
    """Replace `logits`, which are contiguous, by their softmax over the vocabulary.

    Args:
        logits: a token whose logit is -inf cannot be predicted.
        targets: for each row, a token of the vocabulary.

    Returns:
        In float32, for each row: the logarithm of the sum of all e^logit, the logit of the target, the greatest logit.
    """
    library = find_library_for(logits) if has_one_thread() else None
    if library is not None and targets.dtype == torch.int64 and len(targets):
        lowest, highest = targets.aminmax()
        if lowest >= 0 and highest < logits.size(1):
            return compute_native_softmax(logits, targets.contiguous(), library)
    target_logits = logits.gather(1, targets[:, None]).squeeze(1).float()
    greatest = _compute_row_max(logits).float()
    logits.copy_(logits.softmax(dim=-1))
    # The largest probability, unlike that of the target, is never too small to have a logarithm.
    return torch.stack([greatest - _compute_row_max(logits).float().log(), target_logits, greatest])


def _compute_row_max(values: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
    """The maximum of each row; on a CPU, torch finds that of integers four times as fast as in bfloat16."""
    if values.dtype != torch.bfloat16 or values.device.type != "cpu":
        return values.amax(dim=-1)
    bits = values.view(torch.int16)
    found = bits.amax(dim=-1)
    # The bits of negative numbers are in the opposite order, and all of them below those of the others. A negative NaN
    # may be missed, but softmax makes all numbers of its row NaN.
    if (found < 0).any():
        found = torch.where(found < 0, bits.amin(dim=-1), found)
    return found.view(torch.bfloat16)
