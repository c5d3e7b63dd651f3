"""An exported ONNX folder in ONNX Runtime, on the CPU."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from transduce.errors import BundleError, UserError
from transduce.interop.onnx.network import LAST_IDS, LOG_PROBABILITIES, SOURCE_IDS, cache_names
from transduce.interop.onnx.package import import_onnxruntime
from transduce.interop.onnx.settings import read_settings

Arrays = Mapping[str, NDArray[Any]]
"""By the names that they have in the graphs."""


class OnnxModel:
    """Both graphs, each computing on one thread; several threads may call them at a time.

    Args:
        folder: what `transduce export --to onnx` has written.

    Raises:
        BundleError: a file is missing or damaged, or the folder is something else.
        MissingExtraError: ONNX Runtime is not installed.
    """

    def __init__(self, folder: Path) -> None:
        onnxruntime = import_onnxruntime("running a model in ONNX Runtime")
        self.runtime = f"ONNX Runtime {onnxruntime.__version__}"
        self.settings = read_settings(folder)
        self.longest = self.settings.max_positions or sys.maxsize
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False  # it would remember something for every new length
        self._encoder, self._decoder_step = (
            _session(onnxruntime, folder / graph.file, options)
            for graph in (self.settings.encoder, self.settings.decoder_step)
        )
        num_layers = self.settings.model.num_decoder_layers
        past, present = (cache_names(kind, num_layers) for kind in ("past", "present"))
        self._past_of_present = {
            after: before
            for pair, grown in zip(past, present, strict=True)
            for before, after in zip(pair, grown, strict=True)
        }

    def read(self, source_ids: Int64[np.ndarray, "sentences source"]) -> Arrays:
        """What the decoder needs of the source: its mask, and keys and values of the memory.

        Raises:
            UserError: it is longer than the model's learned positions.
        """
        self._check_length(source_ids.shape[1])
        outputs = self._encoder.run(None, {SOURCE_IDS: source_ids})
        return dict(zip(self.settings.encoder.outputs, outputs, strict=True))

    def no_past(self, rows: int) -> Arrays:
        """Keys and values of targets without a token."""
        model = self.settings.model
        return {
            name: np.zeros((rows, model.num_heads, 0, width), np.float32)
            for pair in cache_names("past", model.num_decoder_layers)
            for name, width in zip(pair, (model.d_k, model.d_v), strict=True)
        }

    def step(
        self, last_ids: Int64[np.ndarray, " rows"], memory: Arrays, past: Arrays
    ) -> tuple[Float[np.ndarray, "rows vocabulary"], Arrays]:
        """Log-probabilities of the next ids, and the past with `last_ids`.

        Raises:
            UserError: the target becomes longer than the model's learned positions.
        """
        self._check_length(next(iter(past.values())).shape[2] + 1)
        outputs = self._decoder_step.run(None, {LAST_IDS: last_ids, **memory, **past})
        found = dict(zip(self.settings.decoder_step.outputs, outputs, strict=True))
        return found[LOG_PROBABILITIES], {before: found[after] for after, before in self._past_of_present.items()}

    def _check_length(self, length: int) -> None:
        if length > self.longest:
            raise UserError(
                f"a sentence reaches position {length}; this model has learned positions up to {self.longest} "
                f"(model.max_positions): split the sentence"
            )


def _session(onnxruntime: Any, path: Path, options: Any) -> Any:  # noqa: ANN401 - of an optional package without types
    if not path.is_file():
        raise BundleError(f"{path}: is missing; give a folder that transduce export --to onnx has written")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common parent
        raise BundleError(f"{path}: ONNX Runtime cannot read it: {error}; use an undamaged copy") from error
