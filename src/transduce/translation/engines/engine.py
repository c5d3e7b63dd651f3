"""Engines translate batches of token ids to hypotheses: their common parts, without PyTorch."""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import ConfigError
from transduce.kernels.hardware import count_threads, map_on_threads
from transduce.kernels.memory import get_available_memory
from transduce.search import Constraints, Hypothesis, LogitsProcessor, Sampling, SearchTask

if TYPE_CHECKING:
    import torch

SMALL_BATCH_SENTENCES = 8
"""Up to this many sentences, `auto` precision minimises the number of operations rather than their cost."""

MAX_PROBABILITIES = 2**22
"""Maximum number of probabilities (hypotheses of a batch × vocabulary) in a step on a processor, so that they fit
its caches."""

MAX_PROBABILITIES_OF_GPU = 2**27
"""`MAX_PROBABILITIES` for other devices: half a gigabyte in float32, and some copies of it."""

MEMORY_CHECK_BYTES = 2**28
"""Up to this many bytes, a search begins without checking the free memory, which takes part of a millisecond."""


@runtime_checkable
class Engine(Protocol):
    """Protocol of engines, which translate token ids."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """For each source (ids, `</s>` included), up to `num_best` hypotheses, best first: fewer if it finds no more.

        If the constraints of a source cannot be met, there is one hypothesis with the score -inf.

        Raises:
            ConfigError: the required length exceeds what the model can write, or constraints are longer than it reads.
        """
        ...

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """For each source, `num_samples` hypotheses drawn at random, the same for the same source and seed.

        They are in the order in which they were drawn.
        """
        ...

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """Check, independently of sources, that the engine supports these settings and constraints.

        Raises:
            ConfigError: it does not; names what is not supported.
        """
        ...


def batch_by_length(
    lengths: Sequence[int], batch_tokens: int, max_rows: int = sys.maxsize, num_threads: int = 1
) -> Iterator[list[int]]:
    """Group sentences into batches: longest first, at most `batch_tokens` with padding, and `max_rows` sentences.

    With several threads, a batch ends where it has its share of all tokens. There are at least as many shares as
    batches are needed, and a multiple of `num_threads`, so that all threads finish at about the same time.

    Yields the indices of each batch. A sentence longer than `batch_tokens` is a batch of its own.
    """
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    share = sys.maxsize
    if num_threads > 1:
        total = sum(lengths)
        num_batches = max(1, -(-total // batch_tokens), -(-len(lengths) // max_rows))
        share = -(-total // (num_threads * -(-num_batches // num_threads)))
    while waiting:
        rows = max(1, min(max_rows, batch_tokens // lengths[waiting[0]]))
        sums = list(accumulate(lengths[index] for index in waiting[:rows]))
        rows = min(rows, 1 + bisect_left(sums, share))
        yield waiting[:rows]
        waiting = waiting[rows:]


Sources = Sequence[Sequence[int]]
"""Sentences in token ids, each with `</s>`."""

BatchSearch = Callable[[Sources, SearchTask], list[list[Hypothesis]]]
"""The search of one batch."""


class BatchEngine:
    """An engine that groups sentences of similar length into batches, to reduce padding.

    On a CPU as many batches are computed at once as there are threads, one on each, as small matrix products are not
    faster on several.

    Args:
        end_id: `</s>`.
        vocabulary: number of token ids; the last is `<pad>`.
        max_length: maximum number of tokens of a source or a target, `</s>` included.
        count_token_bytes: given the number of hypotheses of a sentence, a lower bound in bytes of the memory for each
            token of one of them.
    """

    device: "torch.device | None" = None
    """The device of the engine. Default: the CPU."""

    _map_on_threads = staticmethod(map_on_threads)
    """Computes batches on several threads of a processor."""

    def __init__(self, end_id: int, vocabulary: int, max_length: int, count_token_bytes: Callable[[int], int]) -> None:
        self.end_id, self.vocabulary, self.pad_id = end_id, vocabulary, vocabulary - 1
        self._max_length, self._count_token_bytes = max_length, count_token_bytes

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """Check that translations can be as long as they must; see `Engine`."""
        del constraints, num_samples
        if config.min_length > self._max_length:
            raise ConfigError(
                f"min_length = {config.min_length}: this model writes at most {self._max_length} tokens; lower "
                "min_length"
            )

    def _search_batches(
        self,
        sources: Sources,
        config: SearchConfig,
        search: BatchSearch,
        width: tuple[str, int],
        constraints: Sequence[Constraints] | None = None,
        max_hypotheses: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Divide the sources into batches and search each of them.

        On a processor, each batch is searched on its own thread; PyTorch would otherwise use several threads for a
        single batch. `width` is the name of the setting for the number of hypotheses of each sentence, and that number.
        `max_hypotheses` is given by searches in compiled code: the maximum number of hypotheses in a batch. They divide
        even two sentences among threads. Default: as many hypotheses as have `MAX_PROBABILITIES`.
        """
        self.check(config)
        setting, num_hypotheses = width
        check_search_memory(
            f"{setting} = {num_hypotheses:,}",
            num_hypotheses,
            max(map(len, sources), default=0),
            self.vocabulary,
            self._count_token_bytes(num_hypotheses),
            self.device,
        )
        num_required = max((one.num_tokens for one in constraints or ()), default=0)
        if num_required > config.max_pieces:
            raise ConfigError(
                f"constraints need {num_required} tokens; at most max_pieces = {config.max_pieces} are allowed; "
                "shorten or remove some"
            )
        is_cpu = self.device is None or self.device.type == "cpu"
        num_threads = count_threads() if is_cpu else 1
        num_workers = num_threads
        if max_hypotheses is None:
            max_hypotheses = (MAX_PROBABILITIES if is_cpu else MAX_PROBABILITIES_OF_GPU) // self.vocabulary
            if len(sources) <= SMALL_BATCH_SENTENCES * num_threads:  # operations cost more than the rows in them
                num_workers = 1
        max_rows = max(1, max_hypotheses // max(1, num_hypotheses))
        lengths = [len(source) for source in sources]
        batches = list(batch_by_length(lengths, config.batch_tokens, max_rows, num_workers))

        def search_batch(indices: list[int]) -> list[list[Hypothesis]]:
            batch = [sources[index] for index in indices]
            own = None if constraints is None else [constraints[index] for index in indices]
            return search(batch, self._make_task(batch, config, own))

        if num_threads == 1:
            results = [search_batch(batch) for batch in batches]
        else:
            results = self._map_on_threads(search_batch, batches, num_threads)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for indices, hypotheses in zip(batches, results, strict=True):
            for index, of_source in zip(indices, hypotheses, strict=True):
                found[index] = of_source
        return found

    def _make_task(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, constraints: Sequence[Constraints] | None
    ) -> SearchTask:
        # Required tokens raise the maximum length: see `SearchConfig.compute_max_target_length`.
        required = [0] * len(sources) if constraints is None else [one.num_tokens for one in constraints]
        limits = [
            min(config.compute_max_target_length(len(source), extra), self._max_length)
            for source, extra in zip(sources, required, strict=True)
        ]
        return SearchTask(self.pad_id, self.end_id, limits, config.min_length, constraints)


def check_search_memory(
    setting: str, num_hypotheses: int, num_tokens: int, vocabulary: int, token_bytes: int, device: "torch.device | None"
) -> None:
    """Check that memory holds all hypotheses of one sentence, with translations as long as the source.

    Args:
        setting: the setting that gives the number of hypotheses, for the message, as in "beam = 4".
        num_hypotheses: hypotheses of a sentence.
        num_tokens: tokens of the longest source.
        vocabulary: number of token ids.
        token_bytes: a lower bound of the memory for each token of a hypothesis, see `count_token_bytes`.
        device: the device of the engine; None: the CPU.

    Raises:
        ConfigError: it does not.
    """
    needed = num_hypotheses * (2 * 4 * vocabulary + num_tokens * token_bytes)
    available = get_available_memory(device) if needed > MEMORY_CHECK_BYTES else None
    if available is not None and needed > available:
        raise ConfigError(
            f"{setting}: this many hypotheses of a sentence of {num_tokens:,} tokens need at least "
            f"{needed / 1e9:,.1f} GB of memory, and {available / 1e9:,.1f} GB are free; use fewer hypotheses"
        )


def make_logits_processor(config: SearchConfig) -> LogitsProcessor | None:
    """The logits processor for the settings of the search; None if none is needed."""
    found = LogitsProcessor(config.no_repeat_ngram, config.repetition_penalty, config.diversity)
    return None if found == LogitsProcessor() else found


def has_inference_model(config: TransformerConfig) -> bool:
    """Whether `CompiledModel` and `InferenceModel` can compute such a network.

    It is a Transformer with dot products as attention scores, layer normalisation, plain feed-forward networks, and
    positions, if any, that are added to embeddings.
    """
    return (
        config.architecture == "transformer"
        and config.has_dot_product_attention
        and config.normalization == "layer"
        and config.feed_forward == "plain"
        and not config.has_positions_in_attention
    )


def count_token_bytes(config: TransformerConfig, width: int) -> int:
    """A lower bound in bytes of the memory of the decoder for each token of one of `width` hypotheses.

    It counts a key and a value in every layer, with at least two bytes per number. If hypotheses share a cache, it also
    counts, for each of the `width` hypotheses, the mask of the token, once and for each head, and its attention score
    in each head. 0 for a network that is not a Transformer, whose state is not known here.
    """
    if config.architecture != "transformer":
        return 0
    keys_and_values = config.num_decoder_layers * config.num_heads * (config.d_k + config.d_v)
    return 2 * (keys_and_values + (width * (1 + 2 * config.num_heads) if has_inference_model(config) else 0))
