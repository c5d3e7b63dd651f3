"""Reasons to end a run before its last update, or to lower its learning rate: validations that do not improve,
divergence, Ctrl-C or a signal.
"""

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from torch import nn

from transduce.bundle import collect_model_tensors
from transduce.config import TrainingConfig
from transduce.data import Batch
from transduce.errors import DivergedError
from transduce.text import Tokenizer
from transduce.training.distributed import full_tensor
from transduce.training.distributed.batches import BatchPosition
from transduce.training.reporting import MetricsLine, rank_validation, select_lines

METRIC_NAMES = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}

MAX_SKIPPED_IN_A_ROW = 10
"""Number of consecutive skipped updates that end a run: ten in a row indicate divergence."""

DIVERGENCE_ADVICE = (
    "start over with --restart and a lower training.learning_rate, a longer training.warmup or, with "
    'training.optimizer = "adam", training.clip_norm = 1.0'
)

ACKNOWLEDGE_AFTER = 1.0
"""Seconds within which most requests to stop are granted; after that, a message confirms the request."""


def should_stop_early(training: TrainingConfig, num_without_gain: int) -> bool:
    """Whether `num_without_gain` validations in a row without a better `training.best_by` end the run (`patience`)."""
    return 0 < training.patience <= num_without_gain


def has_plateaued(training: TrainingConfig, num_without_gain: int) -> bool:
    """Whether schedule = "plateau" lowers the rate after `num_without_gain` validations in a row without a gain."""
    is_multiple = num_without_gain > 0 and num_without_gain % training.plateau_patience == 0
    return training.schedule == "plateau" and is_multiple


def explain_early_stop(training: TrainingConfig, lines: Sequence[MetricsLine]) -> str | None:
    """Why a run with these lines of metrics.jsonl ended early; None if it did not."""
    highest, best, since = [-math.inf], 0, list[int]()
    for line in select_lines(lines, "validation"):
        rank = rank_validation(line, training.best_by)
        if rank > highest:
            highest, best, since = rank, line["update"], []
        else:
            since.append(line["update"])
    if not should_stop_early(training, len(since)) or since[-1] >= training.updates:
        return None
    return (
        f"stopped after update {since[-1]:,}: {len(since)} validations in a row without a better "
        f"{METRIC_NAMES[training.best_by]}; best was update {best:,}; raise training.patience to continue"
    )


def is_finite(model: nn.Module) -> bool:
    """Whether all parameters and running statistics are finite; of a sharded model, all ranks call this together."""
    return all(bool(full_tensor(tensor).isfinite().all()) for tensor in collect_model_tensors(model).values())


def make_divergence_error(
    update: int, skipped: int, finding: str, taken: Sequence[tuple[BatchPosition, Batch]], tokenizer: Tokenizer
) -> DivergedError:
    """The error that ends a run after `skipped` updates in a row; it shows the batches of the last one, `taken`.

    For each batch the message has the position and the first three pairs, one per line, cut to 60 characters per side.
    With several ranks, these pairs are from the share of the rank that raises the error first.
    """
    lines = []
    for place, batch in taken:
        lines.append(f"batch {place.batch} of epoch {place.epoch + 1}, {len(batch.source_ids)} pairs, which begins:")
        for pair in zip(batch.source_ids[:3], batch.target_ids[:3], strict=True):
            texts = [tokenizer.decode(ids.tolist()) for ids in pair]
            lines.append("  " + " -> ".join(repr(text if len(text) <= 60 else f"{text[:60]}…") for text in texts))
    text = "\n".join(lines)
    return DivergedError(
        f"training has diverged: update {update} is the last of {skipped} consecutive skipped updates; {finding}; "
        f"{DIVERGENCE_ADVICE}, or look at its text: {text}"
    )


class StopRequest:
    """A request to end training at the next safe moment, made by a signal."""

    def __init__(self) -> None:
        self.is_requested = False

    def handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Request the end; a second signal raises KeyboardInterrupt at once."""
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def catch_stop_signals(report: Callable[[str], None] = lambda _: None) -> Iterator[StopRequest]:
    """Make SIGINT and SIGTERM set a `StopRequest` instead of ending the process; only in the main thread.

    `report` is called from a separate thread with a confirmation of the request, if it is not granted soon.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    is_over = threading.Event()
    # A thread polls for the request: a signal handler must not acquire locks, as starting a thread or writing does.
    threading.Thread(target=_acknowledge, args=(request, is_over, report), daemon=True).start()
    before = {number: signal.signal(number, request.handle_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        is_over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _acknowledge(request: StopRequest, is_over: threading.Event, report: Callable[[str], None]) -> None:
    while not is_over.wait(ACKNOWLEDGE_AFTER):
        if request.is_requested:
            report(
                "stopping after this update or micro-batch; a second signal ends the run at once, without a checkpoint"
            )
            return
