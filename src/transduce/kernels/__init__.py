"""Operations tuned for a processor, which know no models, files or settings; each has a plain reference and a test."""

from transduce.kernels.device import find_device, has_fast_bfloat16

__all__ = ["find_device", "has_fast_bfloat16"]
