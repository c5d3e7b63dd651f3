"""What ends a run before its last update: early stopping, divergence, and a request by Ctrl-C or a signal."""

import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import nn

from transduce.bundle import model_tensors
from transduce.config import TrainingConfig
from transduce.data import Batch
from transduce.errors import TrainingError
from transduce.text import Tokenizer
from transduce.training.distributed.batch_stream import Place
from transduce.training.distributed.sharding import whole

NAMES = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}


def end_of_patience(training: TrainingConfig, lines: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say of a run that ended early, by its lines of metrics.jsonl; nothing of any other."""
    highest, best, since = [-math.inf], 0, list[int]()
    for line in lines:
        if line["kind"] != "validation":
            continue
        quality = [_quality(line, name) for name in (training.best_by, "chrf", "loss")]  # the two last decide ties
        if quality > highest:
            highest, best, since = quality, line["update"], []
        else:
            since.append(line["update"])
    if not 0 < training.patience <= len(since) or since[-1] >= training.updates:
        return None
    return (
        f"stopped after update {since[-1]:,}: {len(since)} validations in a row without a better "
        f"{NAMES[training.best_by]}; best was update {best:,}; raise training.patience to go on"
    )


def _quality(line: Mapping[str, Any], best_by: str) -> float:
    """No number, which is never better, where a damaged line does not have the figure."""
    if best_by == "loss":
        return -float(line.get("loss", math.nan))
    values = (float(score["value"]) for score in line.get("scores", ()) if score["metric"].lower() == best_by)
    return next(values, math.nan)


MOST_SKIPPED_IN_A_ROW = 10
"""Skipped updates in a row that end a run: one bad batch is an accident, ten in a row are none."""

REMEDY = (
    "start over with --restart and a lower training.learning_rate, a longer training.warmup or training.clip_norm = 1.0"
)


def must_skip(loss: float, gradient_norm: float) -> bool:
    """Whether an update with this loss and this norm of the gradient must leave weights and optimiser alone.

    A step along a gradient that is infinite or no number would make every weight so, for good. Loss scaling skips
    such steps (Micikevicius et al. 2018); here every precision does.
    """
    return not (math.isfinite(loss) and math.isfinite(gradient_norm))


def is_finite(model: nn.Module) -> bool:
    """Whether all parameters and running statistics are finite: what is not can never be trained right again.

    Of a sharded model they are put together: all ranks must call this together.
    """
    return all(bool(whole(tensor).isfinite().all()) for tensor in model_tensors(model).values())


def too_many_skipped(
    update: int, skipped: int, finding: str, taken: Sequence[tuple[Place, Batch]], tokenizer: Tokenizer
) -> TrainingError:
    """The error that ends a run after `skipped` updates in a row; it names the batches of the last one, `taken`.

    Of several ranks, it is whichever is the first to say so that names its own share of them.
    """
    return TrainingError(
        f"training has diverged: update {update} is the last of {skipped} in a row that had to be skipped; {finding}; "
        f"{REMEDY}, or look at its text: {batch_text(taken, tokenizer)}"
    )


def batch_text(taken: Sequence[tuple[Place, Batch]], tokenizer: Tokenizer, num_pairs: int = 3, width: int = 60) -> str:
    """Which batches these are, and the first `num_pairs` pairs of each, a line each and cut to `width` characters.

    Args:
        taken: batches, each with the place behind it.
        tokenizer: turns their ids into text.
        num_pairs: how many pairs of each batch are shown.
        width: most characters shown of a side.
    """
    lines = []
    for place, batch in taken:
        lines.append(f"batch {place.batch} of epoch {place.epoch + 1}, {len(batch.source_ids)} pairs, which begins:")
        for pair in list(zip(batch.source_ids, batch.target_ids, strict=True))[:num_pairs]:
            texts = [tokenizer.decode(ids.tolist()) for ids in pair]
            lines.append("  " + " -> ".join(repr(text if len(text) <= width else f"{text[:width]}…") for text in texts))
    return "\n".join(lines)


MOMENT = 1.0
"""Seconds in which most wishes are granted; after that, it is said that this one was heard."""


class StopWish:
    """Whether somebody has asked for an end."""

    def __init__(self) -> None:
        self.wished = False

    def wish(self, _number: int, _frame: FrameType | None) -> None:
        """Ask; a second time is answered at once with KeyboardInterrupt."""
        if self.wished:
            raise KeyboardInterrupt
        self.wished = True


@contextmanager
def stop_wish(say: Callable[[str], None] = lambda _: None) -> Iterator[StopWish]:
    """Within, SIGINT and SIGTERM set a wish instead of ending the process; in another thread, nothing changes.

    `say` is told, by a thread of its own, that the wish was heard, if it is not granted soon.
    """
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    is_over = threading.Event()
    # It looks by itself: a handler of signals may touch no lock, and to start a thread or to write takes some.
    threading.Thread(target=_announce, args=(wish, is_over, say), daemon=True).start()
    before = {number: signal.signal(number, wish.wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        is_over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(wish: StopWish, is_over: threading.Event, say: Callable[[str], None]) -> None:
    while not is_over.wait(MOMENT):
        if wish.wished:
            say("stopping after this update, or before if it is computed in parts; once more ends it at once")
            return
