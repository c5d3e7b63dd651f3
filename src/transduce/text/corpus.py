"""Parallel corpora, streamed from files, and the cleaning of their pairs."""

import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from transduce.config import TextConfig
from transduce.errors import CorpusError

Pair = tuple[str, str]
"""A source text and its target text."""


@dataclass(frozen=True)
class ParallelCorpus:
    """Pairs of source and target text; each iteration reads the files again. `open_parallel_corpus` makes it.

    Args:
        name: what messages call it: its path or its two paths.
        files: all files whose contents decide the pairs.
        read: opens them and yields the pairs.
        describe_omissions: opens them and returns a clause about what in them is not a pair and is left out, such as
            the header of a table; "" if nothing is left out.
        is_by_language: whether the languages of source and target decide which texts are read if no columns are given.
        read_to_end: only for two texts paired line for line, else None: reads on where `read` raises an error because
            one text is shorter, with the given line in place of each missing one.
        tag: the tag of the corpus among others, as for its target language, whether or not its sources begin with it;
            "" if it has none.
    """

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Iterator[Pair]]
    describe_omissions: Callable[[], str] = lambda: ""
    is_by_language: bool = False
    read_to_end: Callable[[str], Iterator[Pair]] | None = None
    tag: str = ""

    def __iter__(self) -> Iterator[Pair]:
        return self.read()

    def swap_sides(self) -> "ParallelCorpus":
        """The same pairs with source and target exchanged."""
        read_to_end = self.read_to_end
        return replace(
            self,
            read=lambda: _swap(self.read()),
            read_to_end=None if read_to_end is None else lambda missing: _swap(read_to_end(missing)),
        )

    def with_tag(self, tag: str) -> "ParallelCorpus":
        """The same pairs with a tag and a space in front of each source."""
        return replace(
            self,
            read=lambda: ((f"{tag} {source}", target) for source, target in self.read()),
            read_to_end=None,
            tag=tag,
        )

    def check(self) -> int:
        """The number of pairs, after reading all of them once; one pair is held in memory at a time.

        Raises:
            CorpusError: a file is damaged, is not UTF-8 or breaks its format, or there are no pairs.
        """
        num_pairs = sum(1 for _ in self)
        if not num_pairs:
            raise CorpusError(f"{self.name}: empty; at least one pair is needed")
        return num_pairs


def _swap(pairs: Iterator[Pair]) -> Iterator[Pair]:
    return ((target, source) for source, target in pairs)


def write_standard_input(stream: BinaryIO, path: Path) -> None:
    """Copy a stream, which can be read only once, to the file `path`."""
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)


CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
"""Matches a control character (Unicode category Cc) other than the tab, such as a line end."""

LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Matches half of a character, which JSON can contain, but a UTF-8 file cannot. In the name of a file, Python has one
for each byte that is not UTF-8."""


def escape_surrogates(text: str) -> str:
    r"""The text with escapes, as in \udce9, for halves of characters, so that it can be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}

# Up to this many pieces, the length of a sentence says little about that of its translation.
_SHORT = 8


class Cleaner:
    """Decides which pairs training keeps, and counts the others under the first rule that each breaks."""

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        rules = ("blank", "control_characters", "copy", "too_long", "ratio", "duplicate")  # their names are in reports
        self.counts = dict.fromkeys([*rules, "kept"], 0)

    def keeps(self, source: str, target: str, source_pieces: int, target_pieces: int, *, is_repeated: bool) -> bool:
        """Whether training keeps the pair, which is counted.

        Args:
            source: the source text.
            target: the target text.
            source_pieces: number of pieces of the source, without `</s>`.
            target_pieces: that of the target.
            is_repeated: whether an earlier pair is the same.
        """
        decision = (
            self._find_broken_rule(source, target, source_pieces, target_pieces, is_repeated=is_repeated) or "kept"
        )
        self.counts[decision] += 1
        return decision == "kept"

    def _find_broken_rule(
        self, source: str, target: str, source_pieces: int, target_pieces: int, *, is_repeated: bool
    ) -> str | None:
        config = self.config
        shorter, longer = sorted((source_pieces, target_pieces))
        # The tokenizer may drop visible characters, as in a side that contains only "▁".
        if not (shorter and is_visible(source) and is_visible(target)):
            return "blank"
        if CONTROL_CHARACTER.search(source) or CONTROL_CHARACTER.search(target):
            return "control_characters"
        if config.drop_copies and source.strip() == target.strip():
            return "copy"
        if longer > config.max_pieces:
            return "too_long"
        if longer > _SHORT and longer > config.max_ratio * shorter:
            return "ratio"
        # Repetitions come last: the pairs that they repeat are left out by the same rules.
        return "duplicate" if config.drop_duplicates and is_repeated else None


def is_one_line(text: str) -> bool:
    """Whether a text is a single line: it has none of the characters at which `str.splitlines` divides."""
    return "".join(text.splitlines()) == text


def is_visible(text: str) -> bool:
    """Whether the text has a character that can be seen, unlike spaces, control characters and soft hyphens."""
    return any(unicodedata.category(character) not in _INVISIBLE for character in text)
