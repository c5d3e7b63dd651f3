"""Scaled dot-product attention by plain matrix products, for training on a CPU, where sentences are short."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels.linear import sums_in_one_order

MOST_PLAIN_KEYS = 128
"""Beyond that the fused operation, which keeps no weights, is faster on a CPU, too."""

KEYS_TOGETHER = 16
"""Numbers in the widest register; a softmax sums fewer keys, or the remainder, in another order."""

NARROWEST_ROW = 16
"""Numbers in one AVX-512 register: torch's softmax of shorter rows takes up to ten times as long."""


def pad_keys(
    keys: Float[Tensor, "batch heads key d_k"],
    values: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query key"],
) -> tuple[
    Float[Tensor, "batch heads padded_key d_k"],
    Float[Tensor, "batch heads padded_key d_v"],
    Bool[Tensor, "#batch #heads #query padded_key"],
]:
    """Pad keys and values with masked zeros to a multiple of `KEYS_TOGETHER`, in float32 on a CPU without gradients.

    The result of a query then does not depend on the longest sentence of its batch, if the number of queries is a
    multiple of four: see `linear`. In other types, on other devices and with gradients, nothing is padded.
    """
    padding = -keys.size(2) % KEYS_TOGETHER
    if not padding or not sums_in_one_order(keys):
        return keys, values, mask
    return F.pad(keys, (0, 0, 0, padding)), F.pad(values, (0, 0, 0, padding)), F.pad(mask, (0, padding))


def plain_attention(
    queries: Float[Tensor, "batch heads query d_k"],
    keys: Float[Tensor, "batch heads key d_k"],
    values: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query key"],
    scale: float,
) -> Float[Tensor, "batch heads query d_v"]:
    """softmax(scale · Q Kᵀ) V over the keys where `mask` is True (paper eq. 1), as `reference_attention`.

    torch's fused attention on a CPU reads its inputs head by head, and its backward pass is slow below some hundred
    positions: both passes together take up to fifteen times as long, in bfloat16, as these six products. They need
    more memory, as the weights of all heads are kept for the backward pass. The softmax of inputs in bfloat16 is
    computed in float32.
    """
    attended: Tensor = _PlainAttention.apply(queries, keys, values, mask, scale)  # type: ignore[no-untyped-call]
    return attended


def reference_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The same in torch's fused operation."""
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)


class _PlainAttention(torch.autograd.Function):
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
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        queries, keys, values, weights = ctx.saved_tensors
        heads = outer.shape[:2]
        outer = outer.reshape(-1, *outer.shape[2:])
        values_gradient = torch.bmm(weights.transpose(1, 2), outer)
        wide_weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        weights_gradient = torch.bmm(outer, values.transpose(1, 2)).to(wide_weights.dtype)
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
