"""Engines that search with a network whose inputs and outputs are tensors: the model itself, or another program's."""

import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.kernels.device import map_on_cores, resolve_precision
from transduce.kernels.hardware import Precision
from transduce.model import EncoderDecoder
from transduce.search import Constraints, Hypothesis, Sampling, SearchState, SearchTask, beam_search, sample_search
from transduce.translation.engines.compiled_engine import CompiledEngine
from transduce.translation.engines.engine import (
    SMALL_BATCH_SENTENCES,
    BatchEngine,
    BatchSearch,
    Engine,
    Sources,
    count_token_bytes,
    make_logits_processor,
)
from transduce.translation.engines.networks import (
    CompiledNetwork,
    Network,
    evaluation_mode,
    make_ensemble,
    make_network,
)

_PROCESSOR = torch.device("cpu")

LENGTH_MULTIPLE = 4
"""Sources of a large batch are padded to a multiple of this many tokens."""


class NetworkEngine(BatchEngine):
    """An engine that searches with any `Network`, computed by PyTorch or by another program; see `BatchEngine`.

    Args:
        network: computes the probabilities; its methods may be called by several threads at a time.
        end_id: `</s>`.
        vocabulary: number of token ids; the last is `<pad>`.
        max_length: maximum number of tokens of a source or a target, `</s>` included.
        device: the device of the network's inputs and outputs.
        for_few: another network for up to `SMALL_BATCH_SENTENCES` sentences; the same unless given.
        count_token_bytes: see `BatchEngine`; unknown unless given.
    """

    _map_on_threads = staticmethod(map_on_cores)

    def __init__(
        self,
        network: Network[Any],
        end_id: int,
        vocabulary: int,
        *,
        max_length: int = sys.maxsize,
        device: torch.device = _PROCESSOR,
        for_few: Network[Any] | None = None,
        count_token_bytes: Callable[[int], int] = lambda _: 0,
    ) -> None:
        super().__init__(end_id, vocabulary, max_length, count_token_bytes)
        self.device: torch.device = device
        self._for_many, self._for_few = network, for_few or network

    def search(
        self,
        sources: Sources,
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses found by beam search; see `Engine`."""
        network, logits_processor = self._choose_network(sources), make_logits_processor(config)

        def search(_: Sources, state: SearchState, task: SearchTask) -> list[list[Hypothesis]]:
            return beam_search(
                network.step,
                state,
                task,
                beam=config.beam,
                alpha=config.length_penalty,
                num_best=num_best,
                logits_processor=logits_processor,
                device=self.device,
            )

        search_batch, max_hypotheses = self._start_with(network, search), None
        if isinstance(network, CompiledNetwork) and constraints is None and logits_processor is None:
            search_batch = partial(
                network.model.search, beam=config.beam, alpha=config.length_penalty, num_best=num_best
            )
            max_hypotheses = network.model.max_hypotheses
        width = ("beam", config.beam)
        with self._enter_inference():
            return self._search_batches(sources, config, search_batch, width, constraints, max_hypotheses)

    def sample(
        self, sources: Sources, config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """Hypotheses drawn at random; see `Engine`."""
        network = self._choose_network(sources)

        def search(batch: Sources, state: SearchState, task: SearchTask) -> list[list[Hypothesis]]:
            return sample_search(
                network.step,
                state,
                task,
                num_samples=num_samples,
                seeds=[(seed, zlib.crc32(repr(list(source)).encode())) for source in batch],
                sampling=sampling,
                alpha=config.length_penalty,
                device=self.device,
            )

        with self._enter_inference():
            return self._search_batches(sources, config, self._start_with(network, search), ("samples", num_samples))

    def _choose_network(self, sources: Sources) -> Network[Any]:
        return self._for_few if len(sources) <= SMALL_BATCH_SENTENCES else self._for_many

    def _start_with(
        self, network: Network[Any], search: Callable[[Sources, SearchState, SearchTask], list[list[Hypothesis]]]
    ) -> BatchSearch:
        """The search of a batch, from the state after the network has read the sources."""

        @torch.inference_mode()
        def search_batch(batch: Sources, task: SearchTask) -> list[list[Hypothesis]]:
            source_ids = self._pad(batch)
            return search(batch, network.start(source_ids, source_ids != self.pad_id), task)

        return search_batch

    def _enter_inference(self) -> AbstractContextManager[None]:
        """Make the network ready to be searched, until the context is left."""
        return nullcontext()

    def _pad(self, sources: Sources) -> Tensor:
        longest = max(map(len, sources))
        if len(sources) > SMALL_BATCH_SENTENCES:  # few different lengths need few kernels
            longest = max(longest, min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, self._max_length))
        rows = [[*source, *[self.pad_id] * (longest - len(source))] for source in sources]
        return torch.tensor(rows, device=self.device)


class PyTorchEngine(NetworkEngine):
    """The engine that computes with the model in this process, on its device; a model with new weights needs a new one.

    Several models with the same vocabulary are an ensemble: their probabilities are averaged.

    Args:
        model: the model.
        end_id: `</s>`.
        precision: see `resolve_precision`.
        ensemble: more models.
        network: a network of `model` in this precision, if there is one already.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        end_id: int,
        precision: Precision = "float32",
        ensemble: Sequence[EncoderDecoder] = (),
        *,
        network: Network[Any] | None = None,
    ) -> None:
        self.model = model
        self.models = (model, *ensemble)
        device = next(model.parameters()).device
        few, many = (
            resolve_precision(precision, device, model.config.d_model, is_few=is_few) for is_few in (True, False)
        )
        for_many = network or make_ensemble([make_network(one, many) for one in self.models])
        is_same = network is not None or few == many
        super().__init__(
            for_many,
            end_id,
            model.config.vocabulary,
            max_length=min(one.max_length for one in self.models),
            device=device,
            for_few=for_many if is_same else make_ensemble([make_network(one, few) for one in self.models]),
            count_token_bytes=lambda width: sum(count_token_bytes(one.config, width) for one in self.models),
        )

    def _enter_inference(self) -> AbstractContextManager[None]:
        return evaluation_mode(self.models)


def find_pytorch_engine(engine: Engine) -> PyTorchEngine | None:
    """The engine with the PyTorch model that `engine` is or loads when it is asked for; None for any other engine."""
    own = engine.pytorch_engine if isinstance(engine, CompiledEngine) else engine
    return own if isinstance(own, PyTorchEngine) else None
