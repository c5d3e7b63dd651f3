"""The devices of this machine, and whether they compute in bfloat16."""

import os

import torch

from transduce.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first of cuda, mps and cpu that is there.

    On a GPU, training needs matrix products whose sums have the same order every time. A variable in the environment,
    read when the first product is computed, allows that; it is set here.

    Raises:
        ConfigError: torch does not know the name, or this machine has no such device.
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
    return device


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16 by hardware: such a GPU, or a processor with AVX-512 BF16 or AMX."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # PyTorch before 2.10 cannot say what the processor has.
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)() if device.type == "cpu" else {}
    has_instructions = capabilities.get("avx512_bf16", False) or capabilities.get("amx_bf16", False)
    return has_instructions and has_packed_bfloat16()


def has_packed_bfloat16() -> bool:
    """Whether oneDNN multiplies in bfloat16 here: not where ONEDNN_MAX_CPU_ISA forbids it the instructions."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return is_supported is None or bool(is_supported())
