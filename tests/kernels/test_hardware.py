"""What is known of the machine without PyTorch, held to what PyTorch says."""

import os
import subprocess
import sys
from mmap import mmap
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from transduce.kernels import hardware
from transduce.kernels.device import find_device
from transduce.kernels.hardware import (
    allocate,
    count_threads,
    get_available_addresses,
    get_available_memory,
    get_peak_memory,
    get_used_memory,
    is_surely_cpu,
    keep_freed_memory,
    map_on_threads,
    may_have_gpu,
    reset_peak_memory,
)

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


PRODUCTS = """
import sys
from pathlib import Path

import torch

from transduce.kernels.hardware import keep_few_kernels

if sys.argv[1] == "few":
    keep_few_kernels()
torch.set_num_threads(1)
weight = torch.randn(64, 64, dtype=torch.bfloat16)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])


inputs = [torch.randn(rows, 64, dtype=torch.bfloat16) for rows in range(1, 500)]
inputs[0] @ weight
before = resident()
for matrix in inputs:
    matrix @ weight
print(resident() - before)
"""


def pages_grown(kernels: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    command = [sys.executable, "-c", PRODUCTS, kernels]
    return int(subprocess.run(command, env=environment, capture_output=True, check=True, encoding="utf-8").stdout)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_new_shapes_do_not_add_up_in_memory() -> None:
    many = pages_grown("many")
    if many < 20_000:
        pytest.skip("this processor's kernels for bfloat16 are small")
    assert pages_grown("few") < many / 2


CPU = torch.device("cpu")
V1, V2 = "4:memory:/a/b\n3:cpu:/a\n0::/\n", "0::/a/b\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a system with 8,000 kB free, on which the process holds 300 kB and held 500 kB once."""
    write(tmp_path / "proc/meminfo", "MemTotal:       24684096 kB\nMemAvailable:   8000 kB\n")
    write(tmp_path / "proc/self/status", "Name:\tpython\nVmSize:\t  700 kB\nVmHWM:\t     500 kB\nVmRSS:\t     300 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_what_the_system_says(root: Path) -> None:
    assert (get_used_memory(CPU, root), get_peak_memory(CPU, root)) == (300 * 1024, 500 * 1024)
    assert get_available_memory(CPU, root) == 8000 * 1024


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        (V2, {"a/b/memory.max": "3000", "a/b/memory.current": "1000"}, 2000),
        (V2, {"a/b/memory.max": "max", "a/b/memory.current": "1000"}, 8000 * 1024),
        # The group above has less left.
        (V2, {"a/b/memory.max": "9000", "a/b/memory.current": "0", "a/memory.max": "7", "a/memory.current": "3"}, 4),
        # In a container, its own group is the root.
        (V2, {"memory.max": "3000", "memory.current": "1000", "memory.stat": "anon 9\ninactive_file 500\n"}, 2500),
        (V2, {"memory.max": "3000", "memory.current": "4000"}, 0),
        (V1, {"memory/a/b/memory.limit_in_bytes": "3000", "memory/a/b/memory.usage_in_bytes": "1000"}, 2000),
        (
            V1,
            {
                "memory/memory.limit_in_bytes": "3000",
                "memory/memory.usage_in_bytes": "1000",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 700\n",
            },
            2700,
        ),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "1"}, 8000 * 1024),
    ],
)
def test_a_control_group_may_have_less(root: Path, groups: str, files: dict[str, str], free: int) -> None:
    write(root / "proc/self/cgroup", groups)
    for name, text in files.items():
        write(root / "sys/fs/cgroup" / name, text + "\n")
    assert get_available_memory(CPU, root) == free


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
    root: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(hardware, "_count_cores_to_run_on", lambda: 8)
    write(root / "proc/self/cgroup", groups)
    for name, text in files.items():
        write(root / "sys/fs/cgroup" / name, text + "\n")
    assert hardware._count_cores(root) == cores


@pytest.mark.parametrize(("most", "expected"), [(2**40, [2**30, 2**31 - 1]), (2**25, [2**25, 2**31 - 1]), (0, [])])
def test_where_blocks_cannot_be_kept_nothing_is_set(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: list[int]
) -> None:
    done: list[int] = []

    def mallopt(option: int, value: int) -> int:
        if option == hardware.M_MMAP_THRESHOLD and value > most:
            return 0
        done.append(value)
        return 1

    monkeypatch.setattr(hardware.platform, "libc_ver", lambda: ("glibc", "2.28"))
    monkeypatch.setattr(hardware, "ctypes", SimpleNamespace(CDLL=lambda _: SimpleNamespace(mallopt=mallopt)))
    keep_freed_memory()
    assert done == expected


def test_the_addresses_of_a_process_may_be_limited(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for limit, free in ((750 * 1024, 50 * 1024), (600 * 1024, 0), (resource.RLIM_INFINITY, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, -1))
        assert get_available_addresses(CPU, root) == free


def test_what_nobody_says_is_not_known(tmp_path: Path) -> None:
    assert [
        found(CPU, tmp_path)
        for found in (get_used_memory, get_peak_memory, get_available_memory, get_available_addresses)
    ] == 4 * [None]
    assert get_available_memory(torch.device("mps")) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
def test_memory_that_is_taken_shows() -> None:
    before, free = get_used_memory(CPU), get_available_memory(CPU)
    with mmap(-1, 2**26) as held:  # fresh from the system, as a block that was kept after it was freed is not
        for start in range(0, 2**26, 4096):
            held[start] = 1
        taken, most = get_used_memory(CPU), get_peak_memory(CPU)
    assert before is not None
    assert taken is not None
    assert most is not None
    assert free is not None
    assert 50e6 < taken - before < 80e6
    assert most >= taken
    assert free > 2**26
    reset_peak_memory(CPU)
    afterwards = get_peak_memory(CPU)
    assert afterwards is not None
    assert afterwards < most - 50e6


@pytest.mark.parametrize("shape", [(1,), (3, 5), (700, 1000)])
@pytest.mark.parametrize("is_temporary", [False, True])
def test_arrays_begin_with_a_cache_line(shape: tuple[int, ...], *, is_temporary: bool) -> None:
    for _ in range(3):
        array = allocate(shape, np.float32, is_temporary=is_temporary)
        assert array.shape == shape
        assert array.dtype == np.float32
        assert array.ctypes.data % 64 == 0
        assert array.flags.c_contiguous
        array[...] = 1  # all of it is there


def test_memory_in_use_is_not_used_again() -> None:
    arrays = [allocate((100_000,), np.int32, is_temporary=True) for _ in range(4)]
    for number, array in enumerate(arrays):
        array[...] = number
    view = arrays.pop()[5:10]  # holds all of the memory of its array
    arrays.append(allocate((100_000,), np.int32, is_temporary=True))
    arrays[-1][...] = 9
    assert [int(array[0]) for array in arrays] == [0, 1, 2, 9]
    assert view.tolist() == [3] * 5


def test_memory_that_nothing_refers_to_is_used_again() -> None:
    hardware._free_memory.blocks.clear()  # of other tests
    before = allocate((1_000_000,), np.uint8, is_temporary=True).ctypes.data
    assert allocate((900_000,), np.uint8, is_temporary=True).ctypes.data == before
    larger = allocate((1_100_000,), np.uint8, is_temporary=True)
    assert larger.ctypes.data != before


def test_a_thread_keeps_little_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware._free_memory.blocks.clear()
    monkeypatch.setattr(hardware, "_MAX_FREE_BYTES", 2_000_000)
    arrays = [allocate((900_000,), np.uint8, is_temporary=True) for _ in range(3)]
    last = arrays[-1].ctypes.data
    while arrays:
        arrays.pop(0)
    blocks = hardware._free_memory.blocks
    assert sum(block.nbytes for block in blocks) <= 2_000_000
    assert last in {-(-block.ctypes.data // 64) * 64 for block in blocks}
