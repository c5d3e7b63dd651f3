"""Bundles whose matrices are stored in int8, about a quarter of the size, for Transduce.

Transduce computes with the integers where `InferenceModel` supports the network, and otherwise with the rounded weights
in float32.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from transduce import __version__
from transduce.bundle import Bundle
from transduce.bundle.bundle import WEIGHTS, write_bundle
from transduce.bundle.weights import read_tensors
from transduce.interop.formats import NetworkRuntime, Runtime
from transduce.kernels.device import resolve_precision
from transduce.text import Tokenizer
from transduce.translation import PyTorchEngine
from transduce.translation.engines.networks import make_network

_PRECISION: Final = "int8"


class Int8BundleFormat:
    """`ExportFormat` of bundles in int8, in which every model can be stored.

    Matrices, embeddings included, are stored as integers of 8 bits and their scales; all other tensors stay float32.
    """

    precisions = (_PRECISION,)
    suffix = ""
    packages: tuple[str, ...] = ()

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        del bundle
        return []

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        del precision  # there is one
        write_bundle(path, bundle.load_model(), bundle.load_tokenizer(), bundle.description, precision=_PRECISION)

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:
        """Load the bundle in `path`, with its own tokenizer, to compute as `--precision int8` does."""
        bundle = Bundle.open(path)
        model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
        network = make_network(model, resolve_precision(_PRECISION, torch.device("cpu"), model.config.d_model))
        engine = PyTorchEngine(model, tokenizer.end_id, _PRECISION, network=network)
        return NetworkRuntime(f"Transduce {__version__}, {_PRECISION}", network, engine, tokenizer)

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        return read_tensors(path / WEIGHTS)


FORMAT = Int8BundleFormat()
