"""Dynamic batching: jobs of all requests take turns in a queue, and what waits is computed in batches."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, chain, islice
from typing import Any, Protocol, runtime_checkable

from transduce.config import SearchConfig
from transduce.errors import Draining, QueueFull, TooLong
from transduce.kernels.device import make_single_core_executor
from transduce.serving.monitoring import Metrics
from transduce.serving.scheduling import Limits
from transduce.translation import batch_by_length

TURN_SIZE = 16
"""Payloads of a job that are taken before another job has its turn; jobs of no more are not divided, as whoever
submitted one needs all of its results."""

MIN_BATCH_ITEMS = 8
"""Payloads that are not divided among idle workers: each batch would take almost as long as all of them together."""

WAIT_SHARE = 0.75
"""Share of the payloads that were in flight recently, divided by the workers, for which a worker waits, within
`Limits.max_delay_milliseconds`."""

MIN_BATCH_TOKENS = 256
"""Tokens of a batch, those of all hypotheses, that are taken however long they take to compute."""

SPEED_SMOOTHING = 0.1
"""Weight of the last batch in the estimate of the speed."""

MAX_RETRY_SECONDS = 60


@runtime_checkable
class BatchTask(Hashable, Protocol):
    """A kind of computation; payloads of equal tasks are computed together."""

    @property
    def width(self) -> int:
        """Hypotheses of each payload that are computed at a time."""
        ...

    @property
    def has_typical_speed(self) -> bool:
        """Whether its speed in tokens tells how long as many tokens of other tasks take."""
        ...

    def compute(self, payloads: Sequence[Any]) -> Sequence[Any]:
        """Compute the result of each payload, or the exception that is its result."""
        ...


class Job:
    """Payloads that were submitted together.

    Args:
        task: what is computed of them.
        payloads: each with its number of tokens.
        arrived: time of the event loop.
    """

    def __init__(self, task: BatchTask, payloads: Sequence[tuple[Any, int]], arrived: float) -> None:
        self.task, self.arrived = task, arrived
        self.waiting = dict.fromkeys(Item(self, payload, num_tokens) for payload, num_tokens in payloads)
        """The items that are not taken yet. An item refers to its job: the last one that is taken ends that cycle."""


class Item:
    """One payload of a job, and its result."""

    def __init__(self, job: Job, payload: Any, num_tokens: int) -> None:  # noqa: ANN401 - whatever the task is of
        self.job, self.payload, self.num_tokens = job, payload, num_tokens
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def set_result(self, result: Any) -> None:  # noqa: ANN401 - whatever the task computes
        """Set the result, which may be an exception, unless nobody waits for it any more."""
        if self.result.done():
            return
        if isinstance(result, BaseException):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class FairQueue:
    """Jobs that wait, grouped by equal tasks, from which batches are taken in turns.

    A payload waits for others to be computed with for `max_delay` seconds.
    """

    def __init__(self, max_delay: float) -> None:
        self._max_delay = max_delay
        self._groups: dict[BatchTask, dict[Job, None]] = {}  # the least recently served first, and so within each
        self.num_tokens = 0
        self.num_items = 0

    @property
    def jobs(self) -> Iterator[Job]:
        """All jobs."""
        return chain.from_iterable(self._groups.values())

    def add(self, job: Job) -> None:
        """Add a job behind all others."""
        self._groups.setdefault(job.task, {})[job] = None
        self.num_tokens += sum(item.num_tokens for item in job.waiting)
        self.num_items += len(job.waiting)

    def discard(self, job: Job) -> None:
        """Remove the payloads of a job that still wait."""
        self._remove(list(job.waiting))

    def seconds_until_due(self, now: float) -> float:
        """Seconds until a payload has waited for `max_delay`; infinite if the queue is empty."""
        arrived = min((job.arrived for job in self.jobs), default=math.inf)
        return max(0.0, arrived + self._max_delay - now)

    def take_batch(self, max_items: int, max_tokens: int) -> list[Item]:
        """Take the next batch, of equal tasks; nothing if the queue is empty.

        A batch with the last payloads of a job is not filled up with second turns of others, which would only delay it.
        A job that has had a turn, or as much of one as fits into a batch, comes after all others the next time; a job
        that got only what others had left over comes first.

        Args:
            max_items: maximum number of items of the batch; up to a turn more, if a job would be divided.
            max_tokens: maximum number of tokens of the batch, with all hypotheses; a longer payload is its own batch.
        """
        if not self._groups:
            return []
        task = next(iter(self._groups))
        group = self._groups[task] = self._groups.pop(task)
        batch: list[Item] = []
        room, completes_one = max_tokens // task.width, False
        for turn in _iterate_turns(group):
            job = turn[0].job
            if completes_one and turn[0] is not next(iter(job.waiting)):
                break
            is_long = len(job.waiting) > TURN_SIZE
            offered = turn[: max_items - len(batch)] if is_long else turn
            is_first = not batch
            taken = _take_fitting(offered, room) or (turn[:1] if is_first else [])
            batch += taken
            room -= sum(item.num_tokens for item in taken)
            completes_one = completes_one or len(taken) == len(job.waiting)
            if is_first or len(taken) == len(turn):
                group[job] = group.pop(job)  # it has had its turn
            if len(taken) < len(turn) or len(batch) >= max_items:
                break
        self._remove(batch)
        return batch

    def _remove(self, items: Sequence[Item]) -> None:
        for item in items:
            job = item.job
            del job.waiting[item]
            self.num_tokens -= item.num_tokens
            self.num_items -= 1
            if not job.waiting:
                group = self._groups[job.task]
                del group[job]
                if not group:
                    del self._groups[job.task]


def _iterate_turns(group: dict[Job, None]) -> Iterator[list[Item]]:
    waiting = deque(iter(job.waiting) for job in group)
    while waiting:
        items = waiting.popleft()
        turn = list(islice(items, TURN_SIZE))
        if turn:
            yield turn
            waiting.append(items)


def _take_fitting(items: Sequence[Item], max_tokens: int) -> list[Item]:
    totals = accumulate(item.num_tokens for item in items)
    return [item for item, total in zip(items, totals, strict=True) if total <= max_tokens]


class Batcher:
    """Computes jobs in batches on worker threads of its own.

    Each worker computes on one core and takes the next batch as soon as it has finished one, without waiting for other
    workers: while it computes, results of other batches are sent and the next requests arrive.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._queue = FairQueue(limits.max_delay_milliseconds / 1000)
        self._arrived = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._num_computing = self._num_busy = 0  # payloads, workers
        self._in_flight: deque[int] = deque([0])  # payloads, at each of the last batches
        self._threads: ThreadPoolExecutor | None = None
        self._is_stopped = False
        self._tokens_per_second = 1000.0  # of all workers, source tokens
        self._max_tokens = limits.batch_tokens
        metrics.watch_queue(lambda: self._queue.num_tokens, lambda: self._queue.num_items)

    def start(self, num_workers: int) -> None:
        """Start to compute, as many batches at a time as there are workers."""
        self._threads = make_single_core_executor(num_workers)
        self._in_flight = deque([0], maxlen=2 * num_workers)
        self._workers = [asyncio.create_task(self._run_worker(self._threads)) for _ in range(num_workers)]

    async def stop(self) -> None:
        """Stop; jobs that are not done raise `Draining`."""
        self._is_stopped = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for job in list(self._queue.jobs):
            for item in job.waiting:
                item.set_result(_make_draining_error())
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def submit(self, task: BatchTask, payloads: Sequence[tuple[Any, int]]) -> list[Any]:
        """Return the results of all payloads, in order; if the caller is cancelled, payloads that wait are removed.

        Args:
            task: what to compute of them.
            payloads: each with its number of tokens.

        Raises:
            QueueFull: too much is waiting.
            TooLong: there never is room for as much.
            Draining: the batcher was stopped.
            Exception: the first error that computing a payload raised.
        """
        if not payloads:
            return []
        if self._is_stopped:
            raise _make_draining_error()
        num_tokens, limit = sum(num_tokens for _, num_tokens in payloads), self._limits.max_queue_tokens
        if num_tokens > limit // 2:
            raise TooLong(f"{num_tokens:,} tokens: this service takes up to {limit // 2:,} in a request; divide it")
        if num_tokens > (limit - self._queue.num_tokens) // 2:
            raise self.make_queue_full_error()
        job = Job(task, payloads, asyncio.get_running_loop().time())
        results = [item.result for item in job.waiting]
        self._queue.add(job)
        self._arrived.set()
        try:
            return await asyncio.gather(*results)
        finally:
            self._queue.discard(job)

    def make_queue_full_error(self) -> QueueFull:
        """Make the error for a request that finds no room, with the time until what waits now will be done."""
        seconds = math.ceil(self._queue.num_tokens / self._tokens_per_second)
        seconds = min(max(seconds, 1), MAX_RETRY_SECONDS)
        return QueueFull(f"too much is waiting to be translated: ask again in {seconds} s", seconds)

    async def _run_worker(self, threads: ThreadPoolExecutor) -> None:
        while True:
            items = self._take_batch()
            if items:
                self._num_busy += 1
                self._num_computing += len(items)
                try:
                    await self._compute(threads, items)
                finally:
                    self._num_busy -= 1
                    self._num_computing -= len(items)
                continue
            self._arrived.clear()
            seconds = self._queue.seconds_until_due(asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                    await self._arrived.wait()

    def _take_batch(self) -> list[Item]:
        """Take what is to be computed now; nothing while more payloads are likely to arrive soon.

        They are likely while fewer wait than the idle workers' share of those in flight recently, as a client that just
        got an answer is about to send its next request. A client that is alone waits for nobody.
        """
        queue, num_workers, now = self._queue, len(self._workers), asyncio.get_running_loop().time()
        num_idle = num_workers - self._num_busy
        expected = WAIT_SHARE * max(self._in_flight) * num_idle / num_workers
        if queue.num_items < expected and queue.seconds_until_due(now) > 0:
            return []
        self._in_flight.append(queue.num_items + self._num_computing)
        return queue.take_batch(max(MIN_BATCH_ITEMS, math.ceil(queue.num_items / num_idle)), self._max_tokens)

    async def _compute(self, threads: ThreadPoolExecutor, items: list[Item]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        lengths = [item.num_tokens for item in items]
        waited = [started - item.job.arrived for item in items]
        self._metrics.record_batch_start(waited, lengths, _count_padding(lengths))
        task, payloads = items[0].job.task, [item.payload for item in items]
        try:
            results, thread_seconds = await loop.run_in_executor(threads, _compute_timed, task, payloads)
        except asyncio.CancelledError:
            for item in items:
                item.set_result(_make_draining_error())
            raise
        for item, result in zip(items, results, strict=True):
            item.set_result(result)
        seconds = max(loop.time() - started, 1e-6)
        self._metrics.record_batch_end(seconds, sum(isinstance(result, Exception) for result in results))
        if not task.has_typical_speed:
            return
        num_tokens = sum(lengths)
        speed = num_tokens * len(self._workers) / seconds
        self._tokens_per_second += SPEED_SMOOTHING * (speed - self._tokens_per_second)
        self._adapt_max_tokens(num_tokens * task.width, max(thread_seconds, 1e-6))

    def _adapt_max_tokens(self, num_tokens: int, seconds: float) -> None:
        """Update the batch-size limit from a batch that exceeded `batch_seconds` or was more than half full.

        `seconds` is processor time of the thread: smaller batches do not help if other programs take the processor.
        """
        limits = self._limits
        if seconds > limits.batch_seconds or num_tokens > self._max_tokens / 2:
            affordable = int(num_tokens * limits.batch_seconds / seconds)
            self._max_tokens = min(max(affordable, MIN_BATCH_TOKENS), limits.batch_tokens)


def compute_each(task: BatchTask, payloads: Sequence[Any]) -> list[Any]:
    """Compute the result of each payload; if a batch fails, its halves are computed, so that a payload fails alone."""
    try:
        return list(task.compute(payloads))
    except Exception as error:  # noqa: BLE001 - it is the result of the payload
        if len(payloads) == 1:
            return [error]
    middle = len(payloads) // 2
    return [*compute_each(task, payloads[:middle]), *compute_each(task, payloads[middle:])]


def _compute_timed(task: BatchTask, payloads: Sequence[Any]) -> tuple[list[Any], float]:
    started = time.thread_time()
    return compute_each(task, payloads), time.thread_time() - started


def _count_padding(lengths: Sequence[int]) -> int:
    """Count tokens of padding if a model forms batches as a bundle does by default."""
    batches = batch_by_length(lengths, SearchConfig().batch_tokens)
    return sum(len(batch) * max(lengths[index] for index in batch) for batch in batches) - sum(lengths)


def _make_draining_error() -> Draining:
    return Draining("this service is about to end, and did not get to the end of the request")
