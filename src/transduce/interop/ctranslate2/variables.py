"""The numbers in a CTranslate2 model file as float32, whatever they were rounded to, and a record of who was asked."""

from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import BundleError
from transduce.interop.ctranslate2.file import ModelFile

_SCALE = "_scale"


class Variables:
    """The variables of `file`, read from `path`, by the names that they have today.

    Of whole numbers, each row has the scale that it was multiplied by.
    """

    def __init__(self, file: ModelFile, path: Path) -> None:
        self._file = file
        self._path = path
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._place(name) is not None

    def _place(self, name: str) -> str | None:
        """The name in this file: before revision 5 both stacks shared their settings, and embeddings had no number."""
        places = [name, name.replace("embeddings_0/", "embeddings/")]
        if self._file.revision < 5:
            places.append(name.partition("/")[2])
        return next((place for place in places if place in self._file), None)

    def raw(self, name: str) -> Tensor:
        """The variable as it is.

        Raises:
            BundleError: there is none of this name.
        """
        place = self._place(name)
        if place is None:
            raise BundleError(
                f"{self._path}: has no variable {name!r}, which such a model needs: it is of another kind"
            )
        self._read.add(place)
        return self._file[place]

    def __getitem__(self, name: str) -> Tensor:
        """The variable in float32: exactly what CTranslate2 computes with in that precision.

        Raises:
            BundleError: there is none, or its scale is missing or does not fit.
        """
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
        """The variable as it is, which has rows and columns.

        Raises:
            BundleError: there is none, or it has none.
        """
        found = self.raw(name)
        if found.ndim != 2 or not found.numel():
            raise BundleError(f"{self._path}: {name!r} has the shape {list(found.shape)}, must be a matrix")
        return found

    def rows(self, name: str, num_rows: int) -> Tensor:
        """A matrix with `num_rows` rows of the width of the network, or a vector of so many numbers, in float32.

        Raises:
            BundleError: there is none, or it has another shape.
        """
        found = self[name]
        if found.shape not in {(num_rows,), (num_rows, self.d_model)}:
            raise BundleError(
                f"{self._path}: {name!r} has the shape {list(found.shape)}, must have a row of {self.d_model} numbers "
                f"for each of the {num_rows:,} tokens of the vocabulary"
            )
        return found

    @property
    def d_model(self) -> int:
        """The width of the network: that of its first normalisation.

        Raises:
            BundleError: it has none.
        """
        return self.raw("encoder/layer_0/self_attention/layer_norm/gamma").numel()

    def number(self, name: str, default: float) -> float:
        """A single number: a setting, or a switch that is 0 or 1.

        Raises:
            BundleError: it is more than one, or none.
        """
        if name not in self:
            return default
        value = self.raw(name)
        if value.numel() != 1 or not value.isfinite().all():
            raise BundleError(f"{self._path}: {name!r} has the shape {list(value.shape)}, must be one number")
        return float(value)

    def unread(self) -> list[str]:
        """Names of the variables that nobody has asked for, in order."""
        return sorted({*self._file.variables, *self._file.aliases} - self._read)
