"""The file `model.bin` of a CTranslate2 folder: variables by name. Nothing in it is believed before it is checked.

Little-endian, as `Model::load` in CTranslate2's src/models/model.cc reads it:

    version of the file (4 bytes), kind of model (a text), revision of the kind (4)
    number of variables (4), and of each: name (a text), number of axes (1), their lengths (4 each), type (1),
        size in bytes (4), numbers
    number of aliases (4), and of each: its name (a text), the name of the variable that it stands for (a text)

A text is its length in bytes (2), its bytes, and a zero that counts in the length.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from transduce.errors import BundleError

MODEL_FILE = "model.bin"
FILE_VERSIONS = (3, 4, 5, 6)
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
"""By the number that the file gives them."""

_TYPES_BEFORE_4 = {4: torch.float32, 2: torch.int16, 1: torch.int8}
"""By the number of bytes, which is all that older files tell."""

_MOST_AXES = 8


@dataclass(frozen=True)
class ModelFile:
    """What `model.bin` holds.

    Args:
        kind: the specification, as in "TransformerSpec".
        revision: its version.
        variables: numbers by name, as in "encoder/layer_0/ffn/linear_0/weight"; single numbers have no axes.
        aliases: other names of variables, each with the name of its variable.
    """

    kind: str
    revision: int
    variables: Mapping[str, Tensor]
    aliases: Mapping[str, str]

    def __contains__(self, name: object) -> bool:
        return name in self.variables or name in self.aliases

    def __getitem__(self, name: str) -> Tensor:
        return self.variables[self.aliases.get(name, name)]


def read_model_file(path: Path) -> ModelFile:
    """The content of the file at `path`.

    Raises:
        BundleError: it cannot be read, is no such file, is damaged, or is newer than what is known here.
    """
    try:
        reader = _Reader(path.read_bytes(), path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    version = reader.number(4)
    if version not in FILE_VERSIONS:
        reader.refuse(f"has file version {version}, known are {FILE_VERSIONS[0]} to {FILE_VERSIONS[-1]}")
    kind, revision = reader.text(), reader.number(4)
    variables: dict[str, Tensor] = {}
    for _ in range(reader.number(4)):
        name = reader.text()
        if name in variables:
            reader.refuse(f"has the variable {name!r} twice")
        variables[name] = reader.tensor(name, version)
    aliases: dict[str, str] = {}
    for _ in range(reader.number(4)):
        alias, name = reader.text(), reader.text()
        name = aliases.get(name, name)
        if name not in variables:
            reader.refuse(f"says that {alias!r} is {name!r}, which it does not have")
        if alias in variables or alias in aliases:
            reader.refuse(f"has the variable {alias!r} twice")
        aliases[alias] = name
        if f"{name}_scale" in variables:  # of quantised numbers; the alias stands for both
            aliases.setdefault(f"{alias}_scale", f"{name}_scale")
    if reader.left:
        reader.refuse(f"goes on for {reader.left:,} bytes behind its end")
    return ModelFile(kind, revision, variables, aliases)


class _Reader:
    """Takes one thing after the other from the front of `data`, and never more than is there."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._data = data
        self._path = path
        self._place = 0

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return len(self._data) - self._place

    def number(self, num_bytes: int) -> int:
        """The next bytes as a number that is not negative."""
        return int.from_bytes(self._data[self._take(num_bytes)], "little")

    def text(self) -> str:
        """The next text."""
        raw = self._data[self._take(self.number(2))]
        try:
            text = raw.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        if not text or not raw.endswith(b"\0") or not text.isprintable():
            self.refuse(f"has {raw[:40]!r} where a name should stand")
        return text

    def tensor(self, name: str, version: int) -> Tensor:
        """The next variable, whose `name` has been read."""
        num_axes = self.number(1)
        if num_axes > _MOST_AXES:
            self.refuse(f"{name!r} has {num_axes} axes")
        shape = struct.unpack(f"<{num_axes}I", self._data[self._take(4 * num_axes)])
        if 0 in shape:
            self.refuse(f"{name!r} has the shape {list(shape)}, with nothing in it")
        code = self.number(1)
        if version < 4:
            kind = _TYPES_BEFORE_4.get(code)
            num_bytes = self.number(4) * code
        else:
            kind = TYPES[code] if code < len(TYPES) else None
            num_bytes = self.number(4)
        if kind is None:
            self.refuse(f"{name!r} has the unknown type {code}")
        if num_bytes != prod(shape) * kind.itemsize:
            self.refuse(
                f"{name!r} has {num_bytes:,} bytes, its shape {list(shape)} needs {prod(shape) * kind.itemsize:,}"
            )
        numbers = bytearray(self._data[self._take(num_bytes)])
        return torch.frombuffer(numbers, dtype=kind).view(shape)

    def refuse(self, finding: str) -> NoReturn:
        """Say what is wrong."""
        raise BundleError(
            f"{self._path}: {finding}: it is no model of CTranslate2, or is damaged; use an undamaged copy"
        )

    def _take(self, num_bytes: int) -> slice:
        """Where the next `num_bytes` bytes are."""
        if num_bytes > self.left:
            self.refuse(f"ends after {len(self._data):,} bytes, where {num_bytes - self.left:,} more should follow")
        place = slice(self._place, self._place + num_bytes)
        self._place = place.stop
        return place
