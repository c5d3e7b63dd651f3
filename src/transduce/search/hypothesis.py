"""Hypotheses, the results of a search: finished ones with their scores, and tokens that unfinished ones share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple, Optional


def length_penalty(length: int, alpha: float) -> float:
    """The divisor of the log-probability of `length` tokens, end included: ((5 + length) / 6)^alpha.

    Wu et al. 2016, eq. 14; the paper uses alpha 0.6 (section 6.1), and alpha 0 is no penalty.
    """
    return math.pow((5 + length) / 6, alpha)


@dataclass(frozen=True)
class Hypothesis:
    """One finished output sequence."""

    ids: list[int]
    """Token ids, without the start symbol and with the end symbol."""

    score: float
    """The sum of `token_scores` divided by the length penalty."""

    token_scores: list[float]
    """The natural log-probability of each id."""

    @classmethod
    def from_tokens(cls, ids: Sequence[int], token_scores: Sequence[float], alpha: float) -> "Hypothesis":
        """The hypothesis of `ids`, of which the last is the end symbol, with its score."""
        total = reduce(add, token_scores, 0.0)  # as searches add them up; from Python 3.12 on, `sum` rounds otherwise
        return cls(list(ids), total / length_penalty(len(ids), alpha), list(token_scores))


class LinkedToken(NamedTuple):
    """The last token of an unfinished hypothesis, in a linked list with its predecessors, which hypotheses share."""

    id: int
    score: float
    previous: Optional["LinkedToken"]


def backtrack(last: LinkedToken | None) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities of the hypothesis that ends with `last`, first token first."""
    ids, scores = [], []
    while last is not None:
        ids.append(last.id)
        scores.append(last.score)
        last = last.previous
    return ids[::-1], scores[::-1]
