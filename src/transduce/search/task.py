"""What is asked of a search."""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import ConfigError
from transduce.search.constraints import Constraints


@dataclass(frozen=True)
class SearchTask:
    """A batch of sentences.

    Args:
        start_id: stands before the first token.
        end_id: ends a hypothesis; counts in all lengths.
        max_lengths: most tokens of a hypothesis of each sentence.
        min_length: fewest tokens of a hypothesis; a sentence falls short of it where its maximum is less.
        constraints: what the hypotheses of each sentence must and must not contain; None: anything.

    Raises:
        ConfigError: a maximum length is below 1.
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
