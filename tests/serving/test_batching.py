import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from transduce.serving.batching import Batcher, computed
from transduce.serving.limits import Limits
from transduce.serving.metrics import Metrics
from transduce.serving.refusals import Draining, QueueFull, TooLong

LATER = 1e9


@dataclass(frozen=True)
class Inverting:
    """1 / payload, which 0 does not have."""

    width: int = 1
    takes_as_long_as_its_tokens: bool = True

    def compute(self, payloads: Sequence[Any]) -> list[float]:
        return [1 / payload for payload in payloads]


class Gate:
    """Work that waits until it is let through, and counts its batches."""

    width = 1
    takes_as_long_as_its_tokens = True

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = threading.Semaphore(0)
        self.batches: list[list[Any]] = []

    def compute(self, payloads: Sequence[Any]) -> list[Any]:
        self.batches.append(list(payloads))
        self.begun.release()
        assert self.opened.wait(20)
        return list(payloads)


def batched(test: Callable[[Batcher], Awaitable[None]], limits: Limits | None = None, num_lanes: int = 2) -> Metrics:
    """Runs the test with a batcher, and gives its metrics."""
    metrics = Metrics()

    async def run() -> None:
        batcher = Batcher(limits or Limits(), metrics)
        batcher.start(num_lanes)
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
        found = await asyncio.gather(*(batcher.submit(Inverting(), ones(numbers), LATER) for numbers in wanted))
        assert found == [[1 / number for number in numbers] for numbers in wanted]
        assert await batcher.submit(Inverting(), [], LATER) == []

    batched(check)


def test_a_poisoned_payload_fails_alone() -> None:
    async def check(batcher: Batcher) -> None:
        numbers = [[1, 2], [3, 0, 4], *([number] for number in range(1, 60))]
        found = await asyncio.gather(
            *(batcher.submit(Inverting(), ones(some), LATER) for some in numbers), return_exceptions=True
        )
        assert isinstance(found[1], ZeroDivisionError)
        assert [found[0], *found[2:]] == [[1 / number for number in some] for some in (numbers[0], *numbers[2:])]

    metrics = batched(check, num_lanes=1)
    assert metrics.registry.get_sample_value("transduce_failed_sentences_total") == 1


def test_halves_are_computed_again_until_the_poison_is_alone() -> None:
    results = computed(Inverting(), [1, 2, 0, 4, 5, 0, 7])
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
        first = asyncio.create_task(batcher.submit(gate, ones([0]), LATER))
        await asyncio.to_thread(gate.begun.acquire)
        others = [asyncio.create_task(batcher.submit(gate, ones([number]), LATER)) for number in range(1, 21)]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await first == [0]
        assert [await other for other in others] == [[number] for number in range(1, 21)]
        assert gate.batches == [[0], list(range(1, 21))]

    batched(check, num_lanes=1)


def test_a_full_queue_refuses_and_keeps_room_for_short_requests() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        with pytest.raises(TooLong, match="51 tokens: this service takes up to 50"):
            await batcher.submit(gate, [("x", 51)], LATER)
        busy = asyncio.create_task(batcher.submit(gate, ones("x"), LATER))
        await asyncio.to_thread(gate.begun.acquire)
        waiting = [asyncio.create_task(batcher.submit(gate, [("x", length)], LATER)) for length in (50, 25, 12)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="ask again in 1 s") as refused:
            await batcher.submit(gate, [("x", 10)], LATER)
        assert refused.value.retry_after == 1
        waiting.append(asyncio.create_task(batcher.submit(gate, [("x", 6)], LATER)))
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(busy, *waiting) == [["x"]] * 5

    metrics = batched(check, Limits(max_queue_tokens=100), num_lanes=1)
    assert metrics.registry.get_sample_value("transduce_queue_tokens") == 0


def test_whoever_is_cancelled_costs_nothing_more() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        busy = asyncio.create_task(batcher.submit(gate, ones(["busy"]), LATER))
        await asyncio.to_thread(gate.begun.acquire)
        gone = asyncio.create_task(batcher.submit(gate, ones(["gone"] * 5), LATER))
        stays = asyncio.create_task(batcher.submit(gate, ones(["stays"]), LATER))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(busy, stays) == [["busy"], ["stays"]]
        assert gate.batches == [["busy"], ["stays"]]

    batched(check, num_lanes=1)


def test_what_is_past_its_deadline_is_not_computed() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        busy = asyncio.create_task(batcher.submit(gate, ones(["busy"]), LATER))
        await asyncio.to_thread(gate.begun.acquire)
        late = asyncio.create_task(batcher.submit(gate, ones(["late"]), asyncio.get_running_loop().time()))
        await asyncio.sleep(0)
        gate.opened.set()
        with pytest.raises(TimeoutError):
            await late
        assert await busy == ["busy"]
        assert gate.batches == [["busy"]]

    batched(check, num_lanes=1)


def test_stopping_answers_whoever_waits() -> None:
    async def check(batcher: Batcher) -> None:
        gate = Gate()
        busy = asyncio.create_task(batcher.submit(gate, ones(["busy"]), LATER))
        await asyncio.to_thread(gate.begun.acquire)
        waiting = asyncio.create_task(batcher.submit(gate, ones(["waiting"]), LATER))
        await asyncio.sleep(0)
        await batcher.stop()
        gate.opened.set()
        assert [type(answer) for answer in await asyncio.gather(busy, waiting, return_exceptions=True)] == [
            Draining
        ] * 2

    batched(check, num_lanes=1)


def test_threads_compute_on_one_core_each_and_share_what_waits() -> None:
    @dataclass(frozen=True)
    class Asking:
        width: int = 1
        takes_as_long_as_its_tokens: bool = True

        def compute(self, payloads: Sequence[Any]) -> list[Any]:
            together.wait(20)
            return [(torch.get_num_threads(), threading.get_ident(), len(payloads))] * len(payloads)

    together = threading.Barrier(2)

    async def check(batcher: Batcher) -> None:
        found = await batcher.submit(Asking(), ones(range(100)), LATER)
        assert {threads for threads, _, _ in found} == {1}
        assert len({thread for _, thread, _ in found}) == 2
        assert {size for _, _, size in found} == {50}

    batched(check)


def test_a_batch_that_takes_too_long_makes_the_next_ones_smaller() -> None:
    async def check(batcher: Batcher) -> None:
        batcher._learn_most_tokens(4000, seconds=4.0)
        assert batcher._most_tokens == 2000
        batcher._learn_most_tokens(100, seconds=0.5)  # too small to tell
        assert batcher._most_tokens == 2000
        batcher._learn_most_tokens(2000, seconds=1.0)
        assert batcher._most_tokens == 4000
        batcher._learn_most_tokens(3000, seconds=0.1)
        assert batcher._most_tokens == 4096
        batcher._learn_most_tokens(1000, seconds=100.0)
        assert batcher._most_tokens == 256

    batched(check, Limits(batch_tokens=4096, batch_seconds=2.0))
