"""Operations tuned for a processor, which know no models, files or settings; each has a plain reference and a test."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.kernels.device import find_device, has_fast_bfloat16
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.kernels.device": "find_device has_fast_bfloat16",
        },
    )

__all__ = ["find_device", "has_fast_bfloat16"]
