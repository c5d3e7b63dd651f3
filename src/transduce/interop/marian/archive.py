"""A model of Marian's as one file: arrays in a NumPy archive, and among them the settings, as bytes of YAML."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from transduce.errors import BundleError
from transduce.interop.marian.settings import MarianSettings

_SETTINGS = "special:model.yml"

_DAMAGE = (
    *(ValueError, KeyError, EOFError, AttributeError, TypeError, OverflowError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What NumPy raises for files of any content."""


class Archive(NamedTuple):
    """What such a file has.

    Args:
        settings: of the network.
        arrays: its weights by Marian's names, in float32.
        text: the settings as they stand there.
    """

    settings: MarianSettings
    arrays: dict[str, Tensor]
    text: str


def write_archive(path: Path, settings: str, arrays: Mapping[str, Tensor]) -> None:
    """Write `arrays`, and `settings`, which are YAML."""
    contents: dict[str, Any] = {name: np.ascontiguousarray(array.detach().numpy()) for name, array in arrays.items()}
    # Marian wants to find the end of the text marked.
    contents[_SETTINGS] = np.frombuffer(settings.encode() + b"\0", dtype=np.int8)
    np.savez(path, **contents)


def read_archive(path: Path) -> Archive:
    """What is in the file at `path`; pickles are refused.

    Raises:
        BundleError: it cannot be read, is no such file, or has arrays of another type.
    """
    with _opened(path) as file:
        text = _text(file, path)
        arrays = {name: file[name] for name in file.files if not name.startswith("special:")}
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float16):
            raise BundleError(f"{path}: {name} is of type {array.dtype}, must be float32 or float16")
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
    return Archive(_parsed(text, path), tensors, text)


def read_archive_settings(path: Path) -> MarianSettings:
    """The settings alone.

    Raises:
        BundleError: it cannot be read, or is no such file.
    """
    with _opened(path) as file:
        return _parsed(_text(file, path), path)


@contextmanager
def _opened(path: Path) -> Iterator[NpzFile]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            yield file
    except BundleError:
        raise
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        raise BundleError(f"{path}: is no archive of arrays: {error}; give a model of Marian (.npz)") from None


def _text(file: NpzFile, path: Path) -> str:
    if _SETTINGS not in file:
        raise BundleError(f"{path}: has no {_SETTINGS}; give a model of Marian, with its settings inside")
    try:
        return file[_SETTINGS].tobytes().partition(b"\0")[0].decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: {_SETTINGS} is no text: {error}; use an undamaged copy") from None


def _parsed(text: str, path: Path) -> MarianSettings:
    return MarianSettings.parsed(text, f"{path}, {_SETTINGS}")
