"""Engines translate batches of token ids to hypotheses: a search with the model itself, or with any other network."""

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.kernels.device import Precision, map_on_cores, resolve_precision
from transduce.kernels.memory import get_available_memory
from transduce.model import Transformer
from transduce.search import (
    Constraints,
    Hypothesis,
    LogitsProcessor,
    Sampling,
    SearchState,
    SearchTask,
    StepFunction,
    beam_search,
    sample_search,
)
from transduce.translation.engines.compiled_model import make_network
from transduce.translation.engines.inference_model import (
    Network,
    count_token_bytes,
    evaluation_mode,
    make_ensemble,
)

_PROCESSOR = torch.device("cpu")

LENGTH_MULTIPLE = 4
"""Sources of a large batch are padded to a multiple of this many tokens."""

SMALL_BATCH_SENTENCES = 8
"""Up to this many sentences, `auto` precision minimises the number of operations rather than the time of each."""

MOST_PROBABILITIES = 2**22
"""Maximum number of probabilities (hypotheses of a batch × vocabulary) in a step on a processor, so that they fit
its caches."""

MOST_PROBABILITIES_OF_GPU = 2**27
"""`MOST_PROBABILITIES` for other devices: half a gigabyte in float32, and some copies of it."""

MEMORY_CHECK_BYTES = 2**28
"""Up to this many bytes, a search begins without asking the system for its free memory, which takes part of a
millisecond."""

_Search = Callable[[StepFunction[Any], SearchState, SearchTask], list[list[Hypothesis]]]
_SearchMaker = Callable[[Network[Any], Sequence[Sequence[int]]], _Search]
"""Makes the search of a batch of sources with a network."""


@runtime_checkable
class Engine(Protocol):
    """Anything that translates token ids."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """For each source (ids, `</s>` included), up to `num_best` hypotheses, best first: fewer if it finds no more.

        Where the constraints of a source cannot be kept, there is one hypothesis with the score -inf.

        Raises:
            ConfigError: translations cannot be so long, or constraints are longer than the model reads.
        """
        ...

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """For each source, `num_samples` hypotheses drawn at random, the same for the same source and seed."""
        ...

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """Check, before there is any source, that it can search or sample with these settings and constraints.

        Raises:
            ConfigError: it cannot; names what it does not have.
        """
        ...


def batch_by_length(lengths: Sequence[int], batch_tokens: int, most_rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Divide sentences into batches: longest first, at most `batch_tokens` with padding, and `most_rows` sentences.

    Gives the indices of each batch. A sentence longer than `batch_tokens` is a batch of its own.
    """
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        rows = max(1, min(most_rows, batch_tokens // lengths[waiting[0]]))
        yield waiting[:rows]
        waiting = waiting[rows:]


class NetworkEngine:
    """An engine that searches with any network, whoever computes it.

    Sentences of similar length are translated together, so that little of a batch is padding. On a processor as many
    batches are computed at a time as PyTorch has threads, one on each: small products are not faster on several.

    Args:
        network: computes the probabilities; its methods may be called by several threads at a time.
        end_id: `</s>`.
        vocabulary: number of token ids; the last is `<pad>`.
        longest: maximum number of tokens of a source or a target, `</s>` included.
        device: the device of the network's inputs and outputs.
        for_few: another network for up to `SMALL_BATCH_SENTENCES` sentences; the same unless given.
        count_token_bytes: given the number of hypotheses of a sentence, a lower bound in bytes of the memory for each
            token of one of them; unknown unless given.
    """

    def __init__(
        self,
        network: Network[Any],
        end_id: int,
        vocabulary: int,
        *,
        longest: int = sys.maxsize,
        device: torch.device = _PROCESSOR,
        for_few: Network[Any] | None = None,
        count_token_bytes: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.end_id, self.vocabulary, self.pad_id = end_id, vocabulary, vocabulary - 1
        self.device = device
        self._longest, self._count_token_bytes = longest, count_token_bytes
        self._for_many, self._for_few = network, for_few or network

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses found by beam search; see `Engine`."""
        search = partial(
            beam_search,
            beam=config.beam,
            alpha=config.length_penalty,
            num_best=num_best,
            logits_processor=make_logits_processor(config),
            device=self.device,
        )

        def make_search(network: Network[Any], _: Sequence[Sequence[int]]) -> _Search:
            return partial(search, step_best=getattr(network, "step_best", None))

        return self._search_batches(sources, config, make_search, ("beam", config.beam), constraints)

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """Hypotheses drawn at random; see `Engine`."""

        def make_search(_: Network[Any], batch: Sequence[Sequence[int]]) -> _Search:
            return partial(
                sample_search,
                num_samples=num_samples,
                seeds=[(seed, zlib.crc32(repr(list(source)).encode())) for source in batch],
                sampling=sampling,
                alpha=config.length_penalty,
                device=self.device,
            )

        return self._search_batches(sources, config, make_search, ("samples", num_samples))

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """Check that translations can be as long as they must; see `Engine`."""
        del constraints, num_samples
        if config.min_length > self._longest:
            raise ConfigError(
                f"min_length = {config.min_length}: this model writes at most {self._longest} tokens; ask for fewer"
            )

    def _search_batches(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        make_search: _SearchMaker,
        width: tuple[str, int],
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """Divide the sources into batches and search each of them.

        On a processor, each batch is searched on its own thread; PyTorch would otherwise use several threads for a
        single batch. `make_search` makes the search of a batch. `width` is the name of the setting for the number of
        hypotheses of each sentence, and that number.
        """
        self.check(config)
        setting, num_hypotheses = width
        self._check_memory(f"{setting} = {num_hypotheses:,}", num_hypotheses, max(map(len, sources), default=0))
        num_required = max((one.num_tokens for one in constraints or ()), default=0)
        if num_required > config.max_pieces:
            raise ConfigError(
                f"constraints: ask for {num_required} tokens, and may for max_pieces = {config.max_pieces}; "
                f"ask for fewer"
            )
        num_threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        most = MOST_PROBABILITIES if self.device.type == "cpu" else MOST_PROBABILITIES_OF_GPU
        most_rows = max(1, most // (max(1, num_hypotheses) * self.vocabulary))
        if len(sources) > SMALL_BATCH_SENTENCES * num_threads:  # something for each
            most_rows = min(most_rows, -(-len(sources) // num_threads))
        batches = list(batch_by_length([len(source) for source in sources], config.batch_tokens, most_rows))
        network = self._for_few if len(sources) <= SMALL_BATCH_SENTENCES else self._for_many

        @torch.inference_mode()
        def search_batch(indices: list[int]) -> list[list[Hypothesis]]:
            batch = [sources[index] for index in indices]
            source_ids = self._pad(batch)
            state = network.start(source_ids, source_ids != self.pad_id)
            own = None if constraints is None else [constraints[index] for index in indices]
            return make_search(network, batch)(network.step, state, self._make_task(batch, config, own))

        with self._enter_inference():
            if num_threads == 1:
                results = [search_batch(batch) for batch in batches]
            else:
                results = map_on_cores(search_batch, batches, num_threads)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for indices, hypotheses in zip(batches, results, strict=True):
            for index, of_source in zip(indices, hypotheses, strict=True):
                found[index] = of_source
        return found

    def _enter_inference(self) -> AbstractContextManager[None]:
        """Make the network ready to be searched, until the context is left."""
        return nullcontext()

    def _check_memory(self, setting: str, num_hypotheses: int, num_tokens: int) -> None:
        """Check that memory holds all hypotheses of one sentence, with translations as long as the source."""
        needed = num_hypotheses * (2 * 4 * self.vocabulary + num_tokens * self._count_token_bytes(num_hypotheses))
        available = get_available_memory(self.device) if needed > MEMORY_CHECK_BYTES else None
        if available is not None and needed > available:
            raise ConfigError(
                f"{setting}: so many hypotheses of a sentence of {num_tokens:,} tokens need at least "
                f"{needed / 1e9:,.1f} GB of memory, and {available / 1e9:,.1f} GB are there; ask for fewer"
            )

    def _pad(self, sources: Sequence[Sequence[int]]) -> Tensor:
        longest = max(map(len, sources))
        if len(sources) > SMALL_BATCH_SENTENCES:  # few different lengths need few kernels
            longest = min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, self._longest)
        rows = [[*source, *[self.pad_id] * (longest - len(source))] for source in sources]
        return torch.tensor(rows, device=self.device)

    def _make_task(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, constraints: Sequence[Constraints] | None
    ) -> SearchTask:
        # Required tokens raise the maximum length: see `SearchConfig.compute_max_target_length`.
        required = [0] * len(sources) if constraints is None else [one.num_tokens for one in constraints]
        limits = [
            min(config.compute_max_target_length(len(source), extra), self._longest)
            for source, extra in zip(sources, required, strict=True)
        ]
        return SearchTask(self.pad_id, self.end_id, limits, config.min_length, constraints)


class NativeEngine(NetworkEngine):
    """The engine that computes with the model in this process, on its device; a model with new weights needs a new one.

    Several models with the same vocabulary are an ensemble: their probabilities are averaged.
    """

    def __init__(
        self, model: Transformer, end_id: int, precision: Precision = "float32", ensemble: Sequence[Transformer] = ()
    ) -> None:
        self.model = model
        self.models = (model, *ensemble)
        device = next(model.parameters()).device
        few, many = (
            resolve_precision(precision, device, model.config.d_model, is_few=is_few) for is_few in (True, False)
        )
        for_many = make_ensemble([make_network(one, many) for one in self.models])
        super().__init__(
            for_many,
            end_id,
            model.config.vocabulary,
            longest=min(one.longest for one in self.models),
            device=device,
            for_few=for_many if few == many else make_ensemble([make_network(one, few) for one in self.models]),
            count_token_bytes=lambda width: sum(count_token_bytes(one.config, width) for one in self.models),
        )

    def _enter_inference(self) -> AbstractContextManager[None]:
        return evaluation_mode(self.models)


def make_logits_processor(config: SearchConfig) -> LogitsProcessor | None:
    """The logits processor for the settings of the search; None if none is needed."""
    found = LogitsProcessor(config.no_repeat_ngram, config.repetition_penalty, config.diversity)
    return None if found == LogitsProcessor() else found
