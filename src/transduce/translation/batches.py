"""Sentences that are read together."""

import sys
from collections.abc import Iterator, Sequence


def batches_by_length(lengths: Sequence[int], batch_tokens: int, most_rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Indices of sentences to be read together: longest first, at most `batch_tokens` with padding, and `most_rows`.

    A sentence longer than that is a batch of its own.
    """
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        rows = max(1, min(most_rows, batch_tokens // lengths[waiting[0]]))
        yield waiting[:rows]
        waiting = waiting[rows:]
