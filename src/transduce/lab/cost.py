"""What a computation costs: the time of a call, and the memory that it keeps for the backward pass."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from transduce.kernels.hardware import keep_freed_memory

MIN_CALLS = 3


def measure_seconds(call: Callable[[], object], seconds: float) -> float:
    """The shortest time of a call, in seconds: whatever else the machine does can only lengthen it.

    As in training, the process keeps the memory that it frees.

    Args:
        call: what is measured; it is called once before, to build and load what it needs.
        seconds: how long calls are repeated, at least `MIN_CALLS` of them.
    """
    keep_freed_memory()
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < MIN_CALLS or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def measure_saved_bytes(call: Callable[[], object]) -> int:
    """Bytes of all tensors that `call` keeps for the backward pass; parts of the same memory count once."""
    sizes: dict[int, int] = {}
    kept = []  # so that no memory is freed and used again meanwhile

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    del result
    return sum(sizes.values())
