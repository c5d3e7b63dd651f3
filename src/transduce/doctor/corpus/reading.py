"""The one pass over the files of a text: words, lengths and hashes of all lines, and searches in their characters."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from re import Pattern
from typing import NamedTuple

import numpy as np

from transduce.data.training_text import iterate_chunks
from transduce.doctor.corpus.texts import Part, Side, Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.errors import CorpusError
from transduce.text import Pair, ParallelCorpus


class LineSearch(NamedTuple):
    """A search for lines that contain a match of a pattern.

    Args:
        pattern: the pattern; it must not match a tab, which separates the lines that are searched at once.
        condition: a further condition on a line with a match.
    """

    pattern: Pattern[str]
    condition: Callable[[str], bool] = lambda _: True


class PairSearch(NamedTuple):
    """A search for pairs of which at least one line contains a match of a pattern.

    Args:
        pattern: the pattern; it must not match a line end, which separates the lines that are searched at once.
        is_different: a further condition on the two lines of a pair with a match.
    """

    pattern: Pattern[str]
    is_different: Callable[[str, str], bool]


class Searches(NamedTuple):
    """The searches in the characters of a text, by their names, and the classification of every line."""

    lines: Mapping[str, LineSearch]
    pairs: Mapping[str, PairSearch]
    classify_ending: Callable[[str], int]
    """The kind of a line's end, by number."""
    classify_case: Callable[[str], int]
    """The case of a line's letters, by number."""


def _hash_line(line: str) -> bytes:
    """A hash of 64 bits that is the same in every process; Python's own is not."""
    return blake2b(line.encode(errors="surrogatepass"), digest_size=8).digest()


@dataclass
class _SideReader:
    """Collects the words, lengths, hashes and search results of one side of a text."""

    searches: Searches
    words: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)
    digests: array = field(default_factory=lambda: array("q"))  # type: ignore[type-arg]
    num_characters: array = field(default_factory=lambda: array("i"))  # type: ignore[type-arg]
    endings: bytearray = field(default_factory=bytearray)
    cases: bytearray = field(default_factory=bytearray)
    found: dict[str, array] = field(default_factory=dict)  # type: ignore[type-arg]

    def __post_init__(self) -> None:
        self.found = {name: array("q") for name in self.searches.lines}

    def read(self, lines: Sequence[str], vocabulary: Vocabulary) -> dict[str, set[int]]:
        """Add lines; returns, by the name of each search for pairs, the indices of the lines with a match."""
        first = len(self.digests)
        words, counts = vocabulary.number_lines(lines)
        self.words.append(words)
        self.counts.append(counts)
        self.digests.frombytes(b"".join(map(_hash_line, lines)))
        self.num_characters.extend(map(len, lines))
        self.endings.extend(map(self.searches.classify_ending, lines))
        self.cases.extend(map(self.searches.classify_case, lines))
        block = _Block(lines, "\t")
        for name, search in self.searches.lines.items():
            self.found[name].extend(first + row for row in block.find(search.pattern) if search.condition(lines[row]))
        block = _Block(lines, "\n")
        return {name: set(block.find(search.pattern)) for name, search in self.searches.pairs.items()}

    def finish(self) -> Side:
        starts = np.concatenate([[0], np.cumsum(np.concatenate(self.counts))])
        words = np.concatenate(self.words)
        self.words.clear()
        return Side(
            words=words,
            starts=starts,
            digests=np.array(self.digests, np.int64),
            num_characters=np.array(self.num_characters, np.int32),
            endings=np.frombuffer(bytes(self.endings), np.uint8),
            cases=np.frombuffer(bytes(self.cases), np.uint8),
            found={name: np.array(rows, np.int64) for name, rows in self.found.items()},
        )


class _Block:
    """Lines joined to one text, as one search in it is much faster than a search in every line.

    Args:
        lines: the lines.
        separator: the character between them, which no pattern matches.
    """

    def __init__(self, lines: Sequence[str], separator: str) -> None:
        self._text = separator.join(lines)
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]

    def find(self, pattern: Pattern[str]) -> list[int]:
        """The indices of the lines that contain a match, each once."""
        rows: list[int] = []
        position = 0
        while match := pattern.search(self._text, position):
            rows.append(bisect_right(self._starts, match.start()) - 1)
            position = self._starts[rows[-1] + 1]
        return rows


class _MissingLine(str):
    """A blank line in place of one that a file does not have."""

    __slots__ = ()


MISSING = _MissingLine()
"""The line of a file that ends before the other one."""


def open_unequal_corpus(corpus: ParallelCorpus) -> ParallelCorpus:
    """The corpus; of two texts, the last lines are blank on one side where one has more lines than the other.

    Training refuses such texts, but where their lines begin to differ can only be found by reading on.
    """
    return corpus if corpus.read_to_end is None else replace(corpus, read=partial(corpus.read_to_end, MISSING))


_LINE_FORMATS = {".tsv", ".jsonl", ".ndjson"}
"""Endings of files of pairs that have a line for each pair."""


def _find_numbering(corpus: ParallelCorpus) -> tuple[str, int]:
    """What is numbered in the files of a corpus, and the number of its first pair."""
    endings = {suffix.lower() for suffix in corpus.files[0].suffixes}
    has_header = ".tsv" in endings and corpus.describe_omissions() != ""
    has_lines = endings & _LINE_FORMATS or corpus.read_to_end is not None
    return ("line" if has_lines else "pair"), (2 if has_header else 1)


def read_corpora(
    name: str, corpora: Sequence[tuple[str, ParallelCorpus]], vocabulary: Vocabulary, searches: Searches
) -> Text:
    """Read all pairs of a text once.

    Args:
        name: "training", "validation" or "test".
        corpora: the corpora, each with the name of its files.
        vocabulary: takes the words that it does not have yet.
        searches: what is searched for.

    Raises:
        CorpusError: a file cannot be read, is not UTF-8 or breaks its format, or there are no pairs.
    """
    sides = _SideReader(searches), _SideReader(searches)
    different = {search: array("q") for search in searches.pairs}
    parts: list[Part] = []
    for corpus_name, corpus in corpora:
        start, num_missing = len(sides[0].digests), [0, 0]
        for pairs in iterate_chunks(corpus):
            _read_block(pairs, sides, vocabulary, different)
            for side in (0, 1):
                num_missing[side] += sum(pair[side] is MISSING for pair in pairs)
        end = len(sides[0].digests)
        if start == end:
            raise CorpusError(f"{corpus_name}: empty; at least one pair is needed")
        unit, first_number = _find_numbering(corpus)
        num_lines = end - start - num_missing[0], end - start - num_missing[1]
        parts.append(Part(corpus, corpus_name, start, end, unit, first_number, num_lines))
    rows = {search: np.array(found, np.int64) for search, found in different.items()}
    return Text(name, sides[0].finish(), sides[1].finish(), tuple(parts), rows)


def _read_block(
    pairs: Sequence[Pair],
    sides: tuple[_SideReader, _SideReader],
    vocabulary: Vocabulary,
    different: Mapping[str, "array[int]"],
) -> None:
    first = len(sides[0].digests)
    lines = [[pair[side] for pair in pairs] for side in (0, 1)]
    found = [reader.read(some, vocabulary) for reader, some in zip(sides, lines, strict=True)]
    for name, rows in different.items():
        search = sides[0].searches.pairs[name]
        candidates = sorted(found[0][name] | found[1][name])
        rows.extend(first + row for row in candidates if search.is_different(lines[0][row], lines[1][row]))
