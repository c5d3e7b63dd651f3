"""The largest batch, tried before the first update: whether it fits into memory, and what it takes."""

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

from transduce.data import Batch, measure_longest_sides
from transduce.errors import TrainingError, is_out_of_memory
from transduce.training.sharding import is_sharded, summed_later
from transduce.training.step import Updater
from transduce.translation.allocator import give_back_freed_memory
from transduce.translation.memory import (
    forget_most_taken_memory,
    free_addresses,
    free_memory,
    most_taken_memory,
    taken_memory,
)

SAFE_SHARE = 0.8
"""Share of the free memory that a batch may be expected to take; some is left for what no forecast knows."""

Found = TypeVar("Found")


class Shape(NamedTuple):
    """Rows of a batch, and tokens of each row on either side, padding included."""

    rows: int
    source: int
    target: int

    @property
    def num_tokens(self) -> int:
        """On both sides."""
        return self.rows * (self.source + self.target)

    def batch(self, pad_id: int) -> Batch:
        """A batch of this shape without padding, of all token ids in turn."""

        def side(length: int) -> tuple[torch.Tensor, torch.Tensor]:
            ids = torch.arange(self.rows * length).remainder(pad_id).view(self.rows, length)
            return ids, torch.ones_like(ids, dtype=torch.bool)

        return Batch(*side(self.source), *side(self.target))


@dataclass(frozen=True)
class Fit:
    """How a run fits into memory.

    Args:
        halvings: how often a rank's share of a batch is halved, and the number of batches of an update doubled, to fit.
        taken: most bytes that the process held at a time, or None where that is not known.
        there: bytes that it could hold; of a CPU's memory, each rank of a machine has its share.
        seconds_per_update: about; the optimiser's own step is not counted.
    """

    halvings: int
    taken: int | None
    there: int | None
    seconds_per_update: float

    def outlook(self, updates: int, time_limit: float = math.inf) -> str:
        """What `updates` of them will take, in one line, where the run ends after `time_limit` seconds."""
        seconds = self.seconds_per_update * updates
        if seconds > time_limit:
            duration = (
                f"{timedelta(seconds=round(time_limit))} for about {time_limit / self.seconds_per_update:,.0f} updates"
            )
        else:
            duration = f"about {timedelta(seconds=round(seconds))} for {updates:,} updates, validations not counted"
        memory = ""
        if self.taken is not None and self.there is not None:
            memory = f"training needs {self.taken / 1e9:.1f} GB of memory, {self.there / 1e9:.1f} GB are there; "
        return f"{memory}{duration}"


def largest_shapes(
    lengths: Int[np.ndarray, "pairs 2"],
    batch_tokens: int,
    num_ranks: int = 1,
    times: Int[np.ndarray, "pairs"] | None = None,
) -> list[Shape]:
    """The shape with the most tokens and the one with the most pairs of positions that attend to each other.

    No rank's share of a batch of any epoch's plan has more of either: see `plan_batches`. One shape, if it has the most
    of both. `times` is how often an epoch has each pair at most; once unless given.
    """
    longest = measure_longest_sides(lengths)
    width = np.arange(1, int(longest.max()) + 1)
    # A batch whose longest side is so wide: its other sides are sides of pairs that are no longer than that.
    num_pairs = np.bincount(longest, times)[1:].astype(np.int64).cumsum()
    sides = np.zeros((len(width) + 1, 2), dtype=lengths.dtype)
    for side in range(2):
        np.maximum.at(sides[:, side], longest, lengths[:, side])
    source, target = np.maximum.accumulate(sides[1:], axis=0).T.astype(np.int64)
    rows = -(-np.minimum(np.maximum(1, batch_tokens // width), num_pairs) // num_ranks)
    costs = rows * (source + target), rows * (source**2 + source * target + target**2)
    worst = dict.fromkeys(int(cost.argmax()) for cost in costs)
    return [Shape(int(rows[index]), int(source[index]), int(target[index])) for index in worst]


def probe(
    updater: Updater,
    lengths: Int[np.ndarray, "pairs 2"],
    share: int,
    halvings: int = 0,
    safe_share: float = SAFE_SHARE,
    free: Callable[[torch.device], int | None] = free_memory,
    times: Int[np.ndarray, "pairs"] | None = None,
) -> Fit:
    """Try the largest batches, forward and backward with the real loss, in smaller and smaller parts until they fit.

    Nothing of the run is changed: gradients are thrown away, weights, optimiser, running statistics and random numbers
    are left as they were. On a CPU, a batch is not even tried that would take more than is free, as its first rows
    tell: Linux kills where it should refuse. Of several ranks each tries for itself, all of them the same; what does
    not fit on one fits on none. Of a sharded model nothing smaller is tried: a rank that is refused memory leaves the
    others in the middle of a pass, which ends them all before training begins.

    Args:
        updater: of the run.
        lengths: tokens of the source and of the target of every pair, `</s>` included.
        share: tokens of a batch, on either side, that each rank takes; it may take a pair more.
        halvings: where to begin.
        safe_share: of what is free, how much a batch may take by forecast to be tried.
        free: bytes that can still be taken.
        times: how often an epoch has each pair at most; once unless given.

    Raises:
        TrainingError: a single pair does not fit.
    """
    ranks = updater.ranks
    with _left_as_it_was(updater), summed_later(updater.batch_loss), updater.divided_threads():
        shapes = largest_shapes(lengths, ranks.size * share >> halvings, ranks.size, times)
        while (seconds := _seconds(updater, shapes, safe_share, free)) is None:
            if share >> halvings <= int(lengths.max()):
                raise TrainingError(
                    f"memory does not hold the model and a pair of up to {lengths.max()} tokens a side: lower "
                    f"text.max_pieces, or take a smaller model"
                )
            halvings += 1
            shapes = largest_shapes(lengths, ranks.size * share >> halvings, ranks.size, times)
        taken, still_free = taken_memory(updater.device), _free_for_each(updater, free)
        addresses = free_addresses(updater.device)
    there = None
    if taken is not None and still_free is not None:
        there = taken + (still_free if addresses is None else min(still_free, addresses))
    num_shares = -(-_total(measure_longest_sides(lengths), times) // share)
    tokens_per_update = updater.config.accumulation * sum(_total(side, times) for side in lengths.T) / num_shares
    return Fit(halvings, most_taken_memory(updater.device), there, seconds / shapes[0].num_tokens * tokens_per_update)


def _total(numbers: Int[np.ndarray, "pairs"], times: Int[np.ndarray, "pairs"] | None) -> int:
    return int(numbers.sum() if times is None else np.dot(numbers.astype(np.int64), times))


def fit_into_memory(
    updater: Updater,
    lengths: Int[np.ndarray, "pairs 2"],
    share: int,
    halvings: int,
    updates: int,
    say: Callable[[str], None],
    *,
    goes_on: bool,
    times: Int[np.ndarray, "pairs"] | None = None,
) -> int:
    """The halvings that a run needs which began with `halvings`; says so, and what its `updates` to come will take.

    What was decided once stays: a run that goes on elsewhere computes in parts as small, or in smaller ones, but those
    only where it must. Parts are of the recipe's own batches, so that an update is over the same pairs everywhere.
    """
    fit = probe(updater, lengths, share, halvings, safe_share=1.0 if goes_on else SAFE_SHARE, times=times)
    if fit.halvings > halvings:
        warning = "; dropout draws other numbers in them than in a run that was not stopped" if goes_on else ""
        say(
            f"batches of {share:,} tokens a side do not fit into memory: each is computed in parts of "
            f"{share >> fit.halvings:,}, and an update is over the same pairs as before{warning}"
        )
    say(
        f"each of {updater.ranks.size} ranks: {fit.outlook(updates, updater.config.time_limit_seconds)}"
        if updater.ranks.size > 1
        else fit.outlook(updates, updater.config.time_limit_seconds)
    )
    return fit.halvings


@contextmanager
def _left_as_it_was(updater: Updater) -> Iterator[None]:
    """Within, as much memory is taken as in training; afterwards, there is no trace of it."""
    model, device = updater.model, updater.device
    buffers, was_training = [buffer.clone() for buffer in model.buffers()], model.training
    # Adam's two means, if they are not there yet. Not of zeros: memory for those is not taken before it is written.
    moments = [] if updater.optimizer.state else [torch.ones_like(one) for one in model.parameters() for _ in range(2)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            updater.optimizer.zero_grad()
            model.train(was_training)
            for buffer, before in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(before)
            moments.clear()


def _seconds(
    updater: Updater, shapes: list[Shape], safe_share: float, free: Callable[[torch.device], int | None]
) -> float | None:
    """How long the first of `shapes` takes once memory has been taken as in training; None if they do not all fit."""
    ranks = updater.ranks
    if is_sharded(updater.model):
        return _try_all(updater, shapes)
    expected = _unless_refused(updater, lambda: max(_forecast(updater, shape) for shape in shapes))
    # Asked even without need: no rank tries a whole batch while another measures.
    if ranks.any(expected is None):
        return None
    there = _free_for_each(updater, free)
    if ranks.any(there is not None and expected is not None and expected > safe_share * there):
        return None
    held = taken_memory(updater.device) or 0
    seconds = _unless_refused(updater, lambda: _try_all(updater, shapes))
    most = most_taken_memory(updater.device) if updater.device.type == "cuda" else None
    if most is not None and there is not None and most > safe_share * (held + there):  # nothing could be forecast
        seconds = None
    if not ranks.any(seconds is None):
        return seconds
    _give_back(updater)  # on the ranks where it did fit, too
    return None


def _free_for_each(updater: Updater, free: Callable[[torch.device], int | None]) -> int | None:
    """Bytes that this rank can still take: a GPU is its own, and the memory beside a CPU is for all of a machine."""
    there = free(updater.device)
    return there if there is None or updater.device.type != "cpu" else there // updater.ranks.num_here


def _unless_refused(updater: Updater, attempt: Callable[[], Found]) -> Found | None:
    """What the attempt returns; None if it is refused the memory."""
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    _give_back(updater)  # here and not above: the error held on to the tensors of the pass
    return None


def _give_back(updater: Updater) -> None:
    updater.optimizer.zero_grad()
    if updater.device.type == "cuda":
        torch.cuda.empty_cache()
    give_back_freed_memory()


def _try_all(updater: Updater, shapes: list[Shape]) -> float:
    """Try the shapes, whole, as micro-batches take as much together; then the seconds of the first, as in training."""
    forget_most_taken_memory(updater.device)  # of what was tried before
    attempts = [(shape, False) for shape in shapes] + [(shapes[0], updater.divides_batches)]
    attempts += attempts[-1:] * updater.divides_batches  # again, as the first time starts the processes
    seconds = 0.0
    for shape, divided in attempts:
        started = time.perf_counter()
        _try(updater, shape, divided=divided)
        seconds = time.perf_counter() - started
    return seconds


def _forecast(updater: Updater, shape: Shape) -> int:
    """Bytes that such a batch will take on a CPU beyond what is held now; 0 where that cannot be told.

    What one row adds shows between an eighth of the rows and twice as many. This needs an allocator that keeps what
    is freed until it is told otherwise.
    """
    few = shape.rows // 8
    if not few or updater.device.type != "cpu":
        return 0
    grown = []
    for rows in (few, 2 * few):
        updater.optimizer.zero_grad()
        if not give_back_freed_memory():
            return 0
        before = taken_memory(updater.device) or 0
        _try(updater, shape._replace(rows=rows))
        grown.append((taken_memory(updater.device) or 0) - before)
    updater.optimizer.zero_grad()
    give_back_freed_memory()
    return grown[1] + (grown[1] - grown[0]) * (shape.rows - 2 * few) // few


def _try(updater: Updater, shape: Shape, *, divided: bool = False) -> None:
    """Forward and backward of a batch of this shape."""
    updater.model.train()
    batch = shape.batch(updater.model.pad_id)
    if divided:
        updater.sum_gradients(0, [batch], batch.num_target_tokens)
    else:
        updater.accumulate(batch.to(updater.device), batch.num_target_tokens)
