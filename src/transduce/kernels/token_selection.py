"""The choice of next tokens without sorting the vocabulary: the best continuations of hypotheses, and random draws."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

_BLOCK = 64
"""Tokens of a block. To find the best tokens, the blocks with the greatest maxima are found first, and then the best
tokens within them. To draw a token, a block is drawn first, and then a token within it, so that few random numbers are
needed."""


class Continuations(NamedTuple):
    """For each sentence, best first: the hypothesis that is continued, the id that is appended, its log-probability.

    A sentence with too few continuations is padded with entries of log-probability -inf, whose ids are meaningless.
    """

    scores: Float[Tensor, "sentences count"]
    parents: Int[Tensor, "sentences count"]
    ids: Int[Tensor, "sentences count"]

    def copy_to_host(self) -> "Continuations":
        """The same on the host, in a single transfer, because each transfer synchronises with the device."""
        if self.scores.device.type == "cpu":
            return self
        bits, *integers = torch.stack([self.scores.view(torch.int32), self.parents.int(), self.ids.int()]).cpu()
        return Continuations(bits.view(torch.float32), *(part.long() for part in integers))


def find_best_continuations(
    log_probs: Float[Tensor, "sentences width vocabulary"], sums: Float[Tensor, "sentences width"], count: int
) -> Continuations:
    """The `count` continuations with the greatest sum of log-probabilities; of equal ones the lower parent, then id.

    `sums` is the log-probability of each hypothesis so far.

    Only the `count` blocks of ids with the greatest maxima can hold the result: the maxima take one fast pass over
    the vocabulary, and all that is ordered is small.
    """
    num_sentences, width, vocabulary = log_probs.shape
    maxima = _compute_block_max(log_probs)
    blocks_in_row = maxima.shape[2]
    # in ascending order, so that the first of equal values is the one with the lower parent and id
    blocks = _find_top_indices((maxima.float() + sums[:, :, None]).flatten(1), count).sort(dim=1).values

    parents = blocks // blocks_in_row
    in_block = torch.arange(_BLOCK, device=sums.device)
    ids = ((blocks % blocks_in_row * _BLOCK)[:, :, None] + in_block).clamp_(max=vocabulary)
    in_sentence = (parents * vocabulary)[:, :, None] + ids.clamp(max=vocabulary - 1)
    scores = log_probs.view(num_sentences, width * vocabulary).gather(1, in_sentence.flatten(1)).float()
    ids = ids.flatten(1)
    scores = scores.masked_fill_(ids == vocabulary, -torch.inf)
    so_far = sums.gather(1, parents)[:, :, None]
    best = _find_top_indices((so_far + scores.view(num_sentences, -1, _BLOCK)).flatten(1), count)
    return Continuations(scores.gather(1, best), parents.gather(1, best // _BLOCK), ids.gather(1, best))


def _compute_block_max(
    log_probs: Float[Tensor, "sentences width vocabulary"],
) -> Float[Tensor, "sentences width blocks"]:
    """The greatest value in each block of ids; only the last block is padded, the table is not copied."""
    num_whole = log_probs.shape[2] // _BLOCK
    whole = log_probs[:, :, : num_whole * _BLOCK].view(*log_probs.shape[:2], num_whole, _BLOCK)
    rest = F.pad(log_probs[:, :, num_whole * _BLOCK :], (0, 1), value=-torch.inf)  # never empty
    return torch.cat([_compute_row_max(whole), _compute_row_max(rest)[:, :, None]], dim=2)


def _compute_row_max(log_probs: Tensor) -> Tensor:
    """The greatest value along the last axis."""
    if log_probs.dtype != torch.bfloat16 or log_probs.device.type != "cpu":
        return log_probs.amax(dim=-1)
    # Five times as fast: the bits of numbers that are not positive, read as integers, are in the opposite order, if
    # the sign of zero is set, too.
    return log_probs.view(torch.int16).bitwise_or_(-(2**15)).amin(dim=-1).view(torch.bfloat16)


def _find_top_indices(values: Float[Tensor, "sentences places"], count: int) -> Int[Tensor, "sentences chosen"]:
    """Places of the `count` greatest values (or of all), greatest first, of equal ones the first; NaN above all.

    `topk` leaves open which of equal values it takes, so each value is joined with its place in one integer.
    """
    bits = values.nan_to_num(nan=torch.inf, neginf=-torch.inf).view(torch.int32)
    in_order = bits ^ (bits >> 31 & 0x7FFFFFFF)  # IEEE 754 keeps negative numbers as magnitudes: turn their order
    places = torch.arange(values.shape[1], device=values.device)
    return ((in_order.long() << 32) - places).topk(min(count, values.shape[1]), dim=1).indices


_LIKELIEST = 32
"""Number of most probable tokens that are sorted first to find the nucleus, which mostly lies within them."""


def draw_tokens(
    probabilities: Float[Tensor, "rows tokens"], generators: Sequence[np.random.Generator]
) -> Int[Tensor, " rows"]:
    """Draw a token of each row, whose probabilities p need not add up to 1.

    The token with the smallest w / p is drawn, where w is exponentially distributed (equivalent to sampling from p):
    the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014) without logarithms. First a block is drawn, then a
    token of it. Rounding of the probabilities changes the result only if two values of w / p are within it, and not, as
    with sums over the vocabulary, whenever an earlier probability changes. The plain reference is a draw from the
    softmax: tests/search/test_sampling.py.
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

    A draw from the full distribution is kept if it lies in the nucleus; otherwise a new draw is made from the nucleus.
    The result has the nucleus distribution, and only rows of the second kind, which are few, are sorted.
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
    more_probable = probabilities.masked_fill(probabilities <= own, 0.0).sum(dim=1, keepdim=True)
    return (more_probable >= _compute_nucleus_sum(probabilities, top_p)).squeeze(1)


def _compute_nucleus_sum(probabilities: Float[Tensor, "rows tokens"], top_p: float) -> Float[Tensor, "rows 1"]:
    """What the nucleus adds up to; never 0, to which a tiny `top_p` is rounded and no token belongs."""
    return (top_p * probabilities.sum(dim=1, keepdim=True)).clamp_(min=torch.finfo(torch.float32).tiny)


def _keep_nucleus(
    probabilities: Float[Tensor, "rows tokens"], top_p: float, count: int = _LIKELIEST
) -> Float[Tensor, "rows tokens"]:
    """Set all but the most probable tokens to 0; `count` of them or, if need be, more are sorted."""
    count = min(count, probabilities.size(1))
    needed = _compute_nucleus_sum(probabilities, top_p)
    likeliest = probabilities.topk(count, dim=1).values
    reached = likeliest.cumsum(dim=1)
    least = likeliest.masked_fill(reached - likeliest >= needed, torch.inf).amin(dim=1, keepdim=True)
    nucleus = probabilities.masked_fill(probabilities < least, 0.0)
    too_few = reached[:, -1] < needed.squeeze(1)
    if count < probabilities.size(1) and too_few.any():
        nucleus[too_few] = _keep_nucleus(probabilities[too_few], top_p, 8 * count)
    return nucleus
