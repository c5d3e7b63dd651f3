"""Batches."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import Any, Protocol, runtime_checkable

from transduce.config import SearchConfig
from transduce.serving.errors import Draining, QueueFull, TooLong
from transduce.serving.limits import Limits
from transduce.serving.monitoring import Metrics
from transduce.translation import batches_by_length
from transduce.translation.workers import threads_of_one_core

TURN = 16
"""Payloads of a request that are taken before another has its turn: fewer are not torn apart, as whoever asked for them
needs all."""


@runtime_checkable
class Work(Hashable, Protocol):
    """A kind of computation; payloads of equal work are computed together."""

    @property
    def width(self) -> int:
        """How many hypotheses of each payload are computed at a time."""
        ...

    @property
    def takes_as_long_as_its_tokens(self) -> bool:
        """Whether how long it takes says how long as many tokens of other work will take."""
        ...

    def compute(self, payloads: Sequence[Any]) -> Sequence[Any]:
        """The result of each payload, or the exception that is its result."""
        ...


class Request:
    """Payloads that were submitted together, and their results, once they are there.

    Args:
        work: what is computed of them.
        payloads: each with its number of tokens.
        arrived: the loop's time.
        deadline: the same, after which nothing more is computed.
    """

    def __init__(
        self, work: Work, payloads: Sequence[tuple[Any, int]], arrived: float, deadline: float = math.inf
    ) -> None:
        self.work, self.arrived, self.deadline = work, arrived, deadline
        items = [Item(self, place, payload, num_tokens) for place, (payload, num_tokens) in enumerate(payloads)]
        self.waiting = dict.fromkeys(items)
        self.num_tokens = sum(item.num_tokens for item in items)
        self.answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._results: list[Any] = [None] * len(items)
        self._num_missing = len(items)

    def deliver(self, place: int, result: Any) -> None:  # noqa: ANN401 - whatever the work gives
        """The result of one payload; the first exception is the answer to all."""
        if isinstance(result, BaseException):
            self.fail(result)
            return
        self._results[place] = result
        self._num_missing -= 1
        if not self._num_missing and not self.answer.done():
            self.answer.set_result(self._results)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, unless there is an answer already."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True, eq=False)
class Item:
    """One payload of a request."""

    request: Request
    place: int
    payload: Any
    num_tokens: int


class FairQueue:
    """Requests that wait, those with equal work together.

    Args:
        max_delay: seconds that a payload waits for companions.
    """

    def __init__(self, max_delay: float) -> None:
        self._max_delay = max_delay
        self._groups: dict[Work, dict[Request, None]] = {}  # the least recently served first, and so within each
        self.num_tokens = 0
        self.num_items = 0

    @property
    def requests(self) -> Iterator[Request]:
        """All."""
        return chain.from_iterable(self._groups.values())

    def add(self, request: Request) -> None:
        """Behind all others."""
        self._groups.setdefault(request.work, {})[request] = None
        self.num_tokens += request.num_tokens
        self.num_items += len(request.waiting)

    def discard(self, request: Request) -> None:
        """Whatever of the request still waits is forgotten."""
        self._remove(list(request.waiting))

    def due_in(self, now: float) -> float:
        """Seconds until something has waited for as long as it may; infinite if nothing waits."""
        arrived = min((request.arrived for request in self.requests), default=math.inf)
        return max(0.0, arrived + self._max_delay - now)

    def take(self, most_items: int, most_tokens: int) -> list[Item]:
        """The next batch, of equal work; nothing if nothing waits.

        A batch with the last payloads of a request is not filled up with second turns of others, which would only make
        it wait. Whoever has had a turn, or as much of one as a batch has room for, comes after all others the next
        time; whoever got only what others had left over comes first.

        Args:
            most_items: of the batch; up to a turn more, if a request would be torn apart.
            most_tokens: of the batch, with all hypotheses; a longer payload is a batch of its own.
        """
        if not self._groups:
            return []
        work = next(iter(self._groups))
        group = self._groups[work] = self._groups.pop(work)
        chosen: list[Item] = []
        room, completes_one = most_tokens // work.width, False
        for turn in _turns(group):
            request = turn[0].request
            if completes_one and turn[0] is not next(iter(request.waiting)):
                break
            is_long = len(request.waiting) > TURN
            offered = turn[: most_items - len(chosen)] if is_long else turn
            is_first = not chosen
            taken = _fitting(offered, room) or (turn[:1] if is_first else [])
            chosen += taken
            room -= sum(item.num_tokens for item in taken)
            completes_one = completes_one or len(taken) == len(request.waiting)
            if is_first or len(taken) == len(turn):
                group[request] = group.pop(request)  # it has had its turn
            if len(taken) < len(turn) or len(chosen) >= most_items:
                break
        self._remove(chosen)
        return chosen

    def expire(self, now: float) -> None:
        """What is past its deadline is answered with a `TimeoutError`, and forgotten."""
        for request in [request for request in self.requests if request.deadline <= now]:
            request.fail(TimeoutError())
            self.discard(request)

    def _remove(self, items: Sequence[Item]) -> None:
        for item in items:
            request = item.request
            del request.waiting[item]
            request.num_tokens -= item.num_tokens
            self.num_tokens -= item.num_tokens
            self.num_items -= 1
            if not request.waiting:
                group = self._groups[request.work]
                del group[request]
                if not group:
                    del self._groups[request.work]


def _turns(group: dict[Request, None]) -> Iterator[list[Item]]:
    """Some payloads of each request, then some more of each that has more."""
    waiting = deque(iter(request.waiting) for request in group)
    while waiting:
        request = waiting.popleft()
        turn = list(islice(request, TURN))
        if turn:
            yield turn
            waiting.append(request)


def _fitting(items: Sequence[Item], most_tokens: int) -> list[Item]:
    """As many of the first as have no more tokens together."""
    totals = accumulate(item.num_tokens for item in items)
    return [item for item, total in zip(items, totals, strict=True) if total <= most_tokens]


FEW = 8
"""Payloads that are not divided among threads with nothing to do: each would take almost as long as all."""

PATIENCE = 0.75
"""Share of what recently was in flight, divided by the threads, for which a thread waits, within `max_delay`."""

FEWEST_TOKENS = 256
"""Of a batch, with all hypotheses, however long it takes, if so many are there."""

LEARNING = 0.1
"""Weight of the last batch in what is known of the speed."""

LONGEST_RETRY = 60
"""Seconds after which to ask again, at most."""


class Batcher:
    """Computes what is submitted, in batches, on threads of its own.

    Each thread computes on one core and takes the next batch as soon as it is done with one: none waits for another,
    and while one computes, the answers of another's batch are sent and the next requests come in.

    Args:
        limits: of the queue and of batches.
        metrics: are told of every batch.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._queue = FairQueue(limits.max_delay_milliseconds / 1000)
        self._arrived = asyncio.Event()
        self._lanes: list[asyncio.Task[None]] = []
        self._num_computing = self._num_busy = 0  # payloads, lanes
        self._in_flight: deque[int] = deque([0])  # payloads, at each of the last batches
        self._threads: ThreadPoolExecutor | None = None
        self._is_stopped = False
        self._tokens_per_second = 1000.0  # of all threads, source tokens
        self._most_tokens = limits.batch_tokens
        metrics.watch_queue(lambda: self._queue.num_tokens, lambda: self._queue.num_items)

    def start(self, num_lanes: int) -> None:
        """Compute from now on, as many batches at a time as there are lanes."""
        self._threads = threads_of_one_core(num_lanes)
        self._in_flight = deque([0], maxlen=2 * num_lanes)
        self._lanes = [asyncio.create_task(self._lane(self._threads)) for _ in range(num_lanes)]

    async def stop(self) -> None:
        """End; what was submitted and is not done, or is submitted from now on, raises `Draining`."""
        self._is_stopped = True
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        for request in list(self._queue.requests):
            request.fail(_draining())
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def submit(self, work: Work, payloads: Sequence[tuple[Any, int]], deadline: float) -> list[Any]:
        """The results of all payloads, in order.

        Whoever is cancelled while waiting for them takes what was not begun out of the queue.

        Args:
            work: what to compute of them.
            payloads: each with its number of tokens.
            deadline: in the loop's time.

        Raises:
            QueueFull: too much is waiting.
            TooLong: it is more than there ever is room for.
            TimeoutError: the deadline is over.
            Draining: the batcher was stopped.
            Exception: what computing a payload raised.
        """
        if not payloads:
            return []
        if self._is_stopped:
            raise _draining()
        self._check_room(sum(num_tokens for _, num_tokens in payloads))
        request = Request(work, payloads, asyncio.get_running_loop().time(), deadline)
        self._queue.add(request)
        self._arrived.set()
        try:
            return await request.answer
        finally:
            self._queue.discard(request)

    def full(self) -> QueueFull:
        """The refusal of whoever finds no room."""
        seconds = math.ceil(self._queue.num_tokens / self._tokens_per_second)
        seconds = min(max(seconds, 1), LONGEST_RETRY)
        return QueueFull(f"too much is waiting to be translated: ask again in {seconds} s", seconds)

    def _check_room(self, num_tokens: int) -> None:
        most = self._limits.max_queue_tokens
        if num_tokens > most // 2:
            raise TooLong(f"{num_tokens:,} tokens: this service takes up to {most // 2:,} in a request; divide it")
        if num_tokens > (most - self._queue.num_tokens) // 2:
            raise self.full()

    async def _lane(self, threads: ThreadPoolExecutor) -> None:
        while True:
            items = self._next_batch()
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
            seconds = self._queue.due_in(asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                    await self._arrived.wait()

    def _next_batch(self) -> list[Item]:
        """What is to be computed now; nothing while companions are likely to come soon.

        They are, as long as less waits than the share of idle threads in what recently was in flight: whoever got an
        answer a moment ago is about to send the next request. Nobody who is alone waits for others.
        """
        queue, num_lanes, now = self._queue, len(self._lanes), asyncio.get_running_loop().time()
        queue.expire(now)
        num_idle = num_lanes - self._num_busy
        if queue.num_items < PATIENCE * max(self._in_flight) * num_idle / num_lanes and queue.due_in(now) > 0:
            return []
        self._in_flight.append(queue.num_items + self._num_computing)
        return queue.take(max(FEW, math.ceil(queue.num_items / num_idle)), self._most_tokens)

    async def _compute(self, threads: ThreadPoolExecutor, items: list[Item]) -> None:
        """Compute a batch and hand out what came of it."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        lengths = [item.num_tokens for item in items]
        self._metrics.batch_taken([started - item.request.arrived for item in items], lengths, _num_padding(lengths))
        payloads = [item.payload for item in items]
        try:
            results, own_seconds = await loop.run_in_executor(threads, _timed, items[0].request.work, payloads)
        except asyncio.CancelledError:
            for item in items:
                item.request.fail(_draining())
            raise
        for item, result in zip(items, results, strict=True):
            item.request.deliver(item.place, result)
        seconds = max(loop.time() - started, 1e-6)
        self._metrics.batch_computed(seconds, sum(isinstance(result, Exception) for result in results))
        if not items[0].request.work.takes_as_long_as_its_tokens:
            return
        num_tokens = sum(lengths)
        self._tokens_per_second += LEARNING * (num_tokens * len(self._lanes) / seconds - self._tokens_per_second)
        self._learn_most_tokens(num_tokens * items[0].request.work.width, max(own_seconds, 1e-6))

    def _learn_most_tokens(self, num_tokens: int, seconds: float) -> None:
        """From a batch that took too long, or was large enough to tell how many tokens would not.

        Seconds are the thread's own: smaller batches do not help against other programs, which slow down all alike.
        """
        limits = self._limits
        if seconds > limits.batch_seconds or num_tokens > self._most_tokens / 2:
            affordable = int(num_tokens * limits.batch_seconds / seconds)
            self._most_tokens = min(max(affordable, FEWEST_TOKENS), limits.batch_tokens)


def computed(work: Work, payloads: Sequence[Any]) -> list[Any]:
    """The result of each payload; where computing them together fails, that is done by halves: one fails alone."""
    try:
        return list(work.compute(payloads))
    except Exception as error:  # noqa: BLE001 - it is the answer of whoever asked for it
        if len(payloads) == 1:
            return [error]
    middle = len(payloads) // 2
    return [*computed(work, payloads[:middle]), *computed(work, payloads[middle:])]


def _timed(work: Work, payloads: Sequence[Any]) -> tuple[list[Any], float]:
    """What is computed, and seconds of this thread's processor."""
    started = time.thread_time()
    return computed(work, payloads), time.thread_time() - started


def _num_padding(lengths: Sequence[int]) -> int:
    """Tokens of padding, as a model packs the sentences that it is given unless its bundle says otherwise."""
    batches = batches_by_length(lengths, SearchConfig().batch_tokens)
    return sum(len(batch) * max(lengths[index] for index in batch) for batch in batches) - sum(lengths)


def _draining() -> Draining:
    return Draining("this service is about to end, and did not get to the end of the request")
