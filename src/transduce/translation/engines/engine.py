"""Engines translate batches of token ids to hypotheses: a search with the model itself, or with any other network."""

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.kernels.memory import free_memory
from transduce.kernels.precision import Precision, settled_precision
from transduce.kernels.threads import Workers
from transduce.model import Transformer
from transduce.search import (
    Constraints,
    Habits,
    Hypothesis,
    Sampling,
    SearchState,
    SearchTask,
    beam_search,
    sample_search,
)
from transduce.translation.engines.inference_model import Network, evaluating, make_ensemble, make_network, token_bytes


def batches_by_length(lengths: Sequence[int], batch_tokens: int, most_rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Indices of sentences to be read together: longest first, at most `batch_tokens` with padding, and `most_rows`.

    A sentence longer than that is a batch of its own.
    """
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        rows = max(1, min(most_rows, batch_tokens // lengths[waiting[0]]))
        yield waiting[:rows]
        waiting = waiting[rows:]


_ResultT = TypeVar("_ResultT")

_PROCESSOR = torch.device("cpu")

_LENGTHS = 4
"""Sources of a large batch are padded to a multiple of so many tokens."""

FEW = 8
"""Sentences for which `auto` precision starts few operations rather than fast ones."""

MOST_PROBABILITIES = 2**22
"""Probabilities of a step, for all hypotheses of a batch, on a processor: what its caches are good for."""

MOST_PROBABILITIES_OF_GPU = 2**27
"""The same elsewhere: half a gigabyte in float32, and some copies of it."""


@runtime_checkable
class Engine(Protocol):
    """Anything that can translate ids."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """For each source (ids, `</s>` included), up to `num_best` hypotheses, best first: fewer if it finds no more.

        Where the constraints of a source cannot be kept, there is one hypothesis with the score -inf.
        """
        ...

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """For each source, `num_samples` hypotheses drawn at random, the same for the same source and seed."""
        ...

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """That it can search, or draw samples, with these settings and constraints, before there is any source.

        Raises:
            ConfigError: it cannot; names what it does not have.
        """
        ...


class NativeEngine:
    """The model in this process, on the device it lies on; when its weights change, another one is needed.

    Several models with the same vocabulary are an ensemble: their probabilities are averaged.
    """

    def __init__(
        self, model: Transformer, end_id: int, precision: Precision = "float32", ensemble: Sequence[Transformer] = ()
    ) -> None:
        self.model = model
        self.models = (model, *ensemble)
        device = next(model.parameters()).device
        few, many = (settled_precision(precision, device, model.config.d_model, few=few) for few in (True, False))
        for_many = make_ensemble([make_network(one, many) for one in self.models])
        self._engine = NetworkEngine(
            for_many,
            end_id,
            model.config.vocabulary,
            longest=min(one.longest for one in self.models),
            device=device,
            for_few=for_many if few == many else make_ensemble([make_network(one, few) for one in self.models]),
            token_bytes=lambda width: sum(token_bytes(one.config, width) for one in self.models),
        )

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """See `Engine`."""
        with evaluating(self.models):
            return self._engine.search(sources, config, num_best, constraints)

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """See `Engine`."""
        with evaluating(self.models):
            return self._engine.sample(sources, config, num_samples, sampling, seed)

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """See `Engine`."""
        self._engine.check(config, constraints, num_samples=num_samples)


class NetworkEngine:
    """Searches with any network, whoever computes it.

    Sentences of similar length are translated together, so that little of a batch is padding. On a processor as many
    batches are under way as PyTorch has threads, each on one of them: small products gain nothing from several.

    Args:
        network: whose probabilities are searched; its methods may be called by several threads at a time.
        end_id: `</s>`.
        vocabulary: number of token ids; the last is `<pad>`.
        longest: most positions of a source or a target, `</s>` included.
        device: where the network wants ids and has its probabilities.
        for_few: another network for up to `FEW` sentences; the same unless given.
        token_bytes: the least memory for each token of one of so many hypotheses of a sentence; unknown unless given.
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
        token_bytes: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.end_id, self.vocabulary, self.pad_id = end_id, vocabulary, vocabulary - 1
        self.device = device
        self._longest, self._token_bytes = longest, token_bytes
        self._many, self._few = network, for_few or network
        self._workers = Workers()

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """See `Engine`.

        Raises:
            ConfigError: translations cannot be so long, or what is asked of them is longer than what is read.
        """
        habits = Habits(config.no_repeat_ngram, config.repetition_penalty, config.diversity)

        def search(batch: _Batch) -> list[list[Hypothesis]]:
            return beam_search(
                batch.network.step,
                batch.state,
                batch.task,
                beam=config.beam,
                alpha=config.length_penalty,
                num_best=num_best,
                habits=None if habits == Habits() else habits,
                device=self.device,
            )

        return self._in_batches(sources, config, search, "beam", config.beam, constraints)

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """See `Engine`."""

        def draw(batch: _Batch) -> list[list[Hypothesis]]:
            return sample_search(
                batch.network.step,
                batch.state,
                batch.task,
                num_samples=num_samples,
                seeds=[(seed, zlib.crc32(repr(list(source)).encode())) for source in batch.sources],
                sampling=sampling,
                alpha=config.length_penalty,
                device=self.device,
            )

        return self._in_batches(sources, config, draw, "samples", num_samples)

    def _in_batches(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        search: Callable[["_Batch"], list[list[Hypothesis]]],
        setting: str,
        width: int,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """What `search` finds for each source, of which it keeps `width` hypotheses, as the `setting` says."""
        self.check(config)
        tokens = max(map(len, sources), default=0)
        needed = width * (2 * 4 * self.vocabulary + tokens * self._token_bytes(width))
        check_search_memory(f"{setting} = {width:,}", tokens, needed, self.device)
        asked = max((one.num_tokens for one in constraints or ()), default=0)
        if asked > config.max_pieces:
            raise ConfigError(
                f"constraints: ask for {asked} tokens, and may for max_pieces = {config.max_pieces}; ask for fewer"
            )
        most = MOST_PROBABILITIES if self.device.type == "cpu" else MOST_PROBABILITIES_OF_GPU
        most_rows = max(1, most // (max(1, width) * self.vocabulary))
        if len(sources) > FEW * self._num_threads:  # something for each
            most_rows = min(most_rows, -(-len(sources) // self._num_threads))
        batches = list(batches_by_length([len(source) for source in sources], config.batch_tokens, most_rows))
        network = self._few if len(sources) <= FEW else self._many

        @torch.inference_mode()
        def search_batch(indices: list[int]) -> list[list[Hypothesis]]:
            asked = None if constraints is None else [constraints[index] for index in indices]
            return search(self._batch(network, [sources[index] for index in indices], config, asked))

        found: list[list[Hypothesis]] = [[] for _ in sources]
        for indices, results in zip(batches, self._all(search_batch, batches), strict=True):
            for index, hypotheses in zip(indices, results, strict=True):
                found[index] = hypotheses
        return found

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """See `Engine`: there is nothing that it does not have, but translations end somewhere."""
        del constraints, num_samples
        if config.min_length > self._longest:
            raise ConfigError(
                f"min_length = {config.min_length}: this model writes at most {self._longest} tokens; ask for fewer"
            )

    def _all(self, search_batch: Callable[[list[int]], _ResultT], batches: list[list[int]]) -> list[_ResultT]:
        """What `search_batch` makes of every batch, each computed by one thread: shared, even one takes longer."""
        if self._num_threads == 1:
            return [search_batch(batch) for batch in batches]
        return self._workers.map(search_batch, batches, self._num_threads)

    @property
    def _num_threads(self) -> int:
        """Batches that are under way at a time."""
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def _batch(
        self,
        network: Network[Any],
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        constraints: Sequence[Constraints] | None,
    ) -> "_Batch":
        """The sources read by the network, and what is asked of their translations."""
        lengths = [len(source) for source in sources]
        longest, pad_id = max(lengths), self.pad_id
        if len(sources) > FEW:  # few different lengths need few kernels
            longest = min(-(-longest // _LENGTHS) * _LENGTHS, self._longest)
        rows = [[*source, *[pad_id] * (longest - len(source))] for source in sources]
        source_ids = torch.tensor(rows, device=self.device)
        # What is required comes on top of what the model has to say.
        required = [0] * len(sources) if constraints is None else [asked.num_tokens for asked in constraints]
        limits = [
            min(config.most_tokens(length, extra), self._longest)
            for length, extra in zip(lengths, required, strict=True)
        ]
        task = SearchTask(pad_id, self.end_id, limits, config.min_length, constraints)
        return _Batch(network, network.start(source_ids, source_ids != pad_id), task, sources)


@dataclass(frozen=True)
class _Batch:
    """Sources that are searched together."""

    network: Network[Any]
    state: SearchState
    task: SearchTask
    sources: Sequence[Sequence[int]]


def check_search_memory(setting: str, tokens: int, needed: int, device: torch.device) -> None:
    """That a search can keep all hypotheses of one sentence, as far as that shows before it begins.

    Args:
        setting: what decides how many there are, as in "beam = 4".
        tokens: of the source.
        needed: bytes that the search takes at least, with a translation as long as its source.
        device: where.

    Raises:
        ConfigError: there is less memory than that.
    """
    there = free_memory(device) if needed > _WORTH_ASKING else None
    if there is not None and needed > there:
        raise ConfigError(
            f"{setting}: so many hypotheses of a sentence of {tokens:,} tokens need at least {needed / 1e9:,.1f} GB "
            f"of memory, and {there / 1e9:,.1f} GB are there; ask for fewer"
        )


_WORTH_ASKING = 2**28
"""Bytes up to which a search is begun without a question to the system, which takes some of a millisecond."""
