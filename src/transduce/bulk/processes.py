"""Workers that are processes of this machine."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, cast

from transduce.bulk.block_translator import BlockTranslator, BlockTranslatorSettings, Failure, TranslatedBlock
from transduce.bulk.blocks import Block
from transduce.bulk.dispatching import Answer, WorkerLost, WorkerReady
from transduce.kernels.hardware import count_threads
from transduce.kernels.memory import give_back_freed_memory

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_THREADS = "OMP_NUM_THREADS"
_SECONDS_TO_END = 5.0


class ProcessPool:
    """Processes, each of which loads the model and translates one block at a time.

    The cores are divided among them, unless OMP_NUM_THREADS or MKL_NUM_THREADS says how many threads each has. A
    process ends when this one does, however that ends.

    Args:
        settings: what the processes need to load.
        digest: that of the model, see `BlockTranslatorSettings.find_model_digest`.
        num_workers: number of processes.
    """

    def __init__(self, settings: BlockTranslatorSettings, digest: str, num_workers: int) -> None:
        self.num_workers = num_workers
        self._settings, self._digest = settings, digest
        self._context = get_context("spawn")
        self._processes: dict[int, tuple[Connection, "SpawnProcess"]] = {}
        self._num_started = 0

    def find_process_ids(self) -> list[int]:
        """The ids of all processes."""
        return [process.pid for _, process in self._processes.values() if process.pid is not None]

    def start(self) -> int:
        """Start a process, which loads the model, and return its number as a worker."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=run_worker, args=(self._settings, self._digest, theirs), name="transduce worker", daemon=True
        )
        with _divide_threads(self.num_workers), _hold_back_interrupts(), _hide_main_module():
            process.start()
        theirs.close()
        worker = self._num_started
        self._num_started += 1
        self._processes[worker] = ours, process
        return worker

    def submit(self, worker: int, block: Block) -> None:
        """Give a block to a worker that is free, without waiting for its translation."""
        with suppress(OSError):  # it was killed, which `wait` finds
            self._processes[worker][0].send((block.lines, block.numbers, block.path))

    def wait(self) -> tuple[int, Answer]:
        """Wait for the next answer of any worker, and return the worker's number and the answer."""
        workers = {ours: worker for worker, (ours, _) in self._processes.items()}
        ours = cast("Connection", connection.wait(list(workers))[0])  # Windows has a class of its own for these
        worker = workers[ours]
        try:
            answer: Answer = ours.recv()
        except (EOFError, OSError):  # the latter in the middle of an answer
            _, process = self._processes.pop(worker)
            process.join()
            ours.close()
            return worker, WorkerLost(_describe_exit(process.exitcode))
        return worker, answer

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        for ours, process in self._processes.values():
            process.terminate()
            ours.close()
        for _, process in self._processes.values():
            process.join(_SECONDS_TO_END)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


@contextmanager
def _divide_threads(num_workers: int) -> Iterator[None]:
    """Give each process that is started in this block its share of the cores, unless the environment sets a number."""
    if any(name in os.environ for name in (_THREADS, "MKL_NUM_THREADS")):
        yield
        return
    os.environ[_THREADS] = str(max(1, count_threads() // num_workers))
    try:
        yield
    finally:
        del os.environ[_THREADS]


@contextmanager
def _hold_back_interrupts() -> Iterator[None]:
    """Let processes started in this block never see Ctrl-C, which a terminal sends to all; the pool ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # with the first process; it would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _hide_main_module() -> Iterator[None]:
    """Let processes started in this block not run the user's script, which may lack `if __name__ == "__main__":`."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def run_worker(settings: BlockTranslatorSettings, digest: str, driver: Connection) -> None:
    """Load the model, and translate blocks until the other end of the connection is closed."""
    translator = load_or_describe(settings, digest)
    with suppress(EOFError, OSError):  # the driver has ended
        if isinstance(translator, Failure):
            driver.send(translator)
            return
        driver.send(WorkerReady(os.getpid()))
        while True:
            lines, numbers, path = driver.recv()
            driver.send(translate_or_describe(translator, lines, numbers, path))
            give_back_freed_memory()


def load_or_describe(settings: BlockTranslatorSettings, digest: str) -> BlockTranslator | Failure:
    """The translator, or what went wrong."""
    try:
        translator = BlockTranslator.load(settings, digest)
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return Failure.describe(error)
    give_back_freed_memory()  # that of weights that have been packed
    return translator


def translate_or_describe(
    translator: BlockTranslator, lines: list[str], numbers: Sequence[int], path: str
) -> TranslatedBlock | Failure:
    """The translation of a block, or what went wrong."""
    try:
        found = translator.translate(lines, numbers, path)
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return Failure.describe(error)
    return found if found.error is None else Failure.describe(found.error)
