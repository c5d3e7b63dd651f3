"""What a search finds, and how it is scored."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional


def length_penalty(length: int, alpha: float) -> float:
    """What the log-probability of `length` tokens, end included, is divided by: ((5 + length) / 6)^alpha.

    Wu et al. 2016, eq. 14; the paper uses alpha 0.6 (section 6.1), and alpha 0 is no penalty.
    """
    return math.pow((5 + length) / 6, alpha)


@dataclass(frozen=True)
class Hypothesis:
    """One finished output sequence."""

    ids: list[int]
    """Without the start symbol, with the end symbol."""

    score: float
    """The sum of `token_scores` divided by the length penalty."""

    token_scores: list[float]
    """The natural log-probability of each id."""

    @classmethod
    def from_tokens(cls, ids: Sequence[int], token_scores: Sequence[float], alpha: float) -> "Hypothesis":
        """Scores `ids`, of which the last is the end symbol."""
        return cls(list(ids), sum(token_scores) / length_penalty(len(ids), alpha), list(token_scores))


class Token(NamedTuple):
    """One token of a hypothesis that is being built, and the way back: nothing is ever copied."""

    id: int
    score: float
    previous: Optional["Token"]


def read_back(last: Token | None) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities of the hypothesis that ends with `last`, first token first."""
    ids, scores = [], []
    while last is not None:
        ids.append(last.id)
        scores.append(last.score)
        last = last.previous
    return ids[::-1], scores[::-1]
