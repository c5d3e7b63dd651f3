"""Memory that arrays, allocators and oneDNN take and keep, and what the system says about it."""

import os
import platform
import subprocess
import sys
from mmap import mmap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from transduce.kernels import memory
from transduce.kernels.memory import (
    allocate,
    get_available_addresses,
    get_available_memory,
    get_peak_memory,
    get_used_memory,
    keep_freed_memory,
    reset_peak_memory,
)

PRODUCTS = """
import sys
from pathlib import Path

import torch

from transduce.kernels.memory import keep_few_kernels

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


@pytest.mark.parametrize(("most", "expected"), [(2**40, [2**30, 2**31 - 1]), (2**25, [2**25, 2**31 - 1]), (0, [])])
def test_where_blocks_cannot_be_kept_nothing_is_set(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: list[int]
) -> None:
    done: list[int] = []

    def mallopt(option: int, value: int) -> int:
        if option == memory.M_MMAP_THRESHOLD and value > most:
            return 0
        done.append(value)
        return 1

    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.28"))
    monkeypatch.setattr(memory, "ctypes", SimpleNamespace(CDLL=lambda _: SimpleNamespace(mallopt=mallopt)))
    keep_freed_memory()
    assert done == expected


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc")
def test_large_blocks_are_given_back_when_they_are_freed() -> None:
    # After the first block of 20 MB, glibc would keep later ones that are smaller.
    script = """
import torch
from transduce.kernels.memory import get_used_memory, give_back_large_blocks
if {called}: give_back_large_blocks()
device = torch.device("cpu")
first = b"1" * 20_000_000
del first
before = get_used_memory(device)
blocks = [b"1" * 2_000_000 for _ in range(20)]
kept = [bytes(1000) for _ in range(1000)]
del blocks
print((get_used_memory(device) - before) // 1_000_000)
"""
    held = {}
    for called in (True, False):
        command = [sys.executable, "-c", script.format(called=called)]
        held[called] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert held[True] < 10
    assert held[False] > 30


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
    memory._free_memory.blocks.clear()  # of other tests
    before = allocate((1_000_000,), np.uint8, is_temporary=True).ctypes.data
    assert allocate((900_000,), np.uint8, is_temporary=True).ctypes.data == before
    larger = allocate((1_100_000,), np.uint8, is_temporary=True)
    assert larger.ctypes.data != before


def test_a_thread_keeps_little_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory._free_memory.blocks.clear()
    monkeypatch.setattr(memory, "_MAX_FREE_BYTES", 2_000_000)
    arrays = [allocate((900_000,), np.uint8, is_temporary=True) for _ in range(3)]
    last = arrays[-1].ctypes.data
    while arrays:
        arrays.pop(0)
    blocks = memory._free_memory.blocks
    assert sum(block.nbytes for block in blocks) <= 2_000_000
    assert last in {-(-block.ctypes.data // 64) * 64 for block in blocks}
