"""Properties of this machine, found without PyTorch, whose import takes seconds: cores, threads, devices."""

import ctypes
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Literal, TypeVar

Precision = Literal["auto", "float32", "bfloat16", "int8"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float16"]

MIN_D_MODEL_OF_BFLOAT16 = 128
"""d_model from which bfloat16 is faster on a processor that has it, for many sentences at a time."""

MIN_D_MODEL_OF_AMX = 512
"""d_model from which PyTorch in bfloat16 translates on a processor with AMX, in place of compiled kernels in float32:
products of large matrices in bfloat16 are several times as fast there."""

_CPU_FOLDER = Path("/sys/devices/system/cpu")

ROOT = Path("/")
"""The folder in which Linux has the files `proc` and `sys`; tests read others."""

THREAD_COUNT_LOCK = Lock()
"""Held while PyTorch's number of threads is read, or is changed for a moment, as in `make_single_core_executor`."""

if hasattr(os, "register_at_fork"):  # a forked process would wait for ever for a thread that it does not have
    os.register_at_fork(
        before=THREAD_COUNT_LOCK.acquire,
        after_in_parent=THREAD_COUNT_LOCK.release,
        after_in_child=THREAD_COUNT_LOCK.release,
    )


def is_surely_cpu(device: str) -> bool:
    """Whether the device of this name is certainly the CPU; if False, only `find_device` can tell, with PyTorch.

    `auto` is the CPU where PyTorch is built without CUDA and ROCm, where no device is visible to it, or where there
    is no driver. On macOS it may be MPS.
    """
    return device == "cpu" or (device == "auto" and not may_have_gpu())


def may_have_gpu() -> bool:
    """Whether PyTorch may find a GPU here, determined without importing it."""
    if "torch" in sys.modules or sys.platform == "darwin":
        return True
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return spec is not None
    libraries = {path.name for path in Path(spec.origin).parent.glob("lib/*c10*")}
    if not libraries or any("hip" in name for name in libraries):  # laid out otherwise, or for GPUs of AMD
        return True
    if not any("cuda" in name for name in libraries) or os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return False
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def count_threads() -> int:
    """The number of threads that PyTorch would use, or uses: one for each core, or fewer if set in the environment.

    If PyTorch is loaded, its present number is returned, which `torch.set_num_threads` may have changed.

    `MKL_NUM_THREADS` takes precedence over `OMP_NUM_THREADS`. More threads than cores only wait for each other; the
    library that multiplies matrices in PyTorch (MKL) does not start them either. A limit of a control group, as of a
    container, counts as so many cores, rounded up; PyTorch keeps to it after `find_device`.
    """
    loaded = sys.modules.get("torch")
    if hasattr(loaded, "get_num_threads"):  # it may be set to another
        with THREAD_COUNT_LOCK:
            return int(loaded.get_num_threads())  # type: ignore[union-attr]
    num_cores = _count_cores()
    return min(num_cores, find_requested_threads() or num_cores)


def find_requested_threads() -> int | None:
    """The number of threads that the environment asks for; None if it does not."""
    for variable in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        found = re.match(r"\s*([1-9]\d*)", os.environ.get(variable, ""))
        if found:
            return int(found[1])
    return None


def _count_cores(root: Path = ROOT) -> int:
    """Cores that this process may use: those that it may run on, or fewer if a control group limits its time."""
    num_cores = _count_cores_to_run_on()
    return min(num_cores, find_cpu_quota(root) or num_cores)


def _count_cores_to_run_on() -> int:
    """Cores that this process may run on; hardware threads of one core count once, if the system reports them."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return _count_cores_of(frozenset(os.sched_getaffinity(0)))


@cache
def _count_cores_of(processors: frozenset[int]) -> int:
    """Cores of these processors, which are hardware threads; read once, as each of them has a file."""
    try:
        siblings = {
            (_CPU_FOLDER / f"cpu{number}/topology/thread_siblings_list").read_text(encoding="ascii")
            for number in processors
        }
    except OSError:
        return len(processors)
    return len(siblings)


_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")


def map_on_threads(function: Callable[[_TaskT], _ResultT], tasks: Sequence[_TaskT], num_threads: int) -> list[_ResultT]:
    """The result of `function` for each task, computed by `num_threads` threads; an exception cancels waiting tasks.

    For functions that compute without PyTorch, in code that releases Python's global lock. A single task is computed
    by the caller: on a busy machine, waking another thread takes longer than a sentence.
    """
    if len(tasks) == 1:
        return [function(tasks[0])]
    return list(_get_executor(num_threads).map(function, tasks))


_get_executor = cache(ThreadPoolExecutor)
if hasattr(os, "register_at_fork"):  # a forked process has the executors, but none of their threads
    os.register_at_fork(after_in_child=_get_executor.cache_clear)


def find_control_groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """The folders of the control groups that this process is in and that may limit it, and whether of version 2."""
    for line in read_lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        is_second = controllers == ""
        if is_second or controller in controllers.split(","):
            folder = root / "sys/fs/cgroup" / ("" if is_second else controller)
            group = PurePosixPath(path)
            # A container sees its own group as the root, whatever its path is outside.
            yield from ((folder / one.relative_to("/"), is_second) for one in (group, *group.parents))


@cache
def find_cpu_quota(root: Path = ROOT) -> int | None:
    """The least CPU quota of this process's control groups, in cores, rounded up; None without one.

    It is read once for the process. A container has such a quota if it was started with `--cpus`, for example.
    """
    found = []
    for place, is_second in find_control_groups(root, "cpu"):
        files = [place / "cpu.max"] if is_second else [place / "cpu.cfs_quota_us", place / "cpu.cfs_period_us"]
        numbers = " ".join(line for path in files for line in read_lines(path)).split()  # "max", or -1, without a limit
        if len(numbers) == 2 and all(number.isdecimal() and int(number) for number in numbers):
            found.append(math.ceil(int(numbers[0]) / int(numbers[1])))
    return min(found, default=None)


def read_lines(path: Path) -> list[str]:
    """The lines of a file of the system; none if there is no such file, or it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
