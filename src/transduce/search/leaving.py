"""Which of the rows of a batch stay in it when some are done."""

from collections.abc import Sequence

_FULL = 16
"""A batch has 1, 2, 4, 8 or a multiple of so many rows once some are done: leaving costs a copy of the state, and every
new size a new kernel."""


def staying(is_done: Sequence[bool]) -> list[int]:
    """The places of those that are not done, at least one, and of others up to a size that batches have."""
    num_live = len(is_done) - sum(is_done)
    size = -(-num_live // _FULL) * _FULL if num_live > _FULL // 2 else 1 << (num_live - 1).bit_length()
    if size >= len(is_done):
        return list(range(len(is_done)))
    spare = size - num_live
    stay = []
    for place, done in enumerate(is_done):
        if done and spare == 0:
            continue
        spare -= done
        stay.append(place)
    return stay
