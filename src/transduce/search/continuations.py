"""The best continuations of each sentence's hypotheses, found without sorting the vocabulary."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from transduce.search.transfer import to_host

_BLOCK = 64  # large enough that the maxima are few, small enough that the chosen blocks are


class Continuations(NamedTuple):
    """For each sentence, best first: the row that is continued, the id that is appended, its log-probability.

    Where a sentence has too few continuations, others with the log-probability -inf fill up; their ids mean nothing.
    """

    scores: Float[Tensor, "sentences count"]
    rows: Int[Tensor, "sentences count"]
    ids: Int[Tensor, "sentences count"]

    def to_host(self) -> "Continuations":
        """The same on the host, in a single copy: each one would wait for the device."""
        return type(self)(*to_host(*self))


def best_continuations(
    log_probs: Float[Tensor, "rows vocabulary"], sums: Float[Tensor, "sentences width"], count: int
) -> Continuations:
    """The `count` continuations with the greatest sum of log-probabilities; of equal ones the lower row, then id.

    Rows belong to sentences in turn, `width` to each; `sums` is what each row has gathered so far.

    Only the `count` blocks of ids with the greatest maxima can hold the result: the maxima take one fast pass over
    the vocabulary, and all that is ordered is small.
    """
    num_sentences, width = sums.shape
    maxima = _block_maxima(log_probs)
    blocks_in_row = maxima.shape[1]
    block_sums = sums.repeat_interleave(blocks_in_row, dim=1)
    # in ascending order, so that the first of equal values is the one with the lower row and id
    blocks = _greatest(block_sums + maxima.view_as(block_sums), count).sort(dim=1).values

    first_rows = torch.arange(num_sentences, device=sums.device)[:, None] * width
    rows = (first_rows + blocks // blocks_in_row).repeat_interleave(_BLOCK, dim=1)
    places_in_block = torch.arange(_BLOCK, device=sums.device)
    ids = ((blocks % blocks_in_row * _BLOCK)[:, :, None] + places_in_block).flatten(1)
    last_id = log_probs.shape[1] - 1
    scores = log_probs[rows, ids.clamp(max=last_id)].masked_fill(ids > last_id, -torch.inf)
    best = _greatest(block_sums.gather(1, blocks).repeat_interleave(_BLOCK, dim=1) + scores, count)
    return Continuations(scores.gather(1, best), rows.gather(1, best), ids.gather(1, best))


def _block_maxima(log_probs: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows blocks"]:
    """The greatest value in each block of ids; only the last block is padded, the table is not copied."""
    num_whole = log_probs.shape[1] // _BLOCK
    whole = log_probs[:, : num_whole * _BLOCK].view(len(log_probs), num_whole, _BLOCK)
    rest = F.pad(log_probs[:, num_whole * _BLOCK :], (0, 1), value=-torch.inf)  # never empty
    return torch.cat([whole.amax(dim=2), rest.amax(dim=1, keepdim=True)], dim=1)


def _greatest(values: Float[Tensor, "sentences places"], count: int) -> Int[Tensor, "sentences chosen"]:
    """Places of the `count` greatest values (or of all), greatest first, of equal ones the first.

    `topk` leaves open which of equal values it takes, so each value is joined with its place in one integer.
    """
    bits = values.float().view(torch.int32)
    in_order = bits ^ (bits >> 31 & 0x7FFFFFFF)  # IEEE 754 keeps negative numbers as magnitudes: turn their order
    places = torch.arange(values.shape[1], device=values.device)
    return ((in_order.long() << 32) - places).topk(min(count, values.shape[1]), dim=1).indices
