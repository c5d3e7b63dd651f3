"""What computations cost: the times of calls, and the memory that one keeps for the backward pass."""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from transduce.kernels.memory import keep_freed_memory

MIN_CALLS = 3

Name = TypeVar("Name", bound=Hashable)


def measure_seconds(calls: Mapping[Name, Callable[[], object]], seconds: float) -> dict[Name, float]:
    """The shortest time of each call, in seconds: whatever else the machine does can only lengthen it.

    The calls take turns, so that a machine which is busy for a while delays all of them. As in training, the process
    keeps the memory that it frees.

    Args:
        calls: what is compared, by name; each is called once before, to build and load what it needs.
        seconds: how long all of them together are repeated, each at least `MIN_CALLS` times.
    """
    keep_freed_memory()
    for call in calls.values():
        call()
    times: dict[Name, list[float]] = {name: [] for name in calls}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < MIN_CALLS or time.perf_counter() < end:
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - started)
        rounds += 1
    return {name: min(found) for name, found in times.items()}


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
