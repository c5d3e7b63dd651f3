"""Our own search on ONNX Runtime: every option of it works with an exported folder as with a bundle."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.interop.onnx.sessions import Arrays, OnnxModel
from transduce.translation import NetworkEngine


def load(path: Path) -> NetworkEngine:
    """The engine of what `transduce export --to onnx` has written to `path`; PyTorch computes nothing of the network.

    As many batches are under way as PyTorch has threads, each on one of them.

    Raises:
        BundleError: a file is missing or damaged, or the folder is something else.
        MissingExtraError: ONNX Runtime is not installed.
    """
    model = OnnxModel(path)
    settings = model.settings
    return NetworkEngine(OnnxNetwork(model), settings.end_id, settings.model.vocabulary, longest=model.longest)


@dataclass(frozen=True)
class _State:
    """What the step needs: the memory of each sentence, and the past of each hypothesis, `width` for each sentence."""

    memory: Arrays
    past: Arrays
    width: int

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_State":
        """See `search.SearchState`."""
        chosen = torch.arange(len(parents)) if sentences is None else sentences
        rows = (chosen[:, None] * self.width + parents).flatten().numpy()
        memory = self.memory if sentences is None else _rows(self.memory, sentences.numpy())
        return _State(memory, _rows(self.past, rows), parents.size(1))


class OnnxNetwork:
    """See `translation.Network`."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _State:
        """See `Network`; of what is no real token, the graph knows by itself: it is `<pad>`."""
        del source_mask
        return _State(self._model.read(source_ids.numpy()), self._model.no_past(len(source_ids)), 1)

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _State
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _State]:
        """See `Network`."""
        log_probs, past = self._model.step(last_ids.flatten().numpy(), state.memory, state.past)
        return torch.from_numpy(log_probs).view(*last_ids.shape, -1), _State(state.memory, past, last_ids.size(1))


def _rows(arrays: Arrays, rows: Int[np.ndarray, " chosen"]) -> Arrays:
    return {name: array.take(rows, axis=0) for name, array in arrays.items()}
