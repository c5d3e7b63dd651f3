import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from transduce.errors import ConfigError
from transduce.kernels.device import (
    ComputePrecision,
    _limit_threads,
    find_device,
    make_single_core_executor,
    map_on_cores,
    resolve_precision,
)
from transduce.kernels.hardware import count_threads

SOURCE = Path(__file__).parents[2] / "src"


def test_the_processor_is_always_there() -> None:
    assert find_device("cpu") == torch.device("cpu")


def test_auto_is_the_best_that_is_there() -> None:
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert find_device("auto").type == expected


@pytest.mark.parametrize("name", ["", "warp drive", "gpu", "cpu:x", "meta", "xla", "cuda:99", "CPU"])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cpu") as refused:
        find_device(name)
    assert f"device = {name!r}" in str(refused.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="this machine has no such device; it has: "):
        find_device("cuda")


@pytest.mark.parametrize(("said", "found"), [(None, ":4096:8"), (":16:8", ":16:8")])
@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_gpu_is_told_to_sum_products_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str | None, found: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", said or "")
    if said is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert find_device("cpu").type == "cpu"
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == said
    assert find_device(name).type == "cuda"
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == found


@pytest.mark.parametrize(
    ("quota", "environment", "num_threads"), [(2, {}, 2), (8, {}, 3), (None, {}, 3), (2, {"OMP_NUM_THREADS": "3"}, 3)]
)
def test_pytorch_has_no_more_threads_than_a_container_has_cores(
    monkeypatch: pytest.MonkeyPatch, quota: int | None, environment: dict[str, str], num_threads: int
) -> None:
    for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("transduce.kernels.device.find_cpu_quota", lambda: quota)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        _limit_threads.cache_clear()
        find_device("cpu")
        assert torch.get_num_threads() == num_threads
        torch.set_num_threads(4)  # asked for after that
        find_device("cpu")
        assert torch.get_num_threads() == 4
    finally:
        _limit_threads.cache_clear()
        torch.set_num_threads(before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_that_is_there() -> None:
    assert find_device("cuda:0").index == 0


CPU = torch.device("cpu")


@pytest.fixture
def make_capabilities(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bool]], None]:
    """A processor that says it can do this."""
    monkeypatch.setattr("transduce.kernels.device.has_packed_bfloat16", lambda: True)
    return lambda found: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)


@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16"])
def test_auto_is_what_is_fastest(capability: str, make_capabilities: Callable[[dict[str, bool]], None]) -> None:
    make_capabilities({capability: True})
    assert resolve_precision("auto", CPU, 128) == ComputePrecision(torch.bfloat16)
    assert resolve_precision("auto", CPU, 128, is_few=True) == ComputePrecision(torch.float32, is_mixed=True)
    assert resolve_precision("auto", CPU, 64) == ComputePrecision(torch.float32)
    make_capabilities({capability: False})
    for is_few in (True, False):
        assert resolve_precision("auto", CPU, 512, is_few=is_few) == ComputePrecision(torch.float32)


def test_auto_is_float32_where_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert resolve_precision("auto", CPU, 128) == ComputePrecision(torch.float32)


@pytest.mark.parametrize("is_few", [True, False])
def test_what_is_asked_for_is_taken(*, is_few: bool) -> None:
    assert resolve_precision("float32", CPU, 512, is_few=is_few) == ComputePrecision(
        torch.float32, is_batch_invariant=True
    )
    assert resolve_precision("bfloat16", CPU, 64, is_few=is_few) == ComputePrecision(torch.bfloat16)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_each_computes_on_one_core_and_all_others_as_before() -> None:
    seen = []

    def look(_: int) -> int:
        torch.ones(4).sum()
        return torch.get_num_threads()

    assert map_on_cores(look, range(8), 2) == [1] * 8
    assert torch.get_num_threads() == 2
    other = threading.Thread(target=lambda: seen.append(look(0)))
    other.start()
    other.join()
    assert seen == [2]


def test_no_thread_sees_that_others_begin_to_compute_on_one_core() -> None:
    seen = []

    def count_and_make() -> None:
        all_ready.wait(timeout=30)
        seen.append(count_threads())
        make_single_core_executor(2).shutdown()
        seen.append(count_threads())

    for _ in range(20):
        all_ready = threading.Barrier(4)
        threads = [threading.Thread(target=count_and_make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(seen) == {2}
    assert torch.get_num_threads() == 2


FORK = """
import os, signal, sys
import torch
from transduce.kernels.device import map_on_cores

def compute():
    return map_on_cores(lambda number: int(torch.full((3,), number).sum()), [1, 2, 3], 2)

assert compute() == [3, 6, 9]
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(compute() != [3, 6, 9])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)})


def test_results_are_in_order_and_several_are_under_way() -> None:
    both = threading.Barrier(2)

    def meet(number: int) -> int:
        both.wait(timeout=30)
        return number

    assert map_on_cores(meet, range(6), 2) == list(range(6))


def test_an_error_cancels_what_has_not_begun() -> None:
    begun = []

    def fail(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        raise ValueError(str(number))

    with pytest.raises(ValueError, match="0"):
        map_on_cores(fail, range(1000), 2)
    assert len(begun) < 1000
    assert map_on_cores(abs, [-1, -2], 2) == [1, 2]


_ATTENTION = """
import torch
from transduce.kernels.device import has_fast_bfloat16
from transduce.model.attention import DotScore

torch.manual_seed(1)
values = torch.randn(3, 2, 4, 150, 32)
mask = torch.ones(1, 1, 1, 150, dtype=torch.bool)
with torch.no_grad():
    expected = DotScore(32, scaled=True).attend(*values, mask)
    found = DotScore(32, scaled=True).attend(*values.bfloat16(), mask)
torch.testing.assert_close(found.float(), expected, atol=2e-2, rtol=2e-2)
with_gradient = values.bfloat16().requires_grad_()
DotScore(32, scaled=True).attend(*with_gradient, mask).sum().backward()
assert with_gradient.grad.isfinite().all()
print(has_fast_bfloat16(torch.device("cpu")))
"""


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_bfloat16_where_pytorch_may_not_use_avx512(capability: str) -> None:
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", _ATTENTION], env=environment, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (0, "False\n"), found.stderr
