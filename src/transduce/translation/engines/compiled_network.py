"""`CompiledModel` as a network whose inputs and outputs are tensors, for searches that PyTorch takes part in."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from transduce.bundle import model_tensors
from transduce.kernels.device import ComputePrecision
from transduce.kernels.native.decoding import DecoderCache
from transduce.kernels.native.library import Library, find_library
from transduce.model import Transformer
from transduce.search.beam import LastIds, LogProbs
from transduce.translation.engines.compiled_engine import CompiledModel
from transduce.translation.engines.engine import has_inference_model
from transduce.translation.engines.inference_model import Network, SourceIds, SourceMask, make_torch_network


def make_network(model: Transformer, precision: ComputePrecision) -> Network[Any]:
    """The network of `model` with its weights as they are now, computed in this precision.

    In float32 and int8 on a processor it is `CompiledNetwork`, where the library of compiled kernels is there; else see
    `make_torch_network`.

    Raises:
        ConfigError: `TRANSDUCE_KERNELS` names no level of instruction sets, or one that is not there.
    """
    weight = model.source_embedding.weight
    is_float32 = weight.dtype == precision.compute_dtype == torch.float32 and not precision.is_mixed
    if weight.device.type == "cpu" and is_float32 and has_inference_model(model.config):
        library = find_library()
        if library is not None:
            return CompiledNetwork.from_model(model, library, is_int8=precision.is_int8)
    return make_torch_network(model, precision)


class CompiledState:
    """State of the compiled decoder for a batch; selecting and stepping modify it in place and return it.

    Args:
        cache: keys and values.
    """

    def __init__(self, cache: DecoderCache) -> None:
        self.cache = cache

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "CompiledState":
        """The state for the selected sentences and hypotheses; see `search.SearchState`."""
        self.cache.select(None if sentences is None else sentences.tolist(), parents.tolist())
        return self


class CompiledNetwork:
    """A `CompiledModel` as a `Network`."""

    def __init__(self, model: CompiledModel) -> None:
        self.model = model

    @classmethod
    def from_model(cls, model: Transformer, library: Library, *, is_int8: bool = False) -> "CompiledNetwork":
        """The network of a model in float32 on a processor, whose embeddings it shares; see `CompiledModel`."""
        weights = {name: tensor.detach().numpy() for name, tensor in model_tensors(model).items()}
        return cls(CompiledModel(model.config, weights, library, is_int8=is_int8))

    def start(self, source_ids: SourceIds, source_mask: SourceMask) -> CompiledState:
        """Read the source; see `Network`."""
        mask = source_mask.numpy()
        _, places = mask.nonzero()
        ids, lengths = source_ids.numpy()[mask], mask.sum(axis=1)
        return CompiledState(self.model.read_source(ids, places, lengths, mask.shape[1]))

    @torch.no_grad()
    def step(self, last_ids: LastIds, state: CompiledState) -> tuple[LogProbs, CompiledState]:
        """One step of the search; see `Network`."""
        log_probs = torch.empty(*last_ids.shape, self.model.vocabulary)
        self.model.step(last_ids.flatten().tolist(), state.cache, log_probs.data_ptr())
        return log_probs, state
