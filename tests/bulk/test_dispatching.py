from collections.abc import Iterator

import pytest

from transduce.bulk.block_translator import Failure, TranslatedBlock
from transduce.bulk.blocks import Block
from transduce.bulk.dispatching import Answer, WorkerLost, WorkerReady, translate_blocks
from transduce.errors import CorpusError, TransduceError, UserError


class ListedPool:
    """Workers that answer at once, in the order of their tasks; those of the listed turns are lost."""

    num_workers = 2

    def __init__(self, *lost: int) -> None:
        self._lost, self._turn, self._num_started = lost, 0, 0
        self.answers: list[tuple[int, Answer]] = []
        self.most_waiting = 0

    def start(self) -> int:
        self._num_started += 1
        self._answer(self._num_started, WorkerReady(self._num_started))
        return self._num_started

    def submit(self, worker: int, block: Block) -> None:
        self._answer(worker, TranslatedBlock(block.lines, []))

    def _answer(self, worker: int, answer: Answer) -> None:
        self._turn += 1
        self.answers.append((worker, WorkerLost("gone") if self._turn in self._lost else answer))

    def wait(self) -> tuple[int, Answer]:
        self.most_waiting = max(self.most_waiting, len(self.answers))
        return self.answers.pop(0)

    def close(self) -> None:
        pass


def make_blocks(count: int, taken: list[int] | None = None) -> Iterator[Block]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield Block(number, 1 + number, [str(number)], [1 + number], path="text")


@pytest.mark.parametrize("lost", [(), (3,), (1,), (4, 6), (7,)])
def test_every_block_is_translated_once(lost: tuple[int, ...]) -> None:
    messages: list[str] = []
    found = list(translate_blocks(ListedPool(*lost), make_blocks(5), messages.append))
    assert sorted(block.number for block, _ in found) == [0, 1, 2, 3, 4]
    assert all(block.lines == translated.lines for block, translated in found)
    assert messages == ["a worker was lost (gone): another one takes its place"] * len(lost)


def test_no_more_blocks_are_read_than_workers_need() -> None:
    taken: list[int] = []
    finished = translate_blocks(ListedPool(), make_blocks(100, taken), lambda _: None)
    for count in range(1, 50):
        next(finished)
        assert len(taken) <= count + ListedPool.num_workers


def test_without_blocks_no_worker_is_started() -> None:
    pool = ListedPool()
    assert list(translate_blocks(pool, make_blocks(0), lambda _: None)) == []
    assert pool.answers == []


def test_workers_that_are_lost_again_and_again_end_it() -> None:
    with pytest.raises(TransduceError, match=r"3 workers were lost before they had loaded the model \(gone\)"):
        list(translate_blocks(ListedPool(*range(1, 9)), make_blocks(5), lambda _: None))
    # The first block is lost, given to a new worker, and lost again.
    with pytest.raises(TransduceError, match=r"3 workers were lost before text, from line 1 on, was translated"):
        list(translate_blocks(ListedPool(2, 4, 6), make_blocks(1), lambda _: None))


def test_what_was_read_before_an_error_is_finished() -> None:
    def read() -> Iterator[Block]:
        yield from make_blocks(5)
        raise CorpusError("line 6")

    finished: list[int] = []
    with pytest.raises(CorpusError, match="line 6"):
        finished.extend(block.number for block, _ in translate_blocks(ListedPool(4), read(), lambda _: None))
    assert sorted(finished) == [0, 1, 2, 3, 4]


def test_what_other_workers_have_begun_is_finished_after_a_failure() -> None:
    pool = ListedPool()
    answer = pool.submit
    failure = Failure("it is so", "mistake")
    pool.submit = lambda worker, block: (  # type: ignore[method-assign]
        pool.answers.append((worker, failure)) if block.number == 2 else answer(worker, block)
    )
    finished: list[int] = []
    with pytest.raises(UserError, match="it is so"):
        finished.extend(block.number for block, _ in translate_blocks(pool, make_blocks(9), lambda _: None))
    assert finished == [0, 1, 3]


def test_a_worker_that_cannot_load_the_model_says_why_and_is_not_replaced() -> None:
    pool = ListedPool()
    first = pool.start
    messages: list[str] = []

    def start() -> int:
        worker = first()
        if worker == 2:
            pool.answers[-1:] = [(2, Failure("it was trained anew", "mistake")), (2, WorkerLost("exit code 0"))]
        return worker

    pool.start = start  # type: ignore[method-assign]
    finished: list[int] = []
    with pytest.raises(UserError, match="it was trained anew"):
        finished.extend(block.number for block, _ in translate_blocks(pool, make_blocks(5), messages.append))
    assert (finished, messages) == ([0], [])


@pytest.mark.parametrize("kind", ["mistake", "failure", "memory", "bug"])
def test_a_failure_is_raised_with_its_message(kind: str) -> None:
    pool = ListedPool()
    failure = Failure("it is so", kind)  # type: ignore[arg-type]
    pool.submit = lambda worker, _: pool.answers.append((worker, failure))  # type: ignore[method-assign]
    with pytest.raises(type(failure.make_error()), match="it is so"):
        list(translate_blocks(pool, make_blocks(5), lambda _: None))
