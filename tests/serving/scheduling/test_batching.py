import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DrainingError, QueueFullError, TooLongError
from transduce.serving.monitoring import Metrics
from transduce.serving.scheduling import Limits
from transduce.serving.scheduling.batching import TURN_SIZE, Batcher, FairQueue, Item, Job, compute_each

EVERYTHING = 10**9


@dataclass(frozen=True)
class Echo:
    name: str = ""
    width: int = 1
    should_measure_speed: bool = True

    def compute(self, payloads: Sequence[Any]) -> list[Any]:
        return list(payloads)


def in_loop(test: Callable[[], None]) -> None:
    """Requests belong to a loop."""

    async def run() -> None:
        test()

    asyncio.run(run())


def make_job(lengths: Sequence[int], work: Echo | None = None, arrived: float = 0.0) -> Job:
    return Job(work or Echo(), [(place, length) for place, length in enumerate(lengths)], arrived)


def emptied(queue: FairQueue, max_items: int = EVERYTHING, max_tokens: int = EVERYTHING) -> list[list[Item]]:
    batches = []
    while batch := queue.take_batch(max_items, max_tokens):
        batches.append(batch)
    return batches


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 2)), max_size=12),
    st.integers(1, 60),
    st.integers(1, 200),
)
def test_everything_is_taken_once_in_batches_that_are_not_too_large(
    requests: list[tuple[list[int], int]], max_items: int, max_tokens: int
) -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        added = [make_job(lengths, Echo(str(kind), kind + 1)) for lengths, kind in requests]
        items = [[*one.waiting] for one in added]
        for one in added:
            queue.add(one)
        batches = emptied(queue, max_items, max_tokens)
        taken = [item for batch in batches for item in batch]
        assert {id(item) for item in taken} == {id(item) for item in set(taken)}
        assert len(taken) == sum(len(lengths) for lengths, _ in requests)
        assert (queue.num_items, queue.num_tokens) == (0, 0)
        for batch in batches:
            work = batch[0].job.task
            assert all(item.job.task == work for item in batch)
            assert len(batch) == 1 or sum(item.num_tokens for item in batch) * work.width <= max_tokens
            assert len(batch) < max_items + TURN_SIZE
        for one, own in zip(added, items, strict=True):
            assert [item for item in taken if item.job is one] == own

    in_loop(check)


def test_a_short_request_comes_into_the_next_batch_however_long_the_one_before_it_is() -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        book, line = make_job([10] * 5000), make_job([7])
        queue.add(book)
        first = queue.take_batch(EVERYTHING, 1000)
        assert {item.job for item in first} == {book}
        queue.add(line)
        assert line in {item.job for item in queue.take_batch(EVERYTHING, 1000)}

    in_loop(check)


def test_a_short_request_does_not_wait_for_much_of_a_long_one_in_its_batch() -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        book, line = make_job([10] * 5000), make_job([7])
        queue.add(book)
        queue.add(line)
        batch = queue.take_batch(EVERYTHING, 4000)
        assert [item.job for item in batch] == [book] * TURN_SIZE + [line]
        assert len(queue.take_batch(EVERYTHING, 4000)) == 400

    in_loop(check)


@pytest.mark.parametrize("max_tokens", [10, 25, 30, 300, 399])
def test_a_book_does_not_hold_up_a_line_where_a_turn_does_not_fit_into_a_batch(max_tokens: int) -> None:
    """As with a wide beam: 16 of its sentences have 400 tokens."""

    def check() -> None:
        queue = FairQueue(0.0)
        book, other, line = make_job([25] * 500), make_job([25] * 500), make_job([7])
        for one in (book, other):
            queue.add(one)
        queue.take_batch(EVERYTHING, max_tokens)
        queue.add(line)
        batches = [queue.take_batch(EVERYTHING, max_tokens) for _ in range(3)]
        assert line in {item.job for batch in batches for item in batch}
        waiting = [len(one.waiting) for one in (book, other)]
        assert max(waiting) - min(waiting) <= TURN_SIZE

    in_loop(check)


def test_the_rest_of_a_request_that_got_what_was_left_over_comes_next() -> None:
    """But not again and again, where it does not fit into any batch."""

    def check() -> None:
        queue = FairQueue(0.0)
        first, torn, last = make_job([10] * 8), make_job([10] * 14), make_job([10] * 2)
        for one in (first, torn, last):
            queue.add(one)
        batches = [[item.job for item in batch] for batch in emptied(queue, max_tokens=100)]
        assert batches == [[first] * 8 + [torn] * 2, [torn] * 10, [last] * 2 + [torn] * 2]

    in_loop(check)


def test_requests_of_the_same_size_advance_alike() -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        requests = [make_job([5] * 200) for _ in range(4)]
        for one in requests:
            queue.add(one)
        for _ in range(10):
            queue.take_batch(50, EVERYTHING)
            waiting = [len(one.waiting) for one in requests]
            assert max(waiting) - min(waiting) <= 2 * TURN_SIZE

    in_loop(check)


def test_a_request_of_a_turn_is_not_torn_apart() -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        for _ in range(3):
            queue.add(make_job([5] * TURN_SIZE))
        sizes = [len(batch) for batch in emptied(queue, max_items=TURN_SIZE + 1)]
        assert sizes == [2 * TURN_SIZE, TURN_SIZE]

    in_loop(check)


def test_kinds_of_work_take_turns() -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        for name in "aaab":
            queue.add(make_job([5] * 30, Echo(name)))
        kinds = [batch[0].job.task.name for batch in emptied(queue, max_items=30)]  # type: ignore[attr-defined]
        assert kinds.index("b") == 1

    in_loop(check)


def test_what_is_discarded_is_not_taken() -> None:
    def check() -> None:
        queue = FairQueue(0.0)
        gone, kept = make_job([5, 5]), make_job([5, 5])
        for one in (gone, kept):
            queue.add(one)
        queue.discard(gone)
        queue.discard(gone)
        assert {item.job for batch in emptied(queue) for item in batch} == {kept}

    in_loop(check)


def test_the_oldest_says_when_a_batch_is_due() -> None:
    def check() -> None:
        queue = FairQueue(max_delay=0.5)
        assert queue.seconds_until_due(10.0) == float("inf")
        queue.add(make_job([5], arrived=3.0))
        queue.add(make_job([5], Echo("other"), arrived=2.0))
        assert queue.seconds_until_due(2.1) == pytest.approx(0.4)
        assert queue.seconds_until_due(10.0) == 0.0

    in_loop(check)


def test_a_result_comes_once_or_for_nobody() -> None:
    def check() -> None:
        good, bad, gone = make_job([1, 1, 1]).waiting
        for result in ("first", "second", ValueError("third")):
            good.set_result(result)
        bad.set_result(ValueError("first"))
        bad.set_result("second")
        gone.result.cancel()
        gone.set_result("first")
        assert (good.result.result(), str(bad.result.exception())) == ("first", "first")

    in_loop(check)


@dataclass(frozen=True)
class Inverting:
    """1 / payload, which 0 does not have."""

    width: int = 1
    should_measure_speed: bool = True

    def compute(self, payloads: Sequence[Any]) -> list[float]:
        return [1 / payload for payload in payloads]


class Gate:
    """Work that waits until it is let through, and counts its batches."""

    width = 1
    should_measure_speed = True

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = threading.Semaphore(0)
        self.batches: list[list[Any]] = []

    def compute(self, payloads: Sequence[Any]) -> list[Any]:
        self.batches.append(list(payloads))
        self.begun.release()
        assert self.opened.wait(20)
        return list(payloads)


def batched(test: Callable[[Batcher], Awaitable[None]], limits: Limits | None = None, num_workers: int = 2) -> Metrics:
    """Runs the test with a batcher, and gives its metrics."""
    metrics = Metrics()

    async def run() -> None:
        batcher = Batcher(limits or Limits(), metrics)
        batcher.start(num_workers)
        try:
            await test(batcher)
        finally:
            await batcher.stop()

    asyncio.run(run())
    return metrics


def ones(payloads: Sequence[Any]) -> list[tuple[Any, int]]:
    return [(payload, 1) for payload in payloads]


def test_each_gets_its_own_results_in_order() -> None:
    async def check(batcher: Batcher) -> None:
        wanted = [list(range(first, first + count)) for first, count in ((1, 3), (50, 100), (7, 1), (20, 17))]
        found = await asyncio.gather(*(batcher.submit(Inverting(), ones(numbers)) for numbers in wanted))
        assert found == [[1 / number for number in numbers] for numbers in wanted]
        assert await batcher.submit(Inverting(), []) == []

    batched(check)


def test_a_poisoned_payload_fails_alone() -> None:
    async def check(batcher: Batcher) -> None:
        numbers = [[1, 2], [3, 0, 4], *([number] for number in range(1, 60))]
        found = await asyncio.gather(
            *(batcher.submit(Inverting(), ones(some)) for some in numbers), return_exceptions=True
        )
        assert isinstance(found[1], ZeroDivisionError)
        assert [found[0], *found[2:]] == [[1 / number for number in some] for some in (numbers[0], *numbers[2:])]

    metrics = batched(check, num_workers=1)
    assert metrics.registry.get_sample_value("transduce_failed_sentences_total") == 1


def test_halves_are_computed_again_until_the_poison_is_alone() -> None:
    results = compute_each(Inverting(), [1, 2, 0, 4, 5, 0, 7])
    assert [isinstance(result, ZeroDivisionError) for result in results] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    assert [result for result in results if not isinstance(result, Exception)] == [1, 1 / 2, 1 / 4, 1 / 5, 1 / 7]


def test_what_comes_while_a_thread_is_busy_is_computed_together() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        first = asyncio.create_task(batcher.submit(gate, ones([0])))
        await asyncio.to_thread(gate.begun.acquire)
        others = [asyncio.create_task(batcher.submit(gate, ones([number]))) for number in range(1, 21)]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await first == [0]
        assert [await other for other in others] == [[number] for number in range(1, 21)]
        assert gate.batches == [[0], list(range(1, 21))]

    batched(check, num_workers=1)


def test_a_full_queue_refuses_and_keeps_room_for_short_requests() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        with pytest.raises(TooLongError, match="51 tokens: this service accepts at most 50"):
            await batcher.submit(gate, [("x", 51)])
        busy = asyncio.create_task(batcher.submit(gate, ones("x")))
        await asyncio.to_thread(gate.begun.acquire)
        waiting = [asyncio.create_task(batcher.submit(gate, [("x", length)])) for length in (50, 25, 12)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="retry in 1 s") as refused:
            await batcher.submit(gate, [("x", 10)])
        assert refused.value.retry_after == 1
        waiting.append(asyncio.create_task(batcher.submit(gate, [("x", 6)])))
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(busy, *waiting) == [["x"]] * 5

    metrics = batched(check, Limits(max_queue_tokens=100), num_workers=1)
    assert metrics.registry.get_sample_value("transduce_queue_tokens") == 0


def test_whoever_is_cancelled_costs_nothing_more() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        busy = asyncio.create_task(batcher.submit(gate, ones(["busy"])))
        await asyncio.to_thread(gate.begun.acquire)
        gone = asyncio.create_task(batcher.submit(gate, ones(["gone"] * 5)))
        stays = asyncio.create_task(batcher.submit(gate, ones(["stays"])))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(busy, stays) == [["busy"], ["stays"]]
        assert gate.batches == [["busy"], ["stays"]]

    batched(check, num_workers=1)


def test_what_is_past_its_deadline_is_not_computed() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        busy = asyncio.create_task(batcher.submit(gate, ones(["busy"])))
        await asyncio.to_thread(gate.begun.acquire)
        late = asyncio.create_task(asyncio.wait_for(batcher.submit(gate, ones(["late"])), 0.01))
        await asyncio.sleep(0.1)
        gate.opened.set()
        with pytest.raises(TimeoutError):
            await late
        assert await busy == ["busy"]
        assert gate.batches == [["busy"]]

    batched(check, num_workers=1)


def test_stopping_answers_whoever_waits() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        busy = asyncio.create_task(batcher.submit(gate, ones(["busy"])))
        await asyncio.to_thread(gate.begun.acquire)
        waiting = asyncio.create_task(batcher.submit(gate, ones(["waiting"])))
        await asyncio.sleep(0)
        await batcher.stop()
        gate.opened.set()
        assert [type(answer) for answer in await asyncio.gather(busy, waiting, return_exceptions=True)] == [
            DrainingError
        ] * 2

    batched(check, num_workers=1)


def test_threads_compute_on_one_core_each_and_share_what_waits() -> None:
    @dataclass(frozen=True)
    class Asking:
        width: int = 1
        should_measure_speed: bool = True

        def compute(self, payloads: Sequence[Any]) -> list[Any]:
            together.wait(20)
            return [(torch.get_num_threads(), threading.get_ident(), len(payloads))] * len(payloads)

    together = threading.Barrier(2)

    async def check(batcher: Batcher) -> None:
        found = await batcher.submit(Asking(), ones(range(100)))
        assert {threads for threads, _, _ in found} == {1}
        assert len({thread for _, thread, _ in found}) == 2
        assert {size for _, _, size in found} == {50}

    batched(check)


def test_a_batch_that_takes_too_long_makes_the_next_ones_smaller() -> None:
    async def check(batcher: Batcher) -> None:
        batcher._adapt_max_tokens(4000, seconds=4.0)
        assert batcher._max_tokens == 2000
        batcher._adapt_max_tokens(100, seconds=0.5)  # too small to tell
        assert batcher._max_tokens == 2000
        batcher._adapt_max_tokens(2000, seconds=1.0)
        assert batcher._max_tokens == 4000
        batcher._adapt_max_tokens(3000, seconds=0.1)
        assert batcher._max_tokens == 4096
        batcher._adapt_max_tokens(1000, seconds=100.0)
        assert batcher._max_tokens == 256

    batched(check, Limits(batch_tokens=4096, batch_seconds=2.0))
