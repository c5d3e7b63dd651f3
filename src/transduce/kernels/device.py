"""The devices of this machine: the available ones, the fastest types on them, and threads of one core each."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor

from transduce.errors import ConfigError
from transduce.kernels.hardware import (
    MIN_D_MODEL_OF_BFLOAT16,
    THREAD_COUNT_LOCK,
    Precision,
    TrainingPrecision,
    find_cpu_quota,
    find_requested_threads,
)
from transduce.kernels.linear import (
    MIN_WEIGHTS_OF_BFLOAT16,
    FrozenLinear,
    Int8Linear,
    MixedPrecisionLinear,
    PackedLinear,
    has_cpu_feature,
    has_packed_bfloat16,
    is_avx512_forbidden,
)


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first available of cuda, mps and cpu.

    For a CUDA device, CUBLAS_WORKSPACE_CONFIG is set too, unless the environment has it: cuBLAS then adds in the same
    order every time, which training needs. It takes effect only before the first matrix product. For the CPU, PyTorch's
    number of threads becomes that of the cores of this process's control group, unless the environment names one.

    Raises:
        ConfigError: torch does not support the name, or this machine has no such device.
    """
    is_present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, is_there in is_present.items() if is_there)
    available = ", ".join(kind for kind, is_there in is_present.items() if is_there)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device = {name!r}: must be auto, or one that this machine has: {available}") from None
    too_high = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if not is_present.get(device.type, False) or too_high:
        raise ConfigError(f"device = {name!r}: this machine has no such device; it has: {available}")
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if device.type == "cpu":
        _limit_threads()
    return device


@cache
def _limit_threads() -> None:
    """Limit PyTorch's threads to the cores that the control group of this process, such as a container, may use.

    PyTorch starts one for each core of the machine, and they would take each other's time. Done once, so that a number
    of threads that is set later stays.
    """
    quota = find_cpu_quota()
    if quota is not None and find_requested_threads() is None:
        with THREAD_COUNT_LOCK:
            torch.set_num_threads(min(quota, torch.get_num_threads()))


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16 by hardware: such a GPU, or a processor with AVX-512 BF16 or AMX."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has_instructions = device.type == "cpu" and (has_cpu_feature("avx512_bf16") or has_cpu_feature("amx_bf16"))
    return has_instructions and has_packed_bfloat16() and not is_avx512_forbidden()


COMPUTE_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,
}


@dataclass(frozen=True)
class ComputePrecision:
    """The types that a model computes in.

    Args:
        compute_dtype: type of all computations, except perhaps of large linear layers.
        is_mixed: whether linear layers with at least `MIN_WEIGHTS_OF_BFLOAT16` weights still compute in bfloat16.
        is_batch_invariant: whether the results for a sentence must be bit-identical in every batch, as of float32 and
            int8 on a processor where the user names them.
        is_int8: whether linear layers multiply 8-bit integers.
    """

    compute_dtype: torch.dtype
    is_mixed: bool = False
    is_batch_invariant: bool = False
    is_int8: bool = False

    def make_linear(self, weight: Tensor, bias: Tensor | None) -> FrozenLinear:
        """The fastest linear layer with these weights on their device."""
        if self.is_int8:
            return Int8Linear(weight, bias)
        has_operators = weight.device.type == "cpu" and has_packed_bfloat16()
        if has_operators and self.is_mixed and weight.numel() >= MIN_WEIGHTS_OF_BFLOAT16:
            return MixedPrecisionLinear(weight, bias)
        if has_operators and self.compute_dtype == torch.bfloat16:
            return PackedLinear(weight, bias, self.compute_dtype)
        return FrozenLinear(weight, bias, self.compute_dtype, is_batch_invariant=self.is_batch_invariant)


def resolve_precision(
    precision: Precision | TrainingPrecision, device: torch.device, d_model: int, *, is_few: bool = False
) -> ComputePrecision:
    """The types that `precision` stands for on a device, in training and for translation.

    If they are named, float32 and int8 on a CPU give a sentence the same result in every batch. `auto` does not ensure
    that, not even where it is float32. It is bfloat16 on a GPU that has it, or on a processor with AVX-512 BF16 or AMX
    if d_model is at least `MIN_D_MODEL_OF_BFLOAT16`; else float32.

    Args:
        precision: the user's setting.
        device: the device of the model.
        d_model: width of the model.
        is_few: whether only a few sentences are translated at once. On a processor, starting a small product in
            bfloat16 then takes longer than computing it in float32.
    """
    is_cpu = device.type == "cpu"
    if precision != "auto":
        is_int8, is_invariant = precision == "int8", is_cpu and precision in {"float32", "int8"}
        return ComputePrecision(COMPUTE_DTYPES[precision], is_batch_invariant=is_invariant, is_int8=is_int8)
    if not has_fast_bfloat16(device) or (is_cpu and d_model < MIN_D_MODEL_OF_BFLOAT16):
        return ComputePrecision(torch.float32)
    is_mixed = is_few and is_cpu
    return ComputePrecision(torch.float32 if is_mixed else torch.bfloat16, is_mixed=is_mixed)


_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")


def map_on_cores(function: Callable[[_TaskT], _ResultT], tasks: Sequence[_TaskT], num_threads: int) -> list[_ResultT]:
    """The result of `function` for each task, computed by `num_threads` threads; an exception cancels waiting tasks.

    PyTorch operators release Python's global lock while they compute.
    """
    return list(_get_executor(num_threads).map(function, tasks))


def make_single_core_executor(count: int) -> ThreadPoolExecutor:
    """An executor of `count` threads, for each of which PyTorch's number of threads is 1; others keep theirs.

    torch's thread count becomes thread-local on first read; setting it also changes the default for threads that have
    not read it yet. Each worker therefore sets and reads it here, before the caller's value is restored. Until then,
    no other thread may read the 1, which it would keep.
    """
    with THREAD_COUNT_LOCK:
        before = torch.get_num_threads()
        all_started = Barrier(count)
        executor = ThreadPoolExecutor(count, initializer=_use_one_core)
        for future in [executor.submit(all_started.wait) for _ in range(count)]:
            future.result()
        torch.set_num_threads(before)
    return executor


_get_executor = cache(make_single_core_executor)
if hasattr(os, "register_at_fork"):  # a forked process has the executors, but none of their threads
    os.register_at_fork(after_in_child=_get_executor.cache_clear)


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Within the block, operations of PyTorch that the calling thread starts are computed by one thread.

    With several threads, sums are added up in another order.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _use_one_core() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()
