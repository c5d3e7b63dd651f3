"""Blocks of consecutive lines, the unit in which files are translated, written and resumed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BLOCK_LINES = 2000
"""Lines of a block unless given: enough for batches of similar length, few enough to be done again after a crash."""

MAX_LOSSES = 3
"""The number of workers lost over the same block at which the translation fails."""


@dataclass(frozen=True)
class Block:
    """Consecutive lines of a file.

    Args:
        number: number of the block in its file, from 0.
        first: number of its first line, row or record in the file, from 1.
        lines: the texts to be translated, each a line.
        numbers: for each of `lines` the number of its line, row or record in the file, from 1.
        records: what the format of the file needs to write the translations into their places.
        share: share of the file that has been read when the block is complete, from 0 to 1.
        file: number of the file, from 0.
        path: path or URL of the file, for messages.
    """

    number: int
    first: int
    lines: list[str]
    numbers: Sequence[int]
    records: Any = None
    share: float = 1.0
    file: int = 0
    path: str = ""
