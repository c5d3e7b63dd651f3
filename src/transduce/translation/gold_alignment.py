"""Word alignments made by people, in sure and possible links (Och & Ney 2003)."""

import re
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import CorpusError
from transduce.text import read_lines

Positions = tuple[int, int]
"""Number of a source word and of a target word, from 0."""


@dataclass(frozen=True)
class GoldAlignment:
    """The links of one pair: those that must be found, and those that may be, all sure ones among them."""

    sure: frozenset[Positions]
    possible: frozenset[Positions]


def read_gold_alignments(path: Path, num_pairs: int) -> list[GoldAlignment]:
    """One a line in Pharaoh's format: "0-0 2-1" are sure links, source word and target word; "2?1" or "2p1" possible.

    Args:
        path: the file; plain or compressed.
        num_pairs: of the text that it belongs to.

    Raises:
        CorpusError: it cannot be read, has another number of lines, or a link is written otherwise.
    """
    lines = list(read_lines(path))  # to its end: a wrong link leaves no file open
    alignments = [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
    if len(alignments) != num_pairs:
        raise CorpusError(
            f"{path} has {len(alignments)} lines and its text has {num_pairs} pairs: there must be one line for each"
        )
    return alignments


def _parsed(line: str, place: str) -> GoldAlignment:
    sure, possible = set(), set()
    for link in line.split():
        parts = re.fullmatch(r"(\d{1,6})([-?p])(\d{1,6})", link, flags=re.ASCII)
        if parts is None:
            raise CorpusError(
                f"{place}: {link!r} must be a sure link, as in 0-0 (source word, target word, from 0), "
                f"or a possible one, as in 2?1"
            )
        source, kind, target = parts.groups()
        possible.add((int(source), int(target)))
        if kind == "-":
            sure.add((int(source), int(target)))
    return GoldAlignment(frozenset(sure), frozenset(possible))
