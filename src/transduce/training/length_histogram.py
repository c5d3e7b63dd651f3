"""How long the sentences of the training text are, as few enough numbers for a line of metrics."""

from typing import Any

import numpy as np
from jaxtyping import Integer

NUM_BINS = 30


def length_histogram(lengths: Integer[np.ndarray, "pairs 2"]) -> dict[str, Any]:
    """Numbers of sides in bins of one width, `width` tokens each, from 0 on; and of each side median and longest.

    The last bin also holds everything longer: at most about one side in two hundred.

    Args:
        lengths: tokens of source and target of every pair, `</s>` included.
    """
    counts = {name: np.bincount(lengths[:, side]) for side, name in enumerate(("source", "target"))}
    usual = max(_quantile(count, 0.995) for count in counts.values())
    width = usual // NUM_BINS + 1
    return {
        "width": width,
        **{name: _binned(count, width) for name, count in counts.items()},
        "median": {name: _quantile(count, 0.5) for name, count in counts.items()},
        "longest": {name: len(count) - 1 for name, count in counts.items()},
    }


def _quantile(counts: Integer[np.ndarray, "lengths"], share: float) -> int:
    """The smallest length that at least `share` of all sides do not exceed."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))


def _binned(counts: Integer[np.ndarray, "lengths"], width: int) -> list[int]:
    bins = np.minimum(np.arange(len(counts)) // width, NUM_BINS - 1)
    return [int(counts[bins == number].sum()) for number in range(NUM_BINS)]
