"""Transduce: the Transformer of "Attention Is All You Need" as real software.

    from transduce import Translator
    Translator.load("runs/mine").translate(["A small dog runs."])

Public names are imported on first use, so that `import transduce` is fast and loads no torch.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.bundle import Bundle
    from transduce.config import RunConfig, TransformerConfig
    from transduce.errors import TransduceError
    from transduce.model import Transformer
    from transduce.training import train
    from transduce.translation import Translator, translate
    from transduce.version import __version__ as __version__
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.bundle": "Bundle",
            "transduce.config": "RunConfig TransformerConfig",
            "transduce.errors": "TransduceError",
            "transduce.model": "Transformer",
            "transduce.training": "train",
            "transduce.translation": "Translator translate",
            "transduce.version": "__version__",
        },
    )

__all__ = [
    "Bundle",
    "RunConfig",
    "TransduceError",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "train",
    "translate",
]
