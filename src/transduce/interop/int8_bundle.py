"""Bundles whose matrices are stored in int8, a quarter of the size, for Transduce, which computes with the integers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from transduce import __version__
from transduce.bundle import Bundle
from transduce.bundle.bundle import WEIGHTS, write_bundle
from transduce.bundle.weights import read_tensors
from transduce.config import SearchConfig
from transduce.kernels.device import resolve_precision
from transduce.text import Tokenizer
from transduce.translation import NativeEngine, batch_by_length
from transduce.translation.engines.inference_model import make_network

_PRECISION: Final = "int8"
_BATCH_TOKENS = 4096


class Int8Runtime:
    """The engine that translates with `--precision int8`, as `Runtime`, with the model of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self.name = f"Transduce {__version__}, {_PRECISION}"
        self._model, self._tokenizer = bundle.load_model(), bundle.load_tokenizer()
        precision = resolve_precision(_PRECISION, torch.device("cpu"), self._model.config.d_model)
        self._network = make_network(self._model, precision)
        self._engine = NativeEngine(self._model, self._tokenizer.end_id, _PRECISION, network=self._network)

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        return [self._tokenizer.as_source(ids) for ids in self._tokenizer.encode_all(texts)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        return [self._tokenizer.decode(row) for row in ids]

    def score_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Scores of one token after the other, as the search computes them."""
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        for indices in batch_by_length(lengths, _BATCH_TOKENS):
            scores = self._score([sources[index] for index in indices], [targets[index] for index in indices])
            for index, row in zip(indices, scores, strict=True):
                found[index] = row[: len(targets[index])]
        return found

    @torch.inference_mode()
    def _score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        pad = self._tokenizer.pad_id
        source_ids, target_ids = _pad(sources, pad), _pad(targets, pad)
        last_ids, state = torch.full((len(targets), 1), pad), self._network.start(source_ids, source_ids != pad)
        scores = []
        for ids in target_ids.T:
            log_probabilities, state = self._network.step(last_ids, state)
            scores.append(log_probabilities[:, 0].gather(1, ids[:, None])[:, 0])
            last_ids = ids[:, None]
        rows: list[list[float]] = torch.stack(scores, dim=1).tolist()
        return rows

    def translate_greedily(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """Greedy translations; one that reaches its greatest length is broken off there, without `</s>`."""
        extra = max((limit - len(source) for source, limit in zip(sources, max_lengths, strict=True)), default=0)
        found = self._engine.search(sources, SearchConfig(beam=1, max_extra_length=max(extra, 0)))
        # Greedy search does not look ahead: what a smaller limit leaves is the beginning.
        return [best.ids[:limit] for (best,), limit in zip(found, max_lengths, strict=True)]


def _pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows])


class Int8BundleFormat:
    """`ExportFormat` of bundles in int8. Every model can be stored so; what is no matrix of a layer stays float32."""

    precisions = (_PRECISION,)
    suffix = ""
    packages: tuple[str, ...] = ()

    def obstacles(self, bundle: Bundle) -> list[str]:
        del bundle
        return []

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        del precision  # there is one
        write_bundle(path, bundle.load_model(), bundle.load_tokenizer(), bundle.description, precision=_PRECISION)

    def load(self, path: Path, tokenizer: Tokenizer) -> Int8Runtime:
        del tokenizer  # the bundle has its own
        return Int8Runtime(Bundle.open(path))

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        return read_tensors(path / WEIGHTS)


FORMAT = Int8BundleFormat()
