"""Options that several commands share: what computes translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cyclopts import Parameter

from transduce.cli.console import say
from transduce.interop import NATIVE, load_translator
from transduce.translation import Translator


@Parameter(name="*")
@dataclass(frozen=True)
class Computation:
    """What computes.

    Args:
        engine: native, or that of another program, for which the model is a folder that `transduce export` has written;
            a bundle is exported to it first.
        precision: of the arithmetic. Native: float32 is exact and gives the same translation in every batch; auto is
            what is fastest here, bfloat16 where the machine has it in hardware. Unless given, `translate` takes auto,
            and what measures or serves float32. Other engines: that of the exported folder, or what a bundle is
            exported in, float32 unless given.
        device: cpu, cuda, mps or auto.
    """

    engine: Literal["native", "ctranslate2", "onnx"] = "native"
    precision: Literal["auto", "float32", "bfloat16", "float16", "int8", "int16"] | None = None
    device: str = "auto"

    def load(self, model: Path, usual: str = "float32", ensemble: Sequence[Path] = ()) -> Translator:
        """The translator of a model, and of an ensemble with it; see `load_translator`."""
        return load_translator(
            model, self.engine, device=self.device, precision=self.settled(usual), ensemble=ensemble, report=say
        )

    def settled(self, usual: str = "float32") -> str:
        """The precision that is given, or else the `usual` one of the native engine."""
        return self.precision or (usual if self.engine == NATIVE else "auto")
