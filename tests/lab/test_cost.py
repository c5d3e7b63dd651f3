import time
from functools import partial

import pytest
import torch

from transduce.lab.cost import MIN_CALLS, measure_saved_bytes, measure_seconds


def test_seconds_are_those_of_the_fastest_call() -> None:
    pauses = iter([0.0, 0.05, 0.01, 0.05])  # the first call is not measured
    found = measure_seconds({"one": lambda: time.sleep(next(pauses))}, 0.0)
    assert found == {"one": pytest.approx(0.01, abs=0.008)}
    assert not list(pauses)


def test_calls_are_repeated_for_the_time() -> None:
    calls: list[str] = []

    def call(name: str) -> None:
        calls.append(name)
        time.sleep(0.002)

    assert list(measure_seconds({name: partial(call, name) for name in "ab"}, 0.1)) == ["a", "b"]
    assert len(calls) > 2 * MIN_CALLS + 2
    assert calls == len(calls) // 2 * ["a", "b"]  # they take turns


def test_saved_bytes_are_those_of_the_formula() -> None:
    first, second = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    assert measure_saved_bytes(lambda: first + second) == 0
    assert measure_saved_bytes(lambda: first * second) == 2 * 8 * 8 * 4
    assert measure_saved_bytes(lambda: first * first.view(64).view(8, 8)) == 8 * 8 * 4  # the same memory
    assert measure_saved_bytes(lambda: first.exp().tanh()) == 2 * 8 * 8 * 4  # the result of each
    with torch.no_grad():
        assert measure_saved_bytes(lambda: first * second) == 0
