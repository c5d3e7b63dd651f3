"""What is known of the machine without PyTorch, held to what PyTorch says."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from transduce.kernels import hardware
from transduce.kernels.device import find_device
from transduce.kernels.hardware import count_threads, is_surely_cpu, map_on_threads, may_have_gpu

SOURCE = Path(__file__).parents[2] / "src"


def ask(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={"PYTHONPATH": str(SOURCE), **environment},
    )
    return done.stdout.strip()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "environment",
    [{}, {"OMP_NUM_THREADS": "1"}, {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}],
    ids=str,
)
def test_there_are_as_many_threads_as_pytorch_has(environment: dict[str, str]) -> None:
    ours = "from transduce.kernels.hardware import count_threads; print(count_threads())"
    assert ask(ours, **environment) == ask("import torch; print(torch.get_num_threads())", **environment)


def test_what_is_told_to_pytorch_counts() -> None:
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert count_threads() == count
    finally:
        torch.set_num_threads(before)


def test_threads_are_counted_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    for variable in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    assert 1 <= count_threads() <= (os.cpu_count() or 1)
    monkeypatch.setattr(hardware, "_count_cores", lambda: 4)
    for told, expected in {"3,2": 3, "5": 4, "many": 4, "0": 4}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", told)
        assert count_threads() == expected


@pytest.mark.parametrize(
    ("libraries", "environment", "expected"),
    [
        (["libc10.so", "libtorch_cpu.so"], {}, False),
        (["libc10.so", "libc10_cuda.so"], {"CUDA_VISIBLE_DEVICES": ""}, False),
        (["libc10.so", "libc10_cuda.so"], {"CUDA_VISIBLE_DEVICES": "-1"}, False),
        (["libc10.so", "libc10_hip.so"], {}, True),
        ([], {}, True),
    ],
)
def test_only_where_there_can_be_no_gpu_pytorch_is_not_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    libraries: list[str],
    environment: dict[str, str],
    *,
    expected: bool,
) -> None:
    (tmp_path / "lib").mkdir()
    for name in libraries:
        (tmp_path / "lib" / name).touch()
    origin = str(tmp_path / "__init__.py")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(hardware, "find_spec", lambda _: SimpleNamespace(origin=origin))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    assert may_have_gpu() is expected
    assert is_surely_cpu("auto") is not expected
    monkeypatch.setattr(sys, "platform", "darwin")
    assert may_have_gpu()


@pytest.mark.parametrize("has_driver", [False, True])
def test_without_a_driver_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_driver: bool) -> None:
    def open_library(name: str) -> object:
        if not has_driver:
            raise OSError(name)
        return object()

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libc10_cuda.so").touch()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(hardware, "ctypes", SimpleNamespace(CDLL=open_library))
    assert may_have_gpu() is has_driver


def test_a_processor_is_one_for_pytorch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_surely_cpu("cpu")
    assert not is_surely_cpu("cuda")
    assert not is_surely_cpu("warp")
    monkeypatch.delitem(sys.modules, "torch")
    if is_surely_cpu("auto"):
        monkeypatch.setitem(sys.modules, "torch", torch)
        assert find_device("auto").type == "cpu"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell")
def test_files_about_processors_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_CPU_FOLDER", tmp_path)
    numbers = range(10_000, 10_006)  # no machine has them
    for number in numbers:
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number // 2}\n", encoding="utf-8")
    for _ in range(2):
        for processors, cores in ((set(numbers), 3), ({10_000, 10_001}, 1), ({10_000, 10_002}, 2)):
            monkeypatch.setattr(os, "sched_getaffinity", lambda _, those=processors: those)
            assert hardware._count_cores_to_run_on() == cores
        for path in tmp_path.rglob("thread_siblings_list"):
            path.unlink()


def test_an_exception_cancels_waiting_tasks() -> None:
    assert map_on_threads(lambda number: number * 2, [1, 2, 3], 2) == [2, 4, 6]
    begun: list[int] = []
    is_told = Event()

    def fail(number: int) -> Any:
        begun.append(number)
        if number == 0:
            raise ValueError("here")
        is_told.wait(10)

    with pytest.raises(ValueError, match="here"):
        map_on_threads(fail, list(range(50)), 1)
    is_told.set()
    assert map_on_threads(abs, [-1], 1) == [1]
    assert len(begun) < 50


FORK = """
import os, signal, sys
from transduce.kernels.hardware import map_on_threads

def compute():
    return map_on_threads(abs, [-1, -2, -3], 2)

assert compute() == [1, 2, 3]
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(compute() != [1, 2, 3])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    ask(FORK)


V1, V2 = "4:memory:/a/b\n3:cpu:/a\n0::/\n", "0::/a/b\n"


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        (V2, {"a/b/cpu.max": "150000 100000"}, 2),
        (V2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 1),
        (V2, {"cpu.max": "300000 100000"}, 3),  # in a container, its own group is the root
        (V2, {"a/b/cpu.max": "max 100000"}, 8),
        (V2, {"a/b/cpu.max": "1600000 100000"}, 8),
        (V1, {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 8),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "100000"}, 8),
    ],
)
def test_a_control_group_may_have_less_time_than_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(hardware, "_count_cores_to_run_on", lambda: 8)
    written = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text + "\n" for name, text in files.items()}}
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert hardware._count_cores(tmp_path) == cores
