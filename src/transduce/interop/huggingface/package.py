"""The package `transformers`, which not everybody has installed, and its noise."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from transduce.errors import MissingExtraError

Foreign = Any
"""An object of Transformers."""


def import_transformers(purpose: str) -> ModuleType:
    """The package; `purpose` says what needs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import transformers  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtraError("transformers", "huggingface", purpose) from None
    package: ModuleType = transformers
    return package


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Within, Transformers draws no progress bars and logs errors alone: the caller checks what it would report."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Marian's tokenizer wants to have sacremoses for a method that it does not call.
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
