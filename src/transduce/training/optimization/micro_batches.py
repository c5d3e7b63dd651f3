"""Parallel micro-batches: parts of a batch that processes compute at the same time, and whose gradients are summed.

Threads that share every operation synchronise a thousand times per update, processes with one micro-batch each once
(docs/decisions/0019). Their weights are shared memory; batches and figures travel through pipes. Several ranks have
none: see `choose_parallel_micro_batches`. Sequential micro-batches, which save memory, are in distributed/batches.py.
"""

import gc
import mmap
import os
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import torch
from jaxtyping import Float
from safetensors.torch import load, save
from torch import Tensor, nn

from transduce.config import RunConfig
from transduce.data import Batch
from transduce.errors import TrainingError
from transduce.kernels.memory import give_back_freed_memory
from transduce.training.distributed import Ranks

MIN_TOKENS = 300
"""Minimum number of tokens on either side of a parallel micro-batch; smaller ones were not measured."""

MAX_PARALLEL_MICRO_BATCHES = 8
"""Maximum number of parallel micro-batches of a batch: each has its own gradient, as large as the model. With more
threads than that, all of them share the operations of one batch."""

NUM_SUMS = 4
"""Number of figures of a micro-batch that are summed over its tokens; `Updater.accumulate` returns them."""

Gradient = Callable[[Batch, int, int], Float[Tensor, "4"]]
"""Adds the gradient of a micro-batch to the model's, given a number that no other micro-batch of the run has, for its
random numbers, and the number of target tokens of the whole update; returns `NUM_SUMS` sums over its tokens."""


def choose_parallel_micro_batches(config: RunConfig, device: torch.device, ranks: Ranks) -> int:
    """Number of micro-batches of each batch that processes compute at the same time, for a new run.

    It is PyTorch's number of threads, or less if batches are small. It is 1 where there would be less than two or too
    many, on other devices than a CPU, with several ranks, with batch normalisation, whose statistics are those of a
    whole batch, and on other systems than Linux.
    """
    count = min(torch.get_num_threads(), config.training.batch_tokens // MIN_TOKENS)
    has_one_device = can_fork() and device.type == "cpu" and ranks.size == 1
    is_divided = has_one_device and config.model.normalization != "batch" and 1 < count <= MAX_PARALLEL_MICRO_BATCHES
    return count if is_divided else 1


def can_fork() -> bool:
    """Whether processes are forked on this system: libraries allow for that on Linux only."""
    return sys.platform == "linux"


class MicroBatchProcesses:
    """Processes that compute gradients beside this one, each with one thread; forked when first needed.

    The processes end with this one, however it ends.

    Args:
        model: its parameters are moved to memory that the processes share.
        gradient: computes the gradient of a micro-batch, in every process.
        max_processes: number of processes, this one included.
    """

    def __init__(self, model: nn.Module, gradient: Gradient, max_processes: int) -> None:
        self._parameters = list(model.parameters())
        self._gradient = gradient
        self._max_processes = max_processes if can_fork() else 1
        self._others: list[_Process] = []
        self._is_shared = False
        weakref.finalize(self, _end_all, self._others)

    def sum_gradients(
        self, tasks: Sequence[tuple[Batch, int]], num_tokens: int, check_stop: Callable[[], None] = lambda: None
    ) -> Float[Tensor, "4"]:
        """Add the gradients of all tasks, micro-batches with numbers, to the model's; return their summed figures.

        Gradients are added in the order of the tasks: the result is bit-identical for any number of processes.

        Args:
            tasks: micro-batches, each with a number that no other micro-batch of the run has.
            num_tokens: target tokens of the update.
            check_stop: is called between tasks and may raise to end the update.

        Raises:
            RuntimeError: the message of an error in another process.
            TrainingError: a process was killed.
        """
        sums = torch.zeros(NUM_SUMS, dtype=torch.float64)
        try:
            self._start(min(len(tasks), self._max_processes) - 1)
            step = 1 + len(self._others)
            for first in range(0, len(tasks), step):
                sums += self._compute_simultaneously(tasks[first : first + step], num_tokens)
                if first + step < len(tasks):
                    check_stop()
        except BaseException:  # also on Ctrl-C: a later task must not receive the answer to one of these
            self.close()
            raise
        return sums

    def close(self) -> None:
        """End the processes, which are forked again when they are needed."""
        _end_all(self._others)

    def _compute_simultaneously(self, tasks: Sequence[tuple[Batch, int]], num_tokens: int) -> Tensor:
        """Compute the first task in this process, and each of the others in another; return their summed figures."""
        given = list(zip(self._others, tasks[1:], strict=False))
        for process, (batch, number) in given:
            process.send_task(batch, number, num_tokens)
        sums = self._gradient(*tasks[0], num_tokens)
        for process, _ in given:
            sums += process.receive_sums()
            for parameter, addend in zip(self._parameters, process.gradients, strict=True):
                if parameter.grad is not None:
                    parameter.grad += addend
        return sums

    def _start(self, count: int) -> None:
        if len(self._others) >= count:
            return
        give_back_freed_memory()  # so that the forked processes do not copy it
        if not self._is_shared:
            for parameter in self._parameters:
                parameter.data = _allocate_shared(parameter).copy_(parameter.data)
            self._is_shared = True
        with suppress(OSError):  # the result is the same with fewer processes
            while len(self._others) < count:
                self._others.append(_Process(self._parameters, self._gradient))


class _Process:
    """A process forked from this one, which calls `compute` for every micro-batch that it receives."""

    def __init__(self, parameters: list[nn.Parameter], compute: Gradient) -> None:
        self.gradients = [_allocate_shared(parameter) for parameter in parameters]  # of the last micro-batch
        self._connection, other_end = Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of locks that another thread may hold; the process uses none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._id = os.fork()
        if self._id == 0:
            _run_worker(other_end, parameters, self.gradients, compute)
        other_end.close()

    def send_task(self, batch: Batch, number: int, num_tokens: int) -> None:
        parts = {name: part.contiguous() for name, part in vars(batch).items()}
        try:
            self._connection.send_bytes(save({**parts, "task": torch.tensor([number, num_tokens], dtype=torch.uint64)}))
        except OSError as error:
            raise _make_lost_worker_error() from error

    def receive_sums(self) -> Tensor:
        """Wait for the summed figures of the micro-batch; then `gradients` holds its gradient."""
        try:
            failure, sums = self._connection.recv_bytes(), self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise _make_lost_worker_error() from error
        if failure:
            raise RuntimeError(failure.decode())
        return load(sums)["sums"]

    def end(self) -> None:
        self._connection.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._id, signal.SIGKILL)
            os.waitpid(self._id, 0)


def _end_all(processes: list[_Process]) -> None:
    while processes:
        processes.pop().end()


def _make_lost_worker_error() -> TrainingError:
    return TrainingError(
        "training stopped, because a worker process was killed, as Linux does when memory is full; checkpoints are "
        "intact: close other programs, and the same command resumes from the last checkpoint"
    )


def _run_worker(
    connection: Connection, parameters: list[nn.Parameter], gradients: list[Tensor], compute: Gradient
) -> NoReturn:
    try:
        # Signals to stop training are handled by the parent.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # A lock, a pipe or a terminal that this process held would seem to be in use after the parent's end.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nowhere, standard)
        _close_all_but(connection.fileno())
        gc.freeze()  # objects of the parent are not cleaned up here
        torch.set_num_threads(1)
        while True:
            _compute_task(connection, parameters, gradients, compute)
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """Close all open files but the three standard ones and `kept`."""
    try:
        numbers = {int(entry.name) for entry in Path("/dev/fd").iterdir()} - {0, 1, 2, kept}
    except OSError:
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        return
    # Not all numbers up to the limit: in a container, that may be a thousand million.
    for number in numbers:
        with suppress(OSError):  # that of the list itself is closed already
            os.close(number)


def _compute_task(
    connection: Connection, parameters: list[nn.Parameter], gradients: list[Tensor], compute: Gradient
) -> None:
    parts = load(connection.recv_bytes())
    number, num_tokens = parts.pop("task").tolist()
    failure, sums = "", torch.zeros(NUM_SUMS, dtype=torch.float64)
    try:
        sums = compute(Batch(**parts), number, num_tokens)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is not None:
                gradient.copy_(parameter.grad)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        failure = f"{type(error).__name__}: {error}"
    for parameter in parameters:
        parameter.grad = None
    connection.send_bytes(failure.encode())
    connection.send_bytes(save({"sums": sums}))


def _allocate_shared(parameter: Tensor) -> Tensor:
    """Zeros of the parameter's shape and type, in memory that this process shares with those that it forks."""
    memory = mmap.mmap(-1, parameter.numel() * parameter.element_size())
    return torch.frombuffer(memory, dtype=parameter.dtype).view(parameter.shape)
