"""What a search refuses: hypotheses that get too long, and log-probabilities that are no numbers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.errors import ConfigError, TransduceError


def read_limits(max_lengths: Int[Tensor, "batch"]) -> list[int]:
    """The greatest length of each sentence, end included.

    Raises:
        ConfigError: a length leaves no room for the end symbol.
    """
    limits: list[int] = max_lengths.tolist()
    for sentence, limit in enumerate(limits):
        if limit < 1:
            raise ConfigError(
                f"max_lengths[{sentence}] = {limit} must be at least 1: the end symbol counts, so allow one token more"
            )
    return limits


def allow_only_end(
    log_probs: Float[Tensor, "rows vocabulary"], rows: Sequence[int], end_id: int
) -> Float[Tensor, "rows vocabulary"]:
    """Forbids everything but `end_id` in the given rows, without renormalising: its log-probability stays true."""
    if not rows:
        return log_probs
    index = torch.tensor(rows, device=log_probs.device)
    limited = log_probs.clone()
    limited[index] = -torch.inf
    limited[index, end_id] = log_probs[index, end_id]
    return limited


def check_numbers(log_probs: Float[Tensor, "*shape"]) -> None:
    """Stops a search that could not end: a NaN is neither better nor worse than anything.

    Raises:
        TransduceError: a log-probability is NaN.
    """
    if log_probs.isnan().any():
        raise TransduceError("the model's probabilities are not numbers (NaN): its weights are damaged, or diverged")
