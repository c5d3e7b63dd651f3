"""Transduce: the Transformer of "Attention Is All You Need" as real software.

    from transduce import Translator
    Translator.load("runs/mine").translate(["A small dog runs."])

Public names are imported on first use, so that `import transduce` is fast and loads no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.bundle import Bundle
    from transduce.config import RunConfig, TransformerConfig
    from transduce.errors import TransduceError
    from transduce.model import Transformer
    from transduce.training import train
    from transduce.translation import Translator, translate

__version__ = version("transduce")

_MODULES = {
    "Bundle": "transduce.bundle",
    "RunConfig": "transduce.config",
    "TransduceError": "transduce.errors",
    "Transformer": "transduce.model",
    "TransformerConfig": "transduce.config",
    "Translator": "transduce.translation",
    "train": "transduce.training",
    "translate": "transduce.translation",
}

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


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a public name may be anything
    if name not in _MODULES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
