"""Parallel text: two files line for line, or one file of pairs; streamed, as often as wanted."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from transduce.errors import ConfigError, CorpusError
from transduce.text.lines import check_file, read_lines
from transduce.text.records import Pair, read_json, read_tsv, tsv_header

_COMPRESSED = {".gz", ".xz", ".zst"}


@dataclass(frozen=True)
class ParallelCorpus:
    """Pairs of source and target text, read anew by every iteration.

    Args:
        files: the files read; source and target, or one file of pairs.
        read: opens them and yields the pairs.
        header: opens them and returns the first row of a table if it names the columns, and is no pair therefore.
    """

    files: tuple[Path, ...]
    read: Callable[[], Iterator[Pair]]
    header: Callable[[], Pair | None] = lambda: None

    def __iter__(self) -> Iterator[Pair]:
        return self.read()

    def check(self) -> int:
        """The number of pairs, after reading all of them once; one pair is held in memory at a time.

        Raises:
            CorpusError: A file is damaged, is not UTF-8, breaks its format, or there is no pair at all.
        """
        num_pairs = sum(1 for _ in self)
        if not num_pairs:
            names = " and ".join(map(str, self.files))
            raise CorpusError(f"{names}: empty; at least one pair is needed")
        return num_pairs


def parallel_corpus(
    folder: Path,
    source: str | None,
    target: str | None,
    pairs: str | None,
    columns: tuple[str, str] | None,
    languages: tuple[str, str] = ("", ""),
) -> ParallelCorpus:
    """The corpus in `source` and `target`, or in `pairs`; names are relative to `folder`.

    Args:
        folder: where the files lie.
        source: text, one sentence a line; plain, .gz, .xz or .zst.
        target: the same for the other side, line for line.
        pairs: instead of both: .tsv, .json, .jsonl or .ndjson, and compressed or not.
        columns: of `pairs`: numbers from 1 (TSV, default 1 and 2) or keys (JSON, default "source" and "target").
        languages: codes of source and target, which are the keys of Hugging Face's "translation"; see `read_json`.

    Raises:
        CorpusError: A file is missing, is a folder, or has an ending that says nothing about its format.
        ConfigError: Neither both sides nor pairs are given.
    """
    if pairs is not None:
        path = folder / pairs
        check_file(path)
        return _corpus_of_pairs(path, columns, languages)
    if source is None or target is None:
        raise ConfigError("there is no parallel text: give source and target, or pairs")
    files = folder / source, folder / target
    for path in files:
        check_file(path)
    return ParallelCorpus(files, partial(_line_for_line, *files))


def write_standard_input(stream: BinaryIO, path: Path) -> None:
    """Copies what can be read only once to the file `path`, as it is."""
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)


def _corpus_of_pairs(path: Path, columns: tuple[str, str] | None, languages: tuple[str, str]) -> ParallelCorpus:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    match suffixes[-1:]:
        case [".tsv"]:
            table = path, columns or ("1", "2"), languages
            return ParallelCorpus((path,), partial(read_tsv, *table), partial(tsv_header, *table))
        case [".json" | ".jsonl" | ".ndjson"]:
            return ParallelCorpus((path,), partial(read_json, path, columns, languages))
        case _:
            raise CorpusError(
                f"{path}: a file of pairs must end in .tsv, .json, .jsonl or .ndjson, and then in .gz, .xz or .zst if "
                f"it is compressed: rename it, or give source and target"
            )


def _line_for_line(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    for index, (source_line, target_line) in enumerate(zip_longest(sources, targets)):
        if source_line is None or target_line is None:
            # What is missing on one side is counted on the other, with the line at hand.
            rest = 1 + sum(1 for _ in sources) + sum(1 for _ in targets)
            num_sources = index if source_line is None else index + rest
            num_targets = index if target_line is None else index + rest
            raise CorpusError(
                f"{source} has {num_sources} lines and {target} has {num_targets}: "
                f"they must be translations of each other line for line"
            )
        yield source_line, target_line
