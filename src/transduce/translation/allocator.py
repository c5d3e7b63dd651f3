"""What of its memory a process keeps between updates: freed blocks, unless told otherwise, but not every kernel."""

import ctypes
import os
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's names for: how much free memory it gives back to the system, and what it asks the system for singly."""

KERNELS_KEPT = 64
"""More than one update has shapes, so that the layers of a model share them."""

KERNELS_OF_TRANSLATION = 128
"""Twice as many are a tenth faster with the same lines again and again; with ever new lines they are not, and a process
grows to over 1 GB in 30,000 lines."""


def keep_freed_memory() -> None:
    """Tell glibc to give no block under 1 GB back to the system; elsewhere do nothing.

    Every update frees and takes the same large blocks. Given back, each costs a page fault for every 4 KB when it is
    taken again, up to half of the time of an update on a CPU.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def keep_few_kernels(count: int = KERNELS_KEPT) -> None:
    """Have oneDNN keep the kernels that it built last, and not a thousand of them; for a process that has used none.

    It builds one for each shape of a product of bfloat16, of half a megabyte, and batches come in ever new shapes.
    Kept, they add up to gigabytes, scattered over all other memory, and updates take longer. What the user's
    environment says stays.
    """
    # oneDNN's own name, and the one of PyTorch's layer above it.
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(count))


def give_back_freed_memory() -> bool:
    """Have glibc give all free memory back to the system; False elsewhere, where nothing happens."""
    if platform.libc_ver()[0] != "glibc":
        return False
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    return True
