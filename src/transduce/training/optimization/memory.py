"""Fitting a run into memory: checks of the model before allocation, and of the largest batch before the first
update.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int

from transduce.bundle.weights import count_parameters
from transduce.config import RunConfig, TransformerConfig
from transduce.data import Batch, measure_longest_sides
from transduce.errors import ConfigError, TrainingError, is_out_of_memory
from transduce.kernels.memory import (
    get_available_addresses,
    get_available_memory,
    get_peak_memory,
    get_used_memory,
    give_back_freed_memory,
    reset_peak_memory,
)
from transduce.training.distributed import Ranks, is_sharded, no_sync
from transduce.training.optimization.updater import Updater

BYTES_PER_PARAMETER = 16
"""Bytes that a parameter takes in training: four each for weight, gradient, and the two means of Adam or Muon's mean
and step."""

_SIZES = (
    *("vocabulary", "num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"),
    *("max_positions", "max_relative_distance", "kernel_width"),
)
"""Names of the settings that decide how many parameters a network has."""


def check_model_memory(config: RunConfig, device: torch.device, ranks: Ranks) -> None:
    """Raise `ConfigError` unless weights, gradients and optimiser of `config.model` fit into the memory of `device`.

    The error names the setting that takes most of it.
    """
    limits = get_available_memory(device), get_available_addresses(device)
    free = [limit for limit in limits if limit is not None]
    training = config.training
    num_parameters = _count_parameters(config.model)
    needed = num_parameters * (BYTES_PER_PARAMETER + (4 if training.ema_decay else 0))
    if training.sharding == "fsdp":
        needed //= ranks.size
    if device.type == "cpu":
        needed *= ranks.local_size
    if not free or needed <= min(free):
        return
    name = _largest_setting(config.model)
    section = "text" if name == "vocabulary" else "model"
    value = "" if name is None else f"{section}.{name} = {getattr(config.model, name):,}: "
    raise ConfigError(
        f"{value}a model of {num_parameters:,} parameters needs at least {needed / 1e9:,.1f} GB to train "
        f"(weights, gradients and the optimiser's state, without any text), and {min(free) / 1e9:,.1f} GB are free; "
        f"{'choose a smaller preset' if name is None else 'lower it'}"
    )


def _count_parameters(model: TransformerConfig) -> int:
    """Number of parameters of the network; of a Transformer by formula, which has no limit."""
    return model.num_parameters if model.architecture == "transformer" else count_parameters(model)


def _largest_setting(model: TransformerConfig) -> str | None:
    """The setting that saves most parameters if it is lowered to its value in the paper's base model.

    None if no setting is above that value.
    """
    base = TransformerConfig()
    saved = {}
    for name in _SIZES:
        widths = {"d_k", "d_v"} if name == "d_model" else set[str]()  # they follow from d_model unless they are given
        changes = {one: min(getattr(model, one), getattr(base, one)) for one in {name} | widths}
        saved[name] = _count_parameters(model) - _count_parameters(model.model_copy(update=changes))
    largest = max(saved, key=lambda name: saved[name])
    return largest if saved[largest] > 0 else None


SAFE_SHARE = 0.8
"""Share of the free memory that a batch may be estimated to take; the rest is a reserve."""

_ResultT = TypeVar("_ResultT")


class BatchShape(NamedTuple):
    """Rows of a batch, and tokens of each row on either side, padding included."""

    rows: int
    source: int
    target: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens on both sides."""
        return self.rows * (self.source + self.target)

    def make_batch(self, pad_id: int) -> Batch:
        """A batch of this shape without padding, of all token ids in turn."""

        def side(length: int) -> tuple[torch.Tensor, torch.Tensor]:
            ids = torch.arange(self.rows * length).remainder(pad_id).view(self.rows, length)
            return ids, torch.ones_like(ids, dtype=torch.bool)

        return Batch(*side(self.source), *side(self.target))


@dataclass(frozen=True)
class MemoryFit:
    """The memory needs of a run."""

    sequential_micro_batches: int
    """Number of micro-batches, computed one after the other, into which a rank's share of a batch is split to fit."""
    used: int | None
    """Peak memory of the process in bytes; None if unknown."""
    available: int | None
    """Bytes that the process could allocate; the ranks of a machine share the memory of its CPU equally."""
    seconds_per_update: float
    """Estimated without Adam's step, which takes little time."""

    def describe(self, updates: int, seconds_left: float = math.inf) -> str:
        """One line: memory and time of `updates` updates, or of those in `seconds_left` if these are fewer."""
        seconds = self.seconds_per_update * updates
        duration = f"about {timedelta(seconds=round(seconds))} for {updates:,} updates, excluding validation"
        if seconds > seconds_left:
            most = max(1, seconds_left / self.seconds_per_update)
            duration = f"{timedelta(seconds=max(0, round(seconds_left)))} for about {most:,.0f} updates"
        if self.used is None or self.available is None:
            return duration
        memory = f"training needs {self.used / 1e9:.1f} GB of memory, {self.available / 1e9:.1f} GB are free"
        return f"{memory}; {duration}"


def find_largest_shapes(
    lengths: Int[np.ndarray, "pairs 2"],
    batch_tokens: int,
    num_ranks: int = 1,
    times: Int[np.ndarray, "pairs"] | None = None,
) -> list[BatchShape]:
    """The shapes that may need the most memory: the one with the most tokens, and the one with most attention scores.

    They bound every rank's share of any batch of any epoch, see `plan_batches`. If one shape has the most of both, it
    is returned alone. `times` is the maximum number of times that an epoch has each pair; default: once.
    """
    longest = measure_longest_sides(lengths)
    width = np.arange(1, int(longest.max()) + 1)
    # For each width: a batch whose longest side has this many tokens contains only pairs with sides up to this length.
    num_pairs = np.bincount(longest, times)[1:].astype(np.int64).cumsum()
    sides = np.zeros((len(width) + 1, 2), dtype=lengths.dtype)
    for side in range(2):
        np.maximum.at(sides[:, side], longest, lengths[:, side])
    source, target = np.maximum.accumulate(sides[1:], axis=0).T.astype(np.int64)
    rows = -(-np.minimum(np.maximum(1, batch_tokens // width), num_pairs) // num_ranks)
    costs = rows * (source + target), rows * (source**2 + source * target + target**2)
    worst = dict.fromkeys(int(cost.argmax()) for cost in costs)
    return [BatchShape(int(rows[index]), int(source[index]), int(target[index])) for index in worst]


def probe_memory(
    updater: Updater,
    lengths: Int[np.ndarray, "pairs 2"],
    share: int,
    sequential_micro_batches: int = 1,
    safe_share: float = SAFE_SHARE,
    times: Int[np.ndarray, "pairs"] | None = None,
) -> MemoryFit:
    """Try the largest batches, forward and backward with the real loss, in smaller and smaller micro-batches.

    Gradients are discarded; weights, optimiser, running statistics and random numbers stay unchanged. On a CPU, a batch
    is not tried if its first rows show that it would take more memory than is free: Linux kills the process instead of
    failing the allocation. All ranks try the same batches; one that does not fit on one rank counts as too large on
    all. A sharded model is not tried again with smaller micro-batches: a rank that fails to allocate leaves the others
    in the middle of a pass, which ends all of them before training begins.

    Args:
        updater: updater of the tested model.
        lengths: tokens of the source and of the target of every pair, `</s>` included.
        share: tokens of a batch, on either side, for each rank, which may exceed it by one pair.
        sequential_micro_batches: the initial number; doubled until they fit.
        safe_share: a batch is tried if its estimate is at most this fraction of the free memory.
        times: how often an epoch has each pair at most; once unless given.

    Raises:
        TrainingError: a single pair does not fit.
    """
    ranks = updater.ranks
    with _restore_afterwards(updater), no_sync(updater.batch_loss), updater.limit_threads():
        while True:
            shapes = find_largest_shapes(lengths, ranks.size * share // sequential_micro_batches, ranks.size, times)
            if (seconds := _measure_seconds(updater, shapes, safe_share)) is not None:
                break
            if share // sequential_micro_batches <= int(lengths.max()):
                raise TrainingError(
                    f"memory cannot hold the model and a pair of up to {lengths.max()} tokens per side: lower "
                    "text.max_pieces, or choose a smaller model"
                )
            sequential_micro_batches *= 2
        muon_seconds = 0.0 if updater.muon is None else updater.muon.measure_seconds()
        used, still_free = get_used_memory(updater.device), _get_free_memory_per_rank(updater)
        addresses = get_available_addresses(updater.device)
    available = None
    if used is not None and still_free is not None:
        available = used + (still_free if addresses is None else min(still_free, addresses))
    num_shares = -(-_sum_repeated(measure_longest_sides(lengths), times) // share)
    tokens_per_update = updater.config.accumulation * sum(_sum_repeated(side, times) for side in lengths.T) / num_shares
    seconds_per_update = seconds / shapes[0].num_tokens * tokens_per_update + muon_seconds
    return MemoryFit(sequential_micro_batches, get_peak_memory(updater.device), available, seconds_per_update)


def _sum_repeated(numbers: Int[np.ndarray, "pairs"], times: Int[np.ndarray, "pairs"] | None) -> int:
    return int(numbers.sum() if times is None else np.dot(numbers.astype(np.int64), times))


@contextmanager
def _restore_afterwards(updater: Updater) -> Iterator[None]:
    """Hold the optimiser's memory during the block, and afterwards restore the model, its mode and random numbers."""
    model, device = updater.model, updater.device
    buffers, was_training = [buffer.clone() for buffer in model.buffers()], model.training
    # The means of Adam, if they do not exist yet; Muon has fewer. Not zeros: the system allocates memory for those only
    # when they are written.
    moments = [] if updater.adam.state else [torch.ones_like(one) for one in model.parameters() for _ in range(2)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            updater.model.zero_grad()
            model.train(was_training)
            for buffer, before in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(before)
            moments.clear()


def _measure_seconds(updater: Updater, shapes: list[BatchShape], safe_share: float) -> float | None:
    """Seconds that the first of `shapes` takes once memory is allocated as in training; None if they do not all fit."""
    ranks = updater.ranks
    if is_sharded(updater.model):
        return _run_shapes(updater, shapes)
    expected = _call_unless_out_of_memory(updater, lambda: max(_estimate_bytes(updater, shape) for shape in shapes))
    # All ranks must reach this collective, even if their own estimate fits: otherwise one rank would try a whole batch
    # while another measures.
    if ranks.any(expected is None):
        return None
    free = _get_free_memory_per_rank(updater)
    if ranks.any(free is not None and expected is not None and expected > safe_share * free):
        return None
    held = get_used_memory(updater.device) or 0
    seconds = _call_unless_out_of_memory(updater, lambda: _run_shapes(updater, shapes))
    most = get_peak_memory(updater.device) if updater.device.type == "cuda" else None
    if most is not None and free is not None and most > safe_share * (held + free):  # nothing could be forecast
        seconds = None
    if not ranks.any(seconds is None):
        return seconds
    _release_memory(updater)  # on the ranks where it did fit, too
    return None


def _get_free_memory_per_rank(updater: Updater) -> int | None:
    """Bytes that this rank can still allocate: ranks have one GPU each, but share the memory of a machine's CPU."""
    free = get_available_memory(updater.device)
    return free if free is None or updater.device.type != "cpu" else free // updater.ranks.local_size


def _call_unless_out_of_memory(updater: Updater, attempt: Callable[[], _ResultT]) -> _ResultT | None:
    """What `attempt` returns; None if it runs out of memory, which is then released."""
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    _release_memory(updater)  # after the except block: the exception keeps the tensors alive until then
    return None


def _release_memory(updater: Updater) -> None:
    updater.model.zero_grad()
    if updater.device.type == "cuda":
        torch.cuda.empty_cache()
    give_back_freed_memory()


def _run_shapes(updater: Updater, shapes: list[BatchShape]) -> float:
    """Run all shapes undivided, to see whether they fit; then return the seconds that the first takes as in training.

    In training a batch may be divided into parallel micro-batches, which together take no more memory.
    """
    reset_peak_memory(updater.device)  # peak of earlier attempts
    attempts = [(shape, False) for shape in shapes] + [(shapes[0], updater.has_parallel_micro_batches)]
    attempts += attempts[-1:] * updater.has_parallel_micro_batches  # twice, as the first run starts the processes
    for shape, is_divided in attempts:
        started = time.perf_counter()
        _run_shape(updater, shape, is_divided=is_divided)
    return time.perf_counter() - started


def _estimate_bytes(updater: Updater, shape: BatchShape) -> int:
    """Estimate the bytes that a batch of this shape takes on a CPU beyond those in use; 0 if that is impossible.

    The difference between an eighth and a quarter of the rows gives the bytes of a row. This needs an allocator that
    keeps freed memory until it is told to release it.
    """
    few = shape.rows // 8
    if not few or updater.device.type != "cpu":
        return 0
    grown = []
    for rows in (few, 2 * few):
        updater.model.zero_grad()
        if not give_back_freed_memory():
            return 0
        before = get_used_memory(updater.device) or 0
        _run_shape(updater, shape._replace(rows=rows))
        grown.append((get_used_memory(updater.device) or 0) - before)
    updater.model.zero_grad()
    give_back_freed_memory()
    # The first batch may grow more than the second, as it also allocates memory that is kept whatever its rows.
    return max(grown) + max(0, grown[1] - grown[0]) * (shape.rows - 2 * few) // few


def _run_shape(updater: Updater, shape: BatchShape, *, is_divided: bool = False) -> None:
    updater.model.train()
    batch = shape.make_batch(updater.model.pad_id)
    if is_divided:
        updater.sum_gradients(0, [batch], batch.num_target_tokens)
    else:
        updater.accumulate(batch.to(updater.device), batch.num_target_tokens)
