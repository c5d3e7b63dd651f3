"""Micro-batches of an update, each on one core: in this process and in others that are forked from it.

Threads that share every operation wait for each other a thousand times an update, and OpenMP's spin while they wait:
where another program takes a core, training falls to a twentieth of its speed. Processes with a micro-batch each wait
for each other once, asleep. Their weights are shared memory; batches and figures travel through pipes.
"""

import gc
import mmap
import os
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import RunConfig
from transduce.data import Batch
from transduce.errors import TrainingError
from transduce.kernels.memory import give_back_freed_memory
from transduce.training.ranks import Ranks

LEAST_TOKENS = 1000
"""On either side of a micro-batch: below, what each costs beside its tokens outweighs a core of its own."""

MOST_MICRO_BATCHES = 8
"""Of a batch: each has a gradient of its own, as large as the model. With more threads than these, they share the
operations of one batch."""

Gradient = Callable[[Batch, int, int], Float[Tensor, "3"]]
"""Adds the gradient of a micro-batch to the model's, given a number that no other micro-batch of the run has, for its
random numbers, and the number of target tokens of the whole update; returns three sums over its tokens."""


def choose_micro_batches(config: RunConfig, device: torch.device, ranks: Ranks) -> int:
    """Into how many micro-batches a new run divides each batch: as many as PyTorch has threads, or 1.

    It is 1 where they would be too small or too many, on other devices than a CPU, with several ranks, with batch
    normalisation, whose statistics are those of a whole batch, and on other systems than Linux.
    """
    count = torch.get_num_threads()
    divides = (
        can_fork()
        and device.type == "cpu"
        and ranks.size == 1
        and config.model.normalization == "layer"
        and count <= MOST_MICRO_BATCHES
        and count * LEAST_TOKENS <= config.training.batch_tokens
    )
    return count if divides else 1


def can_fork() -> bool:
    """Whether processes are forked on this system: only on Linux do libraries allow for that."""
    return sys.platform == "linux"


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, PyTorch computes with one thread, in the thread that this is called in."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class MicroBatchProcesses:
    """Processes that compute gradients beside this one, each with one thread; forked when first needed.

    They end with this process, however it ends.

    Args:
        model: whose gradients are computed. Its parameters are moved to memory that the processes share.
        gradient: computes them, in every process.
        most: processes, this one included.
    """

    def __init__(self, model: nn.Module, gradient: Gradient, most: int) -> None:
        self._parameters = list(model.parameters())
        self._gradient = gradient
        self._most = most if can_fork() else 1
        self._others: list[_Process] = []
        self._is_shared = False
        weakref.finalize(self, _end_all, self._others)

    def sum_gradients(
        self, tasks: Sequence[tuple[Batch, int]], num_tokens: int, check_stop: Callable[[], None] = lambda: None
    ) -> Float[Tensor, "3"]:
        """Add the gradients of all tasks, micro-batches with their numbers, to the model's; the sums over their tokens.

        `check_stop` is called in between, and ends all by an error of its own.

        They are added in the order of the tasks: the result is the same, to the bit, however many processes there are.

        Raises:
            RuntimeError: what went wrong in another process, in its words.
            TrainingError: a process was ended from outside.
        """
        sums = torch.zeros(3, dtype=torch.float64)
        try:
            self._start(min(len(tasks), self._most) - 1)
            step = 1 + len(self._others)
            for first in range(0, len(tasks), step):
                sums += self._sum_at_a_time(tasks[first : first + step], num_tokens)
                if first + step < len(tasks):
                    check_stop()
        except BaseException:  # Ctrl-C, too: no later task may be given the answer to one of these
            self.close()
            raise
        return sums

    def close(self) -> None:
        """End the processes. They are forked again where they are needed."""
        _end_all(self._others)

    def _sum_at_a_time(self, tasks: Sequence[tuple[Batch, int]], num_tokens: int) -> Tensor:
        """The same for no more tasks than there are processes; this one takes the first."""
        given = list(zip(self._others, tasks[1:], strict=False))
        for process, (batch, which) in given:
            process.ask(batch, which, num_tokens)
        sums = self._gradient(*tasks[0], num_tokens)
        for process, _ in given:
            sums += process.answer()
            for parameter, addend in zip(self._parameters, process.gradients, strict=True):
                if parameter.grad is not None:
                    parameter.grad += addend
        return sums

    def _start(self, count: int) -> None:
        """Have `count` other processes, or as many as the system grants."""
        if len(self._others) >= count:
            return
        give_back_freed_memory()  # which the processes would copy
        if not self._is_shared:
            for parameter in self._parameters:
                parameter.data = _shared_like(parameter).copy_(parameter.data)
            self._is_shared = True
        with suppress(OSError):  # fewer compute the same
            while len(self._others) < count:
                self._others.append(_Process(self._parameters, self._gradient))


class _Process:
    """A process forked from this one.

    Args:
        parameters: of the model, in memory that is shared.
        compute: the function that it calls with what it is asked.
    """

    def __init__(self, parameters: list[nn.Parameter], compute: Gradient) -> None:
        self.gradients = [_shared_like(parameter) for parameter in parameters]
        """Of the micro-batch that was asked for last."""
        self._connection, other_end = Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of locks that another thread may hold: of those, the process uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._id = os.fork()
        if self._id == 0:
            _serve(other_end, parameters, self.gradients, compute)
        other_end.close()

    def ask(self, batch: Batch, which: int, num_tokens: int) -> None:
        """Have the gradient of `batch` computed; the answer has to be taken before the next is asked for."""
        try:
            self._connection.send_bytes(np.array([which, num_tokens], dtype=np.uint64).tobytes())
            for part in vars(batch).values():
                self._connection.send_bytes(np.array(part.shape, dtype=np.int64).tobytes())
                self._connection.send_bytes(part.to(torch.int64).numpy().tobytes())
        except OSError as error:
            raise _was_ended() from error

    def answer(self) -> Tensor:
        """The sums over its tokens; `gradients` has the gradient.

        Raises:
            RuntimeError: the words of the error that ended the computation.
            TrainingError: the process was ended from outside.
        """
        try:
            failure, sums = self._connection.recv_bytes(), self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise _was_ended() from error
        if failure:
            raise RuntimeError(failure.decode())
        return torch.frombuffer(bytearray(sums), dtype=torch.float64)

    def end(self) -> None:
        """End the process, whatever it computes."""
        self._connection.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._id, signal.SIGKILL)
            os.waitpid(self._id, 0)


def _end_all(processes: list[_Process]) -> None:
    while processes:
        processes.pop().end()


def _was_ended() -> TrainingError:
    return TrainingError(
        "training stopped, because a process that computes a part of every batch was ended from outside, as Linux does "
        "where memory is full; what was saved is intact: end other programs, and the same command goes on from the "
        "last checkpoint"
    )


def _serve(
    connection: Connection, parameters: list[nn.Parameter], gradients: list[Tensor], compute: Gradient
) -> NoReturn:
    """What a forked process does, until the one that forked it has gone; nothing else of that one goes on in it."""
    try:
        # Who wants training to end tells the process that forked this one.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # A lock, a pipe or a terminal that this process held would seem to be in use when the other has gone.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nowhere, standard)
        os.closerange(3, connection.fileno())
        os.closerange(connection.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        gc.freeze()  # what came from there is not cleaned up here
        torch.set_num_threads(1)
        while True:
            _answer(connection, parameters, gradients, compute)
    finally:
        os._exit(0)


def _answer(connection: Connection, parameters: list[nn.Parameter], gradients: list[Tensor], compute: Gradient) -> None:
    """Wait for one question and answer it: the words of an error, if there was one, and the sums."""
    which, num_tokens = np.frombuffer(connection.recv_bytes(), dtype=np.uint64).tolist()
    parts = []
    for _ in range(4):
        shape = np.frombuffer(connection.recv_bytes(), dtype=np.int64).tolist()
        parts.append(torch.frombuffer(bytearray(connection.recv_bytes()), dtype=torch.int64).view(shape))
    source_ids, source_mask, target_ids, target_mask = parts
    failure, sums = "", torch.zeros(3, dtype=torch.float64)
    try:
        batch = Batch(source_ids, source_mask.bool(), target_ids, target_mask.bool())
        sums = compute(batch, which, num_tokens)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is not None:
                gradient.copy_(parameter.grad)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the other process that has to know
        failure = f"{type(error).__name__}: {error}"
    for parameter in parameters:
        parameter.grad = None
    connection.send_bytes(failure.encode())
    connection.send_bytes(sums.numpy().tobytes())


def _shared_like(parameter: Tensor) -> Tensor:
    """Zeros of its shape and type, in memory that this process shares with those that it forks."""
    memory = mmap.mmap(-1, parameter.numel() * parameter.element_size())
    return torch.frombuffer(memory, dtype=parameter.dtype).view(parameter.shape)
