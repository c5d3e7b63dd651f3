"""Losses, gradients and weights that are no numbers: what is done about them, and what is said."""

import math
from collections.abc import Sequence

from torch import nn

from transduce.bundle import model_tensors
from transduce.data import Batch
from transduce.errors import TrainingError
from transduce.text import Tokenizer
from transduce.training.sharding import whole
from transduce.training.stream import Place

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
