"""Dispatching of blocks to workers, one at a time to each; the block of a lost worker is translated by another."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeAlias, runtime_checkable

from transduce.bulk.block_translator import Failure, TranslatedBlock
from transduce.bulk.blocks import MAX_LOSSES, Block
from transduce.errors import TransduceError


@dataclass(frozen=True)
class WorkerReady:
    """The answer of a worker that has loaded its model, in the process of this id on its machine."""

    process_id: int


@dataclass(frozen=True)
class WorkerLost:
    """What a pool returns instead of an answer if the worker ended without one; `cause` says how it ended."""

    cause: str


Answer: TypeAlias = WorkerReady | WorkerLost | Failure | TranslatedBlock


@runtime_checkable
class WorkerPool(Protocol):
    """Workers, each with a number and with the model in its memory."""

    num_workers: int
    """Number of workers that may run at a time."""

    def start(self) -> int:
        """Start a worker, which is `WorkerReady` later."""
        ...

    def submit(self, worker: int, block: Block) -> None:
        """Give a block to a worker that has none."""
        ...

    def wait(self) -> tuple[int, Answer]:
        """Wait for the next answer of any worker."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


def translate_blocks(
    pool: WorkerPool, blocks: Iterator[Block], report: Callable[[str], None]
) -> Iterator[tuple[Block, TranslatedBlock]]:
    """Blocks with their translations, in the order in which they are finished.

    As many blocks are read as there are workers, and another one whenever a worker needs it, so that memory is bounded
    however slow the workers are. No worker is started where there are no blocks. An error of `blocks` is raised after
    the blocks before it are translated, that of a worker after the others have finished.

    Raises:
        TransduceError, MemoryError, RuntimeError: a worker has failed, with its message; or several workers were lost
            over the same block, or before they had loaded the model.
        Exception: what `blocks` raises.
    """
    problems: list[Exception] = []
    readable = _read_until_error(blocks, problems)
    queue = deque(islice(readable, pool.num_workers))
    for _ in queue:
        pool.start()
    busy: dict[int, Block] = {}
    has_failed = False
    losses = Counter[tuple[int, int] | None]()
    while queue or busy:
        worker, answer = pool.wait()
        block = busy.pop(worker, None)
        if isinstance(answer, Failure):
            problems.append(answer.make_error())
            has_failed = True
            queue.clear()
            continue
        if isinstance(answer, WorkerLost):
            if not has_failed or block is not None:  # otherwise it could not load the model, and has said so
                _count_loss(losses, block, answer)
                report(f"a worker was lost ({answer.cause}): another one takes its place")
                queue.extendleft(filter(None, [block]))
                pool.start()
            continue
        queue.extend(islice(readable, 0 if queue or problems else 1))
        if queue:
            pool.submit(worker, busy.setdefault(worker, queue.popleft()))
        if isinstance(answer, WorkerReady):
            losses.pop(None, None)
        elif block is not None:
            yield block, answer
    if problems:
        raise problems[0]


def _read_until_error(blocks: Iterator[Block], problems: list[Exception]) -> Iterator[Block]:
    try:
        yield from blocks
    except Exception as error:  # noqa: BLE001 - raised when the blocks before it are translated
        problems.append(error)


def _count_loss(losses: Counter[tuple[int, int] | None], block: Block | None, answer: WorkerLost) -> None:
    key = None if block is None else (block.file, block.number)
    losses[key] += 1
    if losses[key] < MAX_LOSSES:
        return
    what = "they had loaded the model"
    if block is not None:
        what = f"{block.path}, from line {block.first} on, was translated"
    raise TransduceError(
        f"{losses[key]} workers were lost before {what} ({answer.cause}): memory may be full; use fewer workers, or a "
        "smaller --block-lines in another output folder"
    )
