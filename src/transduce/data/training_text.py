"""The pairs of the training text: which of them repeat an earlier one, are held out for validation, or left out."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int, UInt8

from transduce.errors import CorpusError
from transduce.text import WITHOUT_SPACES, Cleaner, Pair

Item = TypeVar("Item")

_PAIRS_AT_A_TIME = 10_000


def iterate_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in order, in lists of at most 10,000."""
    iterator = iter(items)
    while chunk := list(islice(iterator, _PAIRS_AT_A_TIME)):
        yield chunk


def is_blank(pair: Pair) -> bool:
    """Whether a side of the pair has no text."""
    return not all(side.strip() for side in pair)


def split_data_tag(source: str, tags: Sequence[str]) -> tuple[str, str]:
    """The tag of a training corpus at the beginning of a source, "" if there is none, and the text behind it."""
    tag = next((tag for tag in tags if source.startswith(f"{tag} ")), "")
    return tag, source[len(tag) + 1 :] if tag else source


def may_be_kept(pair: Pair, cleaner: Cleaner, tags: Sequence[str] = ()) -> bool:
    """Whether cleaning would keep a pair, repetitions aside, as far as that can be decided before there is a tokenizer.

    Words stand for pieces, or characters in a script without spaces, for which the ratio of lengths is not checked.
    Held-out pairs, which are chosen by this, are checked again with the tokenizer.

    Args:
        pair: a pair of the training text.
        cleaner: has the rules, and counts the pair.
        tags: the tags that sources may begin with, which are no part of the text.
    """
    source, target = split_data_tag(pair[0], tags)[1], pair[1]
    units = [side if WITHOUT_SPACES.search(side) else side.split() for side in (source, target)]
    lengths = [*map(len, units)]
    if str in map(type, units):
        lengths = [max(lengths)] * 2
    return cleaner.keeps(source, target, *lengths, is_repeated=False)


def choose_held_out(pairs: Iterable[Pair], count: int, is_clean: Callable[[Pair], bool]) -> list[Pair]:
    """Choose the pairs that are held out for validation: of the clean ones, `count` with the smallest SHA-256.

    Each pair is chosen once. This random choice does not depend on the order of the corpus and changes little when it
    grows.
    """
    chosen: dict[int, Pair] = {}
    largest_first: list[int] = []  # the digests in `chosen`, negated, as a heap
    for pair in pairs:
        digest = int.from_bytes(hashlib.sha256("\n".join(pair).encode()).digest(), "big")
        if digest in chosen or not is_clean(pair):
            continue
        chosen[digest] = pair
        heapq.heappush(largest_first, -digest)
        if len(chosen) > count:
            del chosen[-heapq.heappop(largest_first)]
    return [chosen[digest] for digest in sorted(chosen)]


_NUM_FILES = 64
_ENTRY = np.dtype([("digest", "<u8", 2), ("index", "<i8")])


class RepetitionFinder:
    """Finds pairs that repeat an earlier one, by digests that are kept in 64 files in a folder.

    Equal digests are in the same file, and one file at a time is read into memory: with ten million pairs, 4 MB. A
    digest has 16 bytes: the probability that any two of 10^12 pairs share one is 10^-15.
    """

    def __init__(self, folder: Path) -> None:
        self._files = [folder / f"{number:02}.bin" for number in range(_NUM_FILES)]
        self._num_pairs = 0

    def record(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs, and record them."""
        for chunk in iterate_chunks(pairs):
            self._add(chunk)
            yield from chunk

    def _add(self, pairs: Sequence[Pair]) -> None:
        # No kept text has a line break, so the boundary between the sides is unambiguous.
        found = b"".join(hashlib.blake2b("\n".join(pair).encode(), digest_size=16).digest() for pair in pairs)
        digests = np.frombuffer(found, np.uint8).reshape(-1, 16)
        entries = np.empty(len(pairs), _ENTRY)
        entries["digest"] = digests.view("<u8")
        entries["index"] = np.arange(self._num_pairs, self._num_pairs + len(pairs))
        numbers = digests[:, 0] % _NUM_FILES
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=_NUM_FILES))
        for path, part in zip(self._files, np.split(entries[order], ends[:-1]), strict=True):
            with path.open("ab") as file:
                file.write(part.tobytes())
        self._num_pairs += len(pairs)

    def find_repeats(self) -> Bool[np.ndarray, "pairs"]:
        """Whether each of the pairs, in their order, is the same as an earlier one."""
        repeats = np.zeros(self._num_pairs, bool)
        for path in self._files if self._num_pairs else []:
            entries = np.fromfile(path, _ENTRY)
            # Sorting is stable: of equal pairs, the earliest comes first.
            entries = entries[np.lexsort(entries["digest"].T)]
            same = (entries["digest"][1:] == entries["digest"][:-1]).all(axis=1)
            repeats[entries["index"][1:][same]] = True
        return repeats


@dataclass(frozen=True)
class FilteredPairs:
    """The pairs that filters leave out.

    Args:
        names: the filters.
        numbers: for each pair, in order through all corpora, 0 if no filter leaves it out, or else the number of the
            first that does, from 1.
    """

    names: Sequence[str]
    numbers: UInt8[np.ndarray, "pairs"]

    @classmethod
    def make(cls, filtered: Mapping[str, Int[np.ndarray, "..."]], num_pairs: int) -> "FilteredPairs":
        """Make it for a text of `num_pairs` pairs from the indices that each filter leaves out.

        A pair that several filters leave out counts for the first.
        """
        numbers = np.zeros(num_pairs, np.uint8)
        for number, rows in reversed([*enumerate(filtered.values(), start=1)]):
            numbers[rows] = number
        return cls(list(filtered), numbers)


@dataclass(frozen=True)
class TrainingText:
    """The pairs of all corpora that are trained on, and those held out of them for validation.

    A pair is not trained on if it has the source or the target of a held-out pair, tags aside. Pairs of validation
    files are not looked for: they may be trained on, too.
    """

    corpora: Sequence[Iterable[Pair]]
    num_pairs: Sequence[int]
    """The number of pairs of each corpus, held-out pairs included."""
    held_out: list[Pair]
    repeats: Bool[np.ndarray, "pairs"]
    """Whether each pair, in order through all corpora, is the same as an earlier one."""
    filtered: FilteredPairs
    """The pairs that filters leave out."""
    tags: Sequence[str] = ()
    """The tags that sources may begin with."""

    def __iter__(self) -> Iterator[Pair]:
        return (pair for number in range(len(self.corpora)) for pair, _ in self.iterate_corpus(number))

    def iterate_corpus(self, number: int, left_out: Counter[str] | None = None) -> Iterator[tuple[Pair, bool]]:
        """Iterate over the pairs of a corpus, each with whether it repeats an earlier pair, also of another corpus.

        Args:
            number: index of the corpus, from 0.
            left_out: counts the pairs that are left out: under the name of each filter; as "held_out", if they are held
                out themselves; and as "like_held_out", if they repeat a held-out pair or share one of its two sides.

        Raises:
            CorpusError: the number of pairs has changed.
        """
        sources = {split_data_tag(source, self.tags)[1] for source, _ in self.held_out}
        targets = {target for _, target in self.held_out}
        held_out = set(self.held_out)
        start = sum(self.num_pairs[:number])
        rows = slice(start, start + self.num_pairs[number])
        marks = zip(map(bool, self.repeats[rows].tobytes()), self.filtered.numbers[rows].tobytes(), strict=True)
        for pair, mark in zip_longest(self.corpora[number], marks):
            if pair is None or mark is None:
                raise CorpusError(
                    f"corpus {number + 1} of {len(self.corpora)}: has changed while it was read: start again when the "
                    "file is complete"
                )
            again, number_of_filter = mark
            if number_of_filter:
                if left_out is not None:
                    left_out[self.filtered.names[number_of_filter - 1]] += 1
            elif split_data_tag(pair[0], self.tags)[1] not in sources and pair[1] not in targets:
                yield pair, again
            elif left_out is not None:
                left_out["held_out" if pair in held_out and not again else "like_held_out"] += 1
