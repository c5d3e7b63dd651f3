"""The input of beam search and sampling: a batch of sentences, what their translations must contain, how to sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import ConfigError

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Constraints:
    """Constraints of the hypotheses of one sentence, in ids.

    Args:
        prefix: the first tokens of every hypothesis.
        required: phrases that every hypothesis contains exactly as often as they are given here; before that, it cannot
            end.
        forbidden: phrases that no hypothesis contains.
        continuing: for each required phrase, ids of tokens that continue its last word: none may directly follow it.
        given: required phrases that the prefix already contains, but spelled in other tokens than the search counts;
            each entry counts as one occurrence.
        after_prefix: ids of tokens that must not directly follow the prefix.
    """

    prefix: Phrase = ()
    required: tuple[Phrase, ...] = ()
    forbidden: tuple[Phrase, ...] = ()
    continuing: tuple[frozenset[int], ...] = ()
    given: tuple[Phrase, ...] = ()
    after_prefix: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not all(map(len, (*self.required, *self.forbidden))):
            raise ConfigError("a required or forbidden phrase has no tokens: give at least one")

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the prefix and all required phrases."""
        return len(self.prefix) + sum(map(len, self.required))


@dataclass(frozen=True)
class SearchTask:
    """A batch of sentences to be searched.

    Args:
        start_id: the id before the first token.
        end_id: the id that ends a hypothesis; it counts in all lengths.
        max_lengths: maximum number of tokens of a hypothesis, for each sentence; at least 1.
        min_length: minimum number of tokens of a hypothesis; if the maximum of a sentence is smaller, that applies.
        constraints: the constraints of each sentence; None: no constraints.
    """

    start_id: int
    end_id: int
    max_lengths: Sequence[int]
    min_length: int = 1
    constraints: Sequence[Constraints] | None = None

    def __post_init__(self) -> None:
        for sentence, limit in enumerate(self.max_lengths):
            if limit < 1:
                raise ConfigError(
                    f"max_lengths[{sentence}] = {limit} must be at least 1: the end symbol counts, "
                    f"so allow one token more"
                )


@dataclass(frozen=True)
class Sampling:
    """The distribution that tokens are drawn from: softmax(log-probabilities / `temperature`) without improbable ones.

    Args:
        temperature: 1 is the model's own distribution; lower values favour the most probable tokens.
        top_k: number of most probable tokens to draw from (Fan et al. 2018); 0: all.
        top_p: draw from the smallest set of the most probable of these tokens whose probabilities add up to this, and
            from tokens as probable as its last one (Holtzman et al. 2020).

    Raises:
        ConfigError: `temperature` is not above 0 or not finite, `top_k` negative, or `top_p` not in (0, 1].
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ConfigError(
                f"temperature = {self.temperature} must be above 0 and finite: "
                "1 is the model's distribution, lower values sharpen it"
            )
        if self.top_k < 0:
            raise ConfigError(f"top_k = {self.top_k} must not be negative; 0: no limit")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p = {self.top_p} must be above 0 and at most 1; 1: no limit")


_BATCH_SIZE_MULTIPLE = 16
"""Sizes of compacted batches are 1, 2, 4, 8 and multiples of this, as compacting copies the state and every new size
may need a new kernel."""


def compact_batch(is_done: Sequence[bool]) -> list[int]:
    """Indices of the sentences that stay in a batch: those not done, and some that are done up to the next size."""
    live = [place for place, done in enumerate(is_done) if not done]
    size = (
        -(-len(live) // _BATCH_SIZE_MULTIPLE) * _BATCH_SIZE_MULTIPLE
        if len(live) > _BATCH_SIZE_MULTIPLE // 2
        else 1 << (len(live) - 1).bit_length()
    )
    finished = [place for place, done in enumerate(is_done) if done]
    return sorted(live + finished[: size - len(live)])


def check_settings(beam: int, num_best: int, alpha: float) -> None:
    """Check the settings of a beam search.

    Raises:
        ConfigError: `beam` or `num_best` is below 1, or `alpha` is negative.
    """
    if beam < 1:
        raise ConfigError(f"beam = {beam} must be at least 1 (1 is greedy search)")
    if num_best < 1:
        raise ConfigError(f"num_best = {num_best} must be at least 1")
    if alpha < 0:
        raise ConfigError(f"alpha = {alpha} must not be negative; 0: no length penalty; the paper uses 0.6")
