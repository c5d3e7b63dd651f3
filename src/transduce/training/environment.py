"""What a run is computed by: versions, and the machine. Numbers and speed depend on both."""

import platform
from importlib.metadata import version
from pathlib import Path

import torch


def environment(device: torch.device, precision: str) -> dict[str, str]:
    """Versions of what decides the numbers, the processor or accelerator, and the arithmetic of training, by name."""
    return {
        "device": str(device),
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": str(torch.get_num_threads()),
        "precision": precision,
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("transduce", "torch", "numpy", "sentencepiece", "sacrebleu")},
    }


def _processor() -> str:
    """The name that Linux knows; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())
