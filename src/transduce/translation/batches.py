"""Sentences that are read together."""

import sys
from collections.abc import Iterator, Sequence

from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.linear import ROWS_TOGETHER


def batches_by_length(lengths: Sequence[int], batch_tokens: int, most_rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Indices of sentences to be read together: longest first, at most `batch_tokens` with padding, and `most_rows`.

    A sentence longer than that is a batch of its own.
    """
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        rows = max(1, min(most_rows, batch_tokens // lengths[waiting[0]]))
        yield waiting[:rows]
        waiting = waiting[rows:]


def in_whole_rows(
    ids: Int[Tensor, "sentences tokens"], mask: Bool[Tensor, "sentences tokens"], pad_id: int, longest: int
) -> tuple[Int[Tensor, "sentences more"], Bool[Tensor, "sentences more"]]:
    """Sentences and their mask with padding up to a multiple of `ROWS_TOGETHER` tokens: see `model.linear`.

    Up to `longest` at most, beyond which the model has no positions.
    """
    length = ids.size(1)
    more = max(0, min(-length % ROWS_TOGETHER, longest - length))
    return (F.pad(ids, (0, more), value=pad_id), F.pad(mask, (0, more))) if more else (ids, mask)
