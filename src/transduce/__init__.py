"""Transduce: the Transformer of "Attention Is All You Need" as real software.

    from transduce import Translator
    Translator.load("runs/mine").translate(["A small dog runs."])

Public names are imported on first use, so that `import transduce` is fast and loads no torch.
"""

from typing import TYPE_CHECKING, Any

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.bundle import Bundle
    from transduce.config import RunConfig, TransformerConfig
    from transduce.errors import TransduceError
    from transduce.model import Transformer
    from transduce.training import train
    from transduce.translation import Translator, translate

    __version__: str
else:
    _import_name = import_on_first_use(
        __name__,
        {
            "transduce.bundle": "Bundle",
            "transduce.config": "RunConfig TransformerConfig",
            "transduce.errors": "TransduceError",
            "transduce.model": "Transformer",
            "transduce.training": "train",
            "transduce.translation": "Translator translate",
        },
    )

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - a public name may have any type
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - importing it takes as long as loading a small model

            return version(__name__)
        return _import_name(name)


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
