"""Random choice of tokens, of all or of the most probable, without sorting the vocabulary.

The plain reference is a draw from the softmax of the tokens that are left: `tests/search/test_sampling.py`.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

_BLOCK = 64
"""Tokens of a block: first a block is drawn, then one of its tokens, so that few random numbers are enough."""

_LIKELIEST = 32
"""Tokens that are sorted first where only the most probable may be drawn: mostly they are enough."""


def draw_tokens(
    probabilities: Float[Tensor, "rows tokens"], generators: Sequence[np.random.Generator]
) -> Int[Tensor, " rows"]:
    """Draw a token of each row, whose probabilities p need not add up to 1: where w / p is least, for random waits w.

    This is the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014) without logarithms. First a block is drawn, then a
    token of it. Rounding of the probabilities changes the result only if two values of w / p are within it, and not, as
    with sums over the vocabulary, whenever an earlier probability changes.
    """
    in_blocks = F.pad(probabilities, (0, -probabilities.size(1) % _BLOCK)).view(len(probabilities), -1, _BLOCK)
    waits = _draw_waits(generators, in_blocks.size(1) + _BLOCK).to(probabilities.device)
    blocks = (in_blocks.sum(dim=2) / waits[:, :-_BLOCK]).argmax(dim=1)
    in_block = in_blocks[torch.arange(len(blocks), device=blocks.device), blocks]
    return blocks * _BLOCK + (in_block / waits[:, -_BLOCK:]).argmax(dim=1)


def draw_nucleus_tokens(
    probabilities: Float[Tensor, "rows tokens"], generators: Sequence[np.random.Generator], top_p: float
) -> Int[Tensor, " rows"]:
    """Draw a token of each row from the most probable ones that add up to `top_p` (Holtzman et al. 2020).

    The token drawn from all is among them in most rows, and only the other rows are sorted. A draw from all where that
    counts, and else one from the most probable, is a draw from the most probable.
    """
    drawn = draw_tokens(probabilities, generators)
    outside = _is_outside_nucleus(probabilities, drawn, top_p).nonzero().squeeze(1)
    if len(outside):
        nucleus = _keep_nucleus(probabilities[outside], top_p)
        drawn[outside] = draw_tokens(nucleus, [generators[row] for row in outside.tolist()])
    return drawn


def _draw_waits(generators: Sequence[np.random.Generator], count: int) -> Float[Tensor, "rows {count}"]:
    """The next random numbers of each generator, from the exponential distribution."""
    waits = np.empty((len(generators), count))  # float64: in float32 small ones, which decide, would be coarse
    for generator, row in zip(generators, waits, strict=True):
        generator.standard_exponential(out=row)
    return torch.from_numpy(waits).float().clamp_(min=torch.finfo(torch.float32).tiny)


def _is_outside_nucleus(
    probabilities: Float[Tensor, "rows tokens"], drawn: Int[Tensor, " rows"], top_p: float
) -> Bool[Tensor, " rows"]:
    """Whether the tokens that are more probable than the drawn one reach `top_p` without it."""
    own = probabilities.gather(1, drawn[:, None])
    return probabilities.masked_fill(probabilities <= own, 0.0).sum(dim=1) >= top_p * probabilities.sum(dim=1)


def _keep_nucleus(
    probabilities: Float[Tensor, "rows tokens"], top_p: float, count: int = _LIKELIEST
) -> Float[Tensor, "rows tokens"]:
    """Set all but the most probable tokens to 0; `count` of them or, if need be, more are sorted."""
    count = min(count, probabilities.size(1))
    needed = top_p * probabilities.sum(dim=1, keepdim=True)
    likeliest = probabilities.topk(count, dim=1).values
    reached = likeliest.cumsum(dim=1)
    least = likeliest.masked_fill(reached - likeliest >= needed, torch.inf).amin(dim=1, keepdim=True)
    nucleus = probabilities.masked_fill(probabilities < least, 0.0)
    too_few = reached[:, -1] < needed.squeeze(1)
    if count < probabilities.size(1) and too_few.any():
        nucleus[too_few] = _keep_nucleus(probabilities[too_few], top_p, 8 * count)
    return nucleus
