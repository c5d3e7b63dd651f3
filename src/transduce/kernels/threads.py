"""Threads that each compute on one core."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import TypeVar

import torch

_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")

_executor_lock = Lock()


class Workers:
    """A pool of threads, started when first needed; operators of PyTorch release Python's lock while they compute."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._count = 0

    def map(self, function: Callable[[_TaskT], _ResultT], tasks: Sequence[_TaskT], count: int) -> list[_ResultT]:
        """The result of `function` for each task, computed by `count` threads; an exception cancels tasks not begun."""
        futures = [self._start_executor(count).submit(function, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:  # Ctrl-C, too
            for future in futures:
                future.cancel()
            raise

    def _start_executor(self, count: int) -> ThreadPoolExecutor:
        with _executor_lock:
            if self._executor is None or self._count != count:
                self._executor, self._count = make_single_core_executor(count), count
            return self._executor


def make_single_core_executor(count: int) -> ThreadPoolExecutor:
    """An executor of `count` threads, for each of which PyTorch's number of threads is 1; others keep theirs.

    The number is a thread's own once it was read, but setting it also sets what threads find that read it later: so all
    of these threads read it now, and then it is set back.
    """
    before = torch.get_num_threads()
    all_started = Barrier(count)
    executor = ThreadPoolExecutor(count, initializer=_use_one_core)
    for future in [executor.submit(all_started.wait) for _ in range(count)]:
        future.result()
    torch.set_num_threads(before)
    return executor


def _use_one_core() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()
