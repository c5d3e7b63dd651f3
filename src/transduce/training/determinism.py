"""The same numbers every time, on a GPU too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import deterministic

_FILLED = "fill_uninitialized_memory"
"""A property that torch.utils.deterministic has, though its type says that it is a mere module."""


@contextmanager
def deterministic_kernels(device: torch.device) -> Iterator[None]:
    """Only kernels that add in the same order every time, while in the block; on a CPU all of them do.

    On a GPU, the gradients of embeddings, of attention and of chosen rows are otherwise summed in whatever order its
    threads come. Those of products need the variable that `find_device` sets.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = getattr(deterministic, _FILLED)
    # Not merely warned of: attention's gradient is deterministic only if it must be.
    torch.use_deterministic_algorithms(True)
    # Nothing here reads memory before it writes it, and filling it first costs time.
    setattr(deterministic, _FILLED, False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        setattr(deterministic, _FILLED, filled)
