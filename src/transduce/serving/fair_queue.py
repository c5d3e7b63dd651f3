"""Who comes next: requests of all sizes take turns."""

import asyncio
import math
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import Any, Protocol, runtime_checkable

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
