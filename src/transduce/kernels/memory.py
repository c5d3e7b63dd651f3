"""Memory: arrays for compiled kernels, settings of allocators and caches, amounts used and free; without PyTorch."""

import ctypes
import math
import os
import platform
from contextlib import suppress
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transduce.kernels.hardware import ROOT, find_control_groups, read_lines

if TYPE_CHECKING:
    import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's numbers of two options: when free memory is returned to the system, and which blocks are mapped singly."""

CACHE_LINE = 64
"""Bytes of a cache line, the unit in which a processor reads memory: a vector across two lines takes two reads."""

_MIN_REUSED_BYTES = 2**18
"""Minimum size in bytes of a temporary array for which `allocate` looks for free memory."""

_MAX_FREE_BYTES = 2**27
"""Maximum number of bytes of free memory that a thread keeps for temporary arrays."""

KERNELS_KEPT = 64
"""oneDNN kernels that training keeps: more than one update has shapes of products, so that layers share them."""

KERNELS_OF_TRANSLATION = 128
"""oneDNN kernels that translation keeps. Twice as many are a tenth faster for repeated lines, but no faster for new
lines, with which a process grows to over 1 GB in 30,000 lines."""


def allocate(shape: tuple[int, ...], dtype: npt.DTypeLike, *, is_temporary: bool = False) -> npt.NDArray[Any]:
    """An uninitialised array whose first number stands at the beginning of a cache line.

    A large temporary array takes the memory of an earlier one that is no longer in use, of which a thread keeps 128 MB:
    a batch of sentences needs as much memory as the batch before, and new memory costs a page fault for every 4 KB, an
    eighth of the time of a batch by a small model.
    """
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if is_temporary and num_bytes >= _MIN_REUSED_BYTES:
        block = np.asarray(_TemporaryMemory(_free_memory.take(num_bytes + CACHE_LINE)))
    else:
        block = np.empty(num_bytes + CACHE_LINE, dtype=np.uint8)
    start = -address(block) % CACHE_LINE
    return block[start : start + num_bytes].view(dtype).reshape(shape)


def address(array: npt.NDArray[Any]) -> int:
    """The address of an array's first number in memory, which is valid as long as the array exists."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # it cannot be written, or is empty
        return array.ctypes.data  # slower, and a sentence needs thirty


class _FreeMemory(local):
    """Free blocks of memory, which a thread keeps for its next temporary arrays; the block freed last is the last."""

    def __init__(self) -> None:
        self.blocks: list[npt.NDArray[np.uint8]] = []

    def take(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """A block of at least `num_bytes`: the smallest free one that is at most twice as large, or else a new one."""
        fitting = [block for block in self.blocks if num_bytes <= block.nbytes <= 2 * num_bytes]
        if not fitting:
            return np.empty(num_bytes, dtype=np.uint8)
        found = min(fitting, key=len)
        self.blocks = [block for block in self.blocks if block is not found]
        return found

    def give_back(self, block: npt.NDArray[np.uint8]) -> None:
        """Add a free block, and drop the oldest blocks until all together have at most `_MAX_FREE_BYTES`."""
        self.blocks.append(block)
        while sum(one.nbytes for one in self.blocks) > _MAX_FREE_BYTES:
            self.blocks.pop(0)


_free_memory = _FreeMemory()


class _TemporaryMemory:
    """The owner of the memory of a temporary array and its views: frees the memory when none of them is left."""

    def __init__(self, block: npt.NDArray[np.uint8]) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    # The names of a module may be gone when Python exits, but not a default.
    def __del__(self, free_memory: _FreeMemory = _free_memory) -> None:
        free_memory.give_back(self._block)


def keep_freed_memory() -> None:
    """Tell glibc to return no block under 1 GB (32 MB in older versions) to the system; elsewhere do nothing.

    Every update frees and takes the same large blocks. Given back, each costs a page fault for every 4 KB when it is
    taken again, up to half of the time of an update on a CPU.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        # Older ones refuse more than 32 MB. Where neither is accepted, nothing may be set: any other setting ends the
        # automatic one, and all blocks from 128 KB on would be returned.
        if libc.mallopt(M_MMAP_THRESHOLD, 2**30) or libc.mallopt(M_MMAP_THRESHOLD, 2**25):
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def give_back_large_blocks() -> None:
    """Tell glibc to return every block of at least 1 MB to the system as soon as it is freed; elsewhere do nothing.

    On its own it keeps ever larger blocks, up to 32 MB, and arrays of different sizes leave holes between them.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)


def give_back_freed_memory() -> bool:
    """Tell glibc to return all free memory to the system; elsewhere do nothing and return False."""
    if platform.libc_ver()[0] != "glibc":
        return False
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    return True


def keep_few_kernels(count: int = KERNELS_KEPT) -> None:
    """Tell oneDNN to keep the `count` kernels built last instead of a thousand; to be called before the first is built.

    oneDNN builds a kernel of half a megabyte for each new shape of a product in bfloat16, and batches bring ever new
    shapes. Kept kernels add up to gigabytes, scattered over all other memory, and slow updates down. Settings in the
    user's environment take precedence.
    """
    # oneDNN's own name, and the one of PyTorch's layer above it.
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(count))


def get_used_memory(device: "torch.device", root: Path = ROOT) -> int | None:
    """Bytes that this process holds in the memory of `device`, with what allocators keep; None if unknown."""
    if device.type == "cuda":
        import torch  # noqa: PLC0415 - loaded long ago, as there is such a device

        return torch.cuda.memory_reserved(device)
    return _read_size_in_bytes(root / "proc/self/status", "VmRSS") if device.type == "cpu" else None


def reset_peak_memory(device: "torch.device", root: Path = ROOT) -> None:
    """Reset the peak for `get_peak_memory`, if the system supports it."""
    if device.type == "cuda":
        import torch  # noqa: PLC0415 - see above

        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "cpu":
        with suppress(OSError):
            (root / "proc/self/clear_refs").write_text("5", encoding="ascii")


def get_peak_memory(device: "torch.device", root: Path = ROOT) -> int | None:
    """The peak number of bytes that this process has held there since `reset_peak_memory`; None if unknown."""
    if device.type == "cuda":
        import torch  # noqa: PLC0415 - loaded long ago, as there is such a device

        return torch.cuda.max_memory_reserved(device)
    return _read_size_in_bytes(root / "proc/self/status", "VmHWM") if device.type == "cpu" else None


def get_available_memory(device: "torch.device | None" = None, root: Path = ROOT) -> int | None:
    """Bytes that this process can still take in the memory of `device`, a processor unless given; None if unknown.

    On a CPU under Linux that is MemAvailable, or less if a control group of the process has a limit. It is needed
    because Linux overcommits memory and kills the process instead of failing the allocation.
    """
    if device is not None and device.type == "cuda":
        import torch  # noqa: PLC0415 - loaded long ago, as there is such a device

        return torch.cuda.mem_get_info(device)[0]
    is_cpu = device is None or device.type == "cpu"
    available = _read_size_in_bytes(root / "proc/meminfo", "MemAvailable") if is_cpu else None
    return None if available is None else min([available, *_list_free_group_memory(root)])


def get_available_addresses(device: "torch.device", root: Path = ROOT) -> int | None:
    """Bytes of virtual memory that this process may still allocate on a CPU; None without a limit (`ulimit -v`).

    Allocations beyond this limit fail. Memory cached by the allocator counts as used, so the value may be too low.
    """
    held = _read_size_in_bytes(root / "proc/self/status", "VmSize") if device.type == "cpu" else None
    if held is None:
        return None
    import resource  # noqa: PLC0415 - Windows has none, and no such file

    max_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if max_bytes == resource.RLIM_INFINITY else max(0, max_bytes - held)


def _list_free_group_memory(root: Path) -> list[int]:
    """Free bytes of each control group (version 1 or 2) that this process is in and that has a limit."""
    left = []
    for place, is_second in find_control_groups(root, "memory"):
        limit, usage, cache = (
            ("memory.max", "memory.current", "inactive_file")
            if is_second
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        max_bytes, used = _read_number(place / limit), _read_number(place / usage)
        if max_bytes is not None and used is not None:
            # Inactive file pages count as used, but can be reclaimed.
            pages = [line.split() for line in read_lines(place / "memory.stat") if line.startswith(f"{cache} ")]
            left.append(max(0, max_bytes - used + sum(int(number) for _, number in pages)))
    return left


def _read_size_in_bytes(path: Path, name: str) -> int | None:
    """The size, in bytes, on the line of `name` in a file of /proc, as in "VmRSS:  1956 kB"; None if there is none."""
    for line in read_lines(path):
        key, _, value = line.partition(":")
        if key == name:
            return 1024 * int(value.split()[0])
    return None


def _read_number(path: Path) -> int | None:
    """The number in a file; None for the word "max", and where there is no such file."""
    text = "".join(read_lines(path))
    return int(text) if text.isdecimal() else None
