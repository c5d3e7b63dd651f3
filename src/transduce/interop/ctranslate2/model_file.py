"""The file `model.bin` of a CTranslate2 folder: variables by name, checked before they are used.

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
"""Types of numbers, by their code in the file."""

_TYPES_BEFORE_4 = {4: torch.float32, 2: torch.int16, 1: torch.int8}
"""Types of numbers in older files, by the number of bytes."""

_MOST_AXES = 8


@dataclass(frozen=True)
class ModelFile:
    """The content of `model.bin`.

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
    """Read the file at `path`."""
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
    """Reads values from `data` one after the other, and never beyond its end."""

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
        if num_bytes > self.left:
            self.refuse(f"ends after {len(self._data):,} bytes, where {num_bytes - self.left:,} more should follow")
        place = slice(self._place, self._place + num_bytes)
        self._place = place.stop
        return place


_SCALE = "_scale"


class Variables:
    """The variables of a model file in float32, by their current names, with a record of which were read.

    Integers are divided by the scale of their row.
    """

    def __init__(self, file: ModelFile, path: Path) -> None:
        self._file = file
        self._path = path
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._place(name) is not None

    def _place(self, name: str) -> str | None:
        """The name in this file; before revision 5, both stacks shared their settings, and embeddings had no number."""
        places = [name, name.replace("embeddings_0/", "embeddings/")]
        if self._file.revision < 5:
            places.append(name.partition("/")[2])
        return next((place for place in places if place in self._file), None)

    def raw(self, name: str) -> Tensor:
        """The variable in its own type."""
        place = self._place(name)
        if place is None:
            raise BundleError(
                f"{self._path}: has no variable {name!r}, which such a model needs: it is of another kind"
            )
        self._read.add(place)
        return self._file[place]

    def __getitem__(self, name: str) -> Tensor:
        """The variable in float32: the numbers that CTranslate2 computes with in that precision."""
        numbers = self.raw(name)
        if numbers.is_floating_point():
            return numbers.float()
        scale = self.raw(name + _SCALE)
        if scale.dtype != torch.float32 or scale.ndim > 1 or (scale.ndim and len(scale) != len(numbers)):
            raise BundleError(
                f"{self._path}: {name + _SCALE!r} has the shape {list(scale.shape)}, which scales no rows"
            )
        return numbers.float() / scale.view(-1, *(1,) * (numbers.ndim - 1))

    def matrix(self, name: str) -> Tensor:
        """A matrix in its own type."""
        found = self.raw(name)
        if found.ndim != 2 or not found.numel():
            raise BundleError(f"{self._path}: {name!r} has the shape {list(found.shape)}, must be a matrix")
        return found

    def rows(self, name: str, num_rows: int) -> Tensor:
        """A matrix with `num_rows` rows of the width of the network, or a vector of so many numbers, in float32."""
        found = self[name]
        if found.shape not in {(num_rows,), (num_rows, self.d_model)}:
            raise BundleError(
                f"{self._path}: {name!r} has the shape {list(found.shape)}, must have a row of {self.d_model} numbers "
                f"for each of the {num_rows:,} tokens of the vocabulary"
            )
        return found

    @property
    def d_model(self) -> int:
        """The width of the network, by its first normalisation."""
        return self.raw("encoder/layer_0/self_attention/layer_norm/gamma").numel()

    def number(self, name: str, default: float) -> float:
        """A single number: a setting, or a switch that is 0 or 1."""
        if name not in self:
            return default
        value = self.raw(name)
        if value.numel() != 1 or not value.isfinite().all():
            raise BundleError(f"{self._path}: {name!r} has the shape {list(value.shape)}, must be one number")
        return float(value)

    def unread(self) -> list[str]:
        """Names of the variables that were not read, sorted."""
        return sorted({*self._file.variables, *self._file.aliases} - self._read)
