"""The engine that translates with compiled kernels alone, and loads PyTorch when it is asked for more."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from transduce.config import SearchConfig
from transduce.kernels.processor import count_threads, map_on_threads
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.translation.engines.compiled_model import CompiledModel
from transduce.translation.engines.engine import (
    BatchEngine,
    Engine,
    Sources,
    count_token_bytes,
    make_logits_processor,
)

if TYPE_CHECKING:
    from transduce.model import Transformer


@runtime_checkable
class ModelEngine(Engine, Protocol):
    """An engine that computes with a model of PyTorch."""

    @property
    def model(self) -> "Transformer":
        """The model."""
        ...


class CompiledEngine(BatchEngine):
    """The engine of a `CompiledModel`. Beam search alone needs no PyTorch; all else is passed on to `native`.

    Args:
        model: the model.
        end_id: `</s>`.
        load_native: makes the engine of the same model and precision that can do everything; called at most once.
    """

    def __init__(self, model: CompiledModel, end_id: int, load_native: Callable[[], ModelEngine]) -> None:
        config = model.config
        super().__init__(end_id, config.vocabulary, model.longest, partial(count_token_bytes, config))
        self._model = model
        self._load_native = load_native
        self._native: ModelEngine | None = None
        self._is_loading = Lock()

    @property
    def native(self) -> ModelEngine:
        """The engine with the model of PyTorch, which is loaded when it is first asked for."""
        with self._is_loading:
            if self._native is None:
                self._native = self._load_native()
                del self._load_native  # and with it the weights that it holds
            return self._native

    @property
    def model(self) -> "Transformer":
        """The model of PyTorch; see `native`."""
        return self.native.model

    def search(
        self,
        sources: Sources,
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses found by beam search; see `Engine`."""
        if constraints is not None or make_logits_processor(config) is not None:
            return self.native.search(sources, config, num_best, constraints)

        search = partial(self._model.search, beam=config.beam, alpha=config.length_penalty, num_best=num_best)
        return self._search_batches(sources, config, search, ("beam", config.beam))

    def sample(
        self, sources: Sources, config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """Hypotheses drawn at random; see `Engine`."""
        return self.native.sample(sources, config, num_samples, sampling, seed)

    def _count_threads(self) -> int:
        return count_threads()

    def _map_on_threads(
        self, search: Callable[[list[int]], list[list[Hypothesis]]], batches: list[list[int]], num_threads: int
    ) -> list[list[list[Hypothesis]]]:
        return map_on_threads(search, batches, num_threads)
