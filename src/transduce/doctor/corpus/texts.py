"""Texts as the checks see them: numbers instead of lines, and where each pair stands in the files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64, Num, UInt8

from transduce.errors import CorpusError
from transduce.text import ParallelCorpus

LINES_AT_A_TIME = 50_000
"""Lines that computations over all words take at a time, so that they need little memory."""


class Place(NamedTuple):
    """Where a pair stands.

    Args:
        text: "training", "validation" or "test".
        corpus: the files.
        unit: "line", or "pair" in files whose pairs do not have a line each.
        number: which line or pair there, from 1.
    """

    text: str
    corpus: str
    unit: str
    number: int


@dataclass(frozen=True)
class Part:
    """One of the corpora of a text: its pairs are those from `start` up to, but without, `end` of the text."""

    corpus: ParallelCorpus
    name: str
    start: int
    end: int
    unit: str
    """What is numbered in its files: "line", or "pair" where pairs do not have a line each."""
    first_number: int
    """The number of its first pair: 2 in a table with a header, otherwise 1."""
    num_lines: tuple[int, int]
    """Lines of source and target, which differ if one of two files is longer."""


@dataclass(frozen=True)
class Side:
    """The lines of one side of a text."""

    words: Int32[np.ndarray, " words"]
    """The words of all lines, numbered by the `Vocabulary`, one line after the other."""
    starts: Int64[np.ndarray, " lines_and_end"]
    """Where the words of each line begin, and where those of the last one end."""
    digests: Int64[np.ndarray, " lines"]
    """A hash of each line as it is written; any two of a million different lines share one with probability 10^-7."""
    num_characters: Int32[np.ndarray, " lines"]
    """Characters of each line."""
    endings: UInt8[np.ndarray, " lines"]
    """The kind of the end of each line, by number."""
    cases: UInt8[np.ndarray, " lines"]
    """The case of the letters of each line, by number."""
    found: Mapping[str, Int64[np.ndarray, " found"]]
    """The lines that each `LineSearch` has found, by its name."""

    def __len__(self) -> int:
        return len(self.digests)

    @cached_property
    def num_words(self) -> Int64[np.ndarray, " lines"]:
        """Words of each line."""
        return np.diff(self.starts)

    def take(
        self, rows: Int[np.ndarray, " rows"], max_words: int
    ) -> tuple[Int32[np.ndarray, " words"], Int64[np.ndarray, " rows"]]:
        """The first `max_words` words of some lines, one line after the other, and how many each of them has."""
        counts = np.minimum(self.num_words[rows], max_words)
        places = np.repeat(self.starts[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return self.words[places], counts

    def select(self, rows: Int[np.ndarray, " rows"]) -> "Side":
        """Some lines, without what searches have found in them."""
        words, counts = self.take(rows, int(self.num_words.max(initial=0)))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return Side(
            words=words,
            starts=starts,
            digests=self.digests[rows],
            num_characters=self.num_characters[rows],
            endings=self.endings[rows],
            cases=self.cases[rows],
            found={},
        )

    def sum_over_words(
        self, values: Num[np.ndarray, " vocabulary"] | Bool[np.ndarray, " vocabulary"]
    ) -> Num[np.ndarray, " lines"]:
        """The sum of the values of its words for each line; of truth values, how many are true."""
        sums = np.zeros(len(self), np.result_type(values, np.int64))
        for first, end in divide_lines(len(self)):
            starts = self.starts[first : end + 1]
            totals = np.zeros(starts[-1] - starts[0] + 1, sums.dtype)
            np.cumsum(values[self.words[starts[0] : starts[-1]]], out=totals[1:])
            sums[first:end] = np.diff(totals[starts - starts[0]])
        return sums

    def count_words(self, vocabulary: int) -> Int64[np.ndarray, " vocabulary"]:
        """How often each word of the vocabulary occurs."""
        return np.bincount(self.words, minlength=vocabulary)


def divide_lines(num_lines: int) -> Iterator[tuple[int, int]]:
    """The beginnings and ends of stretches of lines to compute at a time."""
    return ((start, min(start + LINES_AT_A_TIME, num_lines)) for start in range(0, num_lines, LINES_AT_A_TIME))


@dataclass(frozen=True)
class Text:
    """A parallel text, of one corpus or more: all arrays have an item for each pair."""

    name: str
    """ "training", "validation" or "test"."""
    source: Side
    target: Side
    parts: tuple[Part, ...]
    different: Mapping[str, Int64[np.ndarray, " found"]]
    """The pairs that each `PairSearch` has found, by its name."""

    def __len__(self) -> int:
        return len(self.source)

    @property
    def is_training(self) -> bool:
        """Whether a model learns from it; other text is only translated and compared."""
        return self.name == "training"

    @property
    def sides(self) -> dict[str, Side]:
        """Both sides by name."""
        return {"source": self.source, "target": self.target}

    @cached_property
    def has_text(self) -> Bool[np.ndarray, " pairs"]:
        """Whether neither line of a pair is blank."""
        return (self.source.num_words > 0) & (self.target.num_words > 0)

    @cached_property
    def is_missing(self) -> Bool[np.ndarray, " pairs"]:
        """Whether a line of a pair stands for one that its file does not have, as the other file is longer."""
        missing = np.zeros(len(self), bool)
        for part in self.parts:
            missing[part.start + min(part.num_lines) : part.end] = True
        return missing

    @cached_property
    def is_exact_copy(self) -> Bool[np.ndarray, " pairs"]:
        """Whether both lines of a pair are the same to the letter."""
        return np.asarray(self.source.digests == self.target.digests)

    def find_tag(self, index: int) -> str:
        """The tag of a pair's corpus; "" if it has none."""
        return next(part.corpus.tag for part in self.parts if part.start <= index < part.end)

    def has_tag(self, tag: str) -> Bool[np.ndarray, " pairs"]:
        """Whether the corpus of each pair has this tag."""
        has_it = np.zeros(len(self), bool)
        for part in self.parts:
            has_it[part.start : part.end] = part.corpus.tag == tag
        return has_it

    def locate(self, index: int) -> Place:
        """The place of a pair in the files."""
        part = next(part for part in self.parts if part.start <= index < part.end)
        return Place(self.name, part.name, part.unit, index - part.start + part.first_number)

    def fetch_pairs(self, indices: Sequence[int]) -> dict[int, tuple[str, str]]:
        """Some of the pairs by their index, read from the files again.

        Raises:
            CorpusError: the files have changed.
        """
        wanted = set(indices)
        found: dict[int, tuple[str, str]] = {}
        for part in self.parts:
            if any(part.start <= index < part.end for index in wanted):
                numbered = enumerate(part.corpus, start=part.start)
                found |= {index: pair for index, pair in numbered if index in wanted}
        if len(found) < len(wanted):
            raise CorpusError(f"the {self.name} text has changed while it was read: start again when it is complete")
        return found
