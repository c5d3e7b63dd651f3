"""Pairs of text, as many at a time as are worth a call."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias, TypeVar

Pair: TypeAlias = tuple[str, str]
Item = TypeVar("Item")

_PAIRS_AT_A_TIME = 10_000


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in order, in lists of 10,000."""
    iterator = iter(items)
    while chunk := list(islice(iterator, _PAIRS_AT_A_TIME)):
        yield chunk
