"""Dynamic batching: the jobs of all requests take turns in a queue, from which batches are formed."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, chain, islice
from typing import Any, Protocol, runtime_checkable

from opentelemetry.trace import INVALID_SPAN, Span

from transduce.config import SearchConfig
from transduce.errors import DrainingError, QueueFullError, TooLongError
from transduce.kernels.device import make_single_core_executor
from transduce.serving.monitoring import Metrics
from transduce.serving.scheduling import Limits
from transduce.serving.tracing import record_span
from transduce.translation import batch_by_length

TURN_SIZE = 16
"""Maximum number of payloads of a job taken in one turn, before another job's; smaller jobs are not divided, as their
caller needs all of the results."""

MIN_BATCH_ITEMS = 8
"""Number of payloads up to which a batch is not divided among idle workers, as each part would take almost as long as
the whole."""

WAIT_SHARE = 0.75
"""A worker waits, within `Limits.max_delay_milliseconds`, for this share of the payloads that were in flight recently,
divided by the number of workers."""

MIN_BATCH_TOKENS = 256
"""Minimum of the batch-size limit in tokens of all hypotheses, however long such a batch takes."""

SPEED_SMOOTHING = 0.1
"""Weight of the last batch in the estimate of the speed."""

MAX_RETRY_SECONDS = 60


@runtime_checkable
class BatchTask(Hashable, Protocol):
    """A kind of computation; payloads of equal tasks may be computed in one batch."""

    @property
    def width(self) -> int:
        """Hypotheses of each payload that are computed at once."""
        ...

    @property
    def should_measure_speed(self) -> bool:
        """Whether its speed in tokens per second is used to estimate the time of other tasks."""
        ...

    def compute(self, payloads: Sequence[Any]) -> Sequence[Any]:
        """Compute the result of each payload, or the exception that is its result."""
        ...


class Job:
    """Payloads submitted together by one caller.

    Args:
        task: what is computed of them.
        payloads: each with its number of tokens.
        arrived: time of the event loop.
        span: what is recorded of it in a trace.
    """

    def __init__(
        self, task: BatchTask, payloads: Sequence[tuple[Any, int]], arrived: float, span: Span = INVALID_SPAN
    ) -> None:
        self.task, self.arrived, self.span = task, arrived, span
        self.waiting = dict.fromkeys(Item(self, payload, num_tokens) for payload, num_tokens in payloads)
        """The items not yet taken. An item refers to its job; taking the last one breaks this reference cycle."""


class Item:
    """A payload of a job, and its result."""

    def __init__(self, job: Job, payload: Any, num_tokens: int) -> None:  # noqa: ANN401 - of the type of the task's payloads
        self.job, self.payload, self.num_tokens = job, payload, num_tokens
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def set_result(self, result: Any) -> None:  # noqa: ANN401 - of the type of the task's results
        """Set the result, which may be an exception, unless the caller was cancelled."""
        if self.result.done():
            return
        if isinstance(result, BaseException):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class FairQueue:
    """Waiting jobs, grouped by equal tasks, from which batches are taken in turns.

    A payload waits at most `max_delay` seconds to be batched with others.
    """

    def __init__(self, max_delay: float) -> None:
        self._max_delay = max_delay
        self._groups: dict[
            BatchTask, dict[Job, None]
        ] = {}  # the least recently served task first, and within it the least recently served job
        self.num_tokens = 0
        self.num_items = 0

    @property
    def jobs(self) -> Iterator[Job]:
        """All jobs."""
        return chain.from_iterable(self._groups.values())

    def add(self, job: Job) -> None:
        """Add a job after all others."""
        self._groups.setdefault(job.task, {})[job] = None
        self.num_tokens += sum(item.num_tokens for item in job.waiting)
        self.num_items += len(job.waiting)

    def discard(self, job: Job) -> None:
        """Remove the waiting payloads of a job."""
        self._remove(list(job.waiting))

    def seconds_until_due(self, now: float) -> float:
        """Seconds until a payload has waited for `max_delay`; infinite if the queue is empty."""
        arrived = min((job.arrived for job in self.jobs), default=math.inf)
        return max(0.0, arrived + self._max_delay - now)

    def take_batch(self, max_items: int, max_tokens: int) -> list[Item]:
        """Take the next batch, of equal tasks; nothing if the queue is empty.

        A batch that completes a job is not filled up with second turns of others, which would only delay it. A job that
        has had a full turn, or as much of one as fits into a batch, comes last the next time; a job that only got the
        remaining space of a batch comes first.

        Args:
            max_items: maximum number of items of the batch; exceeded by up to one turn to avoid dividing a job.
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
                group[job] = group.pop(job)  # the job has had its turn
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
    """Computes jobs in batches on its worker threads.

    Each worker computes on one core and takes the next batch as soon as it has finished one, without waiting for other
    workers: while it computes, other results are sent and new requests arrive.
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
        """Start the workers, each of which computes one batch at a time."""
        self._threads = make_single_core_executor(num_workers)
        self._in_flight = deque([0], maxlen=2 * num_workers)
        self._workers = [asyncio.create_task(self._run_worker(self._threads)) for _ in range(num_workers)]

    async def stop(self) -> None:
        """Stop; unfinished jobs raise `DrainingError`."""
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
        """Return the results of all payloads, in order; if the caller is cancelled, waiting payloads are removed.

        Args:
            task: the computation.
            payloads: each with its number of tokens.

        Raises:
            QueueFullError: the queue is full.
            TooLongError: the payloads exceed the capacity of the queue.
            DrainingError: the batcher was stopped.
            Exception: the first error that computing a payload raised.
        """
        if not payloads:
            return []
        if self._is_stopped:
            raise _make_draining_error()
        num_tokens, limit = sum(num_tokens for _, num_tokens in payloads), self._limits.max_queue_tokens
        if num_tokens > limit // 2:
            raise TooLongError(
                f"{num_tokens:,} tokens: this service accepts at most {limit // 2:,} per request; split it"
            )
        if num_tokens > (limit - self._queue.num_tokens) // 2:
            raise self.make_queue_full_error()
        with record_span("compute", sentences=len(payloads), tokens=num_tokens) as span:
            job = Job(task, payloads, asyncio.get_running_loop().time(), span)
            results = [item.result for item in job.waiting]
            self._queue.add(job)
            self._arrived.set()
            try:
                return await asyncio.gather(*results)
            finally:
                self._queue.discard(job)

    def make_queue_full_error(self) -> QueueFullError:
        """Make the error for a request for which the queue is full, with the estimated time until the queue is
        empty.
        """
        seconds = math.ceil(self._queue.num_tokens / self._tokens_per_second)
        seconds = min(max(seconds, 1), MAX_RETRY_SECONDS)
        return QueueFullError(f"the queue is full: retry in {seconds} s", seconds)

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
        """Take the next batch; nothing while more payloads are likely to arrive soon.

        They are likely while fewer are waiting than the idle workers' share of those recently in flight, as a client
        that has just received a response often sends its next request. The requests of a single client do not wait.
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
        for job in dict.fromkeys(item.job for item in items):
            job.span.add_event(
                "batch starts", {"transduce.batch_sentences": len(items), "transduce.batch_tokens": sum(lengths)}
            )
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
        if not task.should_measure_speed:
            return
        num_tokens = sum(lengths)
        speed = num_tokens * len(self._workers) / seconds
        self._tokens_per_second += SPEED_SMOOTHING * (speed - self._tokens_per_second)
        self._adapt_max_tokens(num_tokens * task.width, max(thread_seconds, 1e-6))

    def _adapt_max_tokens(self, num_tokens: int, seconds: float) -> None:
        """Update the batch-size limit from a batch that exceeded `batch_seconds` or was more than half full.

        `seconds` is processor time of the thread: smaller batches do not help if other programs occupy the processor.
        """
        limits = self._limits
        if seconds > limits.batch_seconds or num_tokens > self._max_tokens / 2:
            affordable = int(num_tokens * limits.batch_seconds / seconds)
            self._max_tokens = min(max(affordable, MIN_BATCH_TOKENS), limits.batch_tokens)


def compute_each(task: BatchTask, payloads: Sequence[Any]) -> list[Any]:
    """Compute the result of each payload; if a batch fails, its halves are computed separately, so that only the faulty
    payload fails.
    """
    try:
        return list(task.compute(payloads))
    except Exception as error:  # noqa: BLE001 - the exception is the result of the payload
        if len(payloads) == 1:
            return [error]
    middle = len(payloads) // 2
    return [*compute_each(task, payloads[:middle]), *compute_each(task, payloads[middle:])]


def _compute_timed(task: BatchTask, payloads: Sequence[Any]) -> tuple[list[Any], float]:
    started = time.thread_time()
    return compute_each(task, payloads), time.thread_time() - started


def _count_padding(lengths: Sequence[int]) -> int:
    """Count the padding tokens of a model that forms batches as a bundle does by default."""
    batches = batch_by_length(lengths, SearchConfig().batch_tokens)
    return sum(len(batch) * max(lengths[index] for index in batch) for batch in batches) - sum(lengths)


def _make_draining_error() -> DrainingError:
    return DrainingError("the service is stopping and did not finish the request: retry")
