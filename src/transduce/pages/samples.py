"""Which of many items a report shows, or a figure in it is measured on."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_Item = TypeVar("_Item")


def sample_evenly(items: Sequence[_Item], max_count: int) -> list[_Item]:
    """At most `max_count` of the items, evenly spread: the first, and if there may be more than one, also the last."""
    if len(items) <= max_count:
        return list(items)
    return [items[number * (len(items) - 1) // max(1, max_count - 1)] for number in range(max_count)]


def choose_evenly(items: Sequence[_Item], count: int) -> list[_Item]:
    """At most `count` of the items, in their order: the first of each of `count` equal stretches."""
    if len(items) <= count:
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]


def sample_randomly(items: Sequence[_Item], max_count: int) -> list[_Item]:
    """At most `max_count` of the items at random, in their order, and always the same ones.

    Shares are measured on such a sample: one that is evenly spread would see one side of a text that alternates, as
    where every second pair is in another language.
    """
    if len(items) <= max_count:
        return list(items)
    chosen = np.random.default_rng(1).choice(len(items), max_count, replace=False)
    return [items[index] for index in sorted(chosen.tolist())]
