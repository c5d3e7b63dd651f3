"""What can be known of this machine without PyTorch, whose import takes seconds: its devices, threads and precision."""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeVar

Precision = Literal["auto", "float32", "bfloat16", "int8"]

NARROWEST = 128
"""d_model from which bfloat16 is faster on a processor that has it, for many sentences at a time."""

_CPU_FOLDER = Path("/sys/devices/system/cpu")


def is_processor(device: str) -> bool:
    """Whether `find_device` would certainly find a processor by this name; where False, only PyTorch can tell.

    `auto` is a processor where PyTorch is built without CUDA and ROCm, where no device is visible to it, or where there
    is no driver. On macOS it may be MPS.
    """
    return device == "cpu" or (device == "auto" and not may_have_gpu())


def may_have_gpu() -> bool:
    """Whether PyTorch may find a GPU here; it is not asked, as it would have to be imported."""
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
    """The number of threads that PyTorch would use, or uses: one for each core, or fewer if the environment says so.

    Where PyTorch is loaded, it is asked; `torch.set_num_threads` may have been told any number.

    `MKL_NUM_THREADS` counts before `OMP_NUM_THREADS`. More threads than cores only wait for each other; the library
    that multiplies matrices in PyTorch (MKL) does not start them either.
    """
    torch = sys.modules.get("torch")
    if hasattr(torch, "get_num_threads"):  # it may be set to another
        return int(torch.get_num_threads())  # type: ignore[union-attr]
    for variable in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        found = re.match(r"\s*([1-9]\d*)", os.environ.get(variable, ""))
        if found:
            return min(int(found[1]), _count_cores())
    return _count_cores()


def _count_cores() -> int:
    """Cores that this process may run on; threads of one core count once, where the system says which they are."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    processors = os.sched_getaffinity(0)
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

    For functions that compute without PyTorch, in code that lets go of Python's lock.
    """
    return map_on_executor(_make_executor(num_threads), function, tasks)


def map_on_executor(
    executor: Executor, function: Callable[[_TaskT], _ResultT], tasks: Sequence[_TaskT]
) -> list[_ResultT]:
    """The result of `function` for each task; an exception cancels waiting tasks."""
    futures = [executor.submit(function, task) for task in tasks]
    try:
        return [future.result() for future in futures]
    except BaseException:  # Ctrl-C, too
        for future in futures:
            future.cancel()
        raise


@cache
def _make_executor(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads)
