import threading
import time
from collections.abc import Iterator

import pytest
import torch

from transduce.kernels.threads import Workers


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_each_computes_on_one_core_and_all_others_as_before() -> None:
    workers, seen = Workers(), []

    def look(_: int) -> int:
        torch.ones(4).sum()
        return torch.get_num_threads()

    assert workers.map(look, range(8), 2) == [1] * 8
    assert torch.get_num_threads() == 2
    other = threading.Thread(target=lambda: seen.append(look(0)))
    other.start()
    other.join()
    assert seen == [2]


def test_results_are_in_order_and_several_are_under_way() -> None:
    both = threading.Barrier(2)

    def meet(number: int) -> int:
        both.wait(timeout=30)
        return number

    assert Workers().map(meet, range(6), 2) == list(range(6))


def test_an_error_cancels_what_has_not_begun() -> None:
    begun = []

    def fail(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        raise ValueError(str(number))

    workers = Workers()
    with pytest.raises(ValueError, match="0"):
        workers.map(fail, range(1000), 2)
    assert len(begun) < 1000
    assert workers.map(abs, [-1, -2], 2) == [1, 2]
