"""Where the model computes."""

import torch

from transduce.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first of cuda, mps and cpu that is there.

    Raises:
        ConfigError: torch does not know the name, or this machine has no such device.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, is_there in there.items() if is_there))
    available = ", ".join(kind for kind, is_there in there.items() if is_there)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device = {name!r}: must be auto, or one that this machine has: {available}") from None
    too_high = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if not there.get(device.type, False) or too_high:
        raise ConfigError(f"device = {name!r}: this machine has no such device; it has: {available}")
    return device
