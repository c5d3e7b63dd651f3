"""Threads that each compute on one core, side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import TypeVar

import torch

_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")

_starting = Lock()


class Workers:
    """Started when first needed; operators of PyTorch leave Python's lock to the others while they compute."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._count = 0

    def map(self, function: Callable[[_TaskT], _ResultT], tasks: Sequence[_TaskT], count: int) -> list[_ResultT]:
        """What `function` makes of each task, `count` of them under way; an exception cancels what has not begun."""
        futures = [self._started(count).submit(function, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:  # Ctrl-C, too
            for future in futures:
                future.cancel()
            raise

    def _started(self, count: int) -> ThreadPoolExecutor:
        with _starting:
            if self._executor is None or self._count != count:
                self._executor, self._count = threads_of_one_core(count), count
            return self._executor


def threads_of_one_core(count: int) -> ThreadPoolExecutor:
    """So many threads, for each of which PyTorch's number of threads is 1; for all others it is what it was.

    The number is each thread's own once it was asked for, but setting it also sets what threads find that ask later: so
    all of these ask now, and then it is put back.
    """
    before = torch.get_num_threads()
    everybody = Barrier(count)
    executor = ThreadPoolExecutor(count, initializer=_compute_alone)
    for future in [executor.submit(everybody.wait) for _ in range(count)]:
        future.result()
    torch.set_num_threads(before)
    return executor


def _compute_alone() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()
