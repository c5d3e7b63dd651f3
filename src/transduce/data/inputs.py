"""The input files of a run with their digests, and the training text in them: repeated pairs, and pairs held out."""

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from jaxtyping import Bool, Int, UInt8

from transduce.config import CorpusConfig, DataConfig, TextConfig
from transduce.config.text import AUGMENTATIONS
from transduce.errors import ConfigError, CorpusError
from transduce.storage import scratch_folder
from transduce.text import (
    SOURCE_MODEL,
    WITHOUT_SPACES,
    Cleaner,
    Pair,
    ParallelCorpus,
    find_tokenizer_files,
    open_parallel_corpus,
    write_standard_input,
)

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


def may_be_held_out(pair: Pair, cleaner: Cleaner, tags: Sequence[str] = ()) -> bool:
    """Whether a pair may be held out for validation: whether cleaning would keep it, as far as that can be decided
    before there is a tokenizer.

    Words stand for pieces, or characters in a script without spaces, for which the ratio of lengths is not checked.
    Held-out pairs are checked again with the tokenizer.

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
    """The `count` distinct clean pairs with the smallest SHA-256.

    This random choice does not depend on the order of the corpus and changes little when it grows.
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
        """Those of `num_pairs` pairs, by the indices of the pairs that each filter leaves out."""
        numbers = np.zeros(num_pairs, np.uint8)
        for number, rows in reversed([*enumerate(filtered.values(), start=1)]):
            numbers[rows] = number
        return cls(list(filtered), numbers)


@dataclass(frozen=True)
class TrainingText:
    """The pairs of all corpora that share no side, tags aside, with a held-out pair. Validation files may share one."""

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
        """The pairs of corpus `number`, each with whether it is the same as an earlier one of any corpus.

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


# To be increased when the same text and settings would give other token ids than before.
PREPARATION_VERSION = 5


@dataclass(frozen=True)
class Inputs:
    """The given files with their digests; `digests["all"]` covers the settings that matter, too."""

    training: list[ParallelCorpus]
    validation: ParallelCorpus | None
    digests: dict[str, str]
    omissions: dict[str, str]
    """By the name of each file in the configuration, a clause on what in the file is not a pair and is left out."""
    num_real: int
    """Number of training corpora that are not synthetic; they come before the synthetic ones."""
    tags: tuple[str, ...]
    """The tags that sources of the training corpora may begin with."""
    untagged: list[tuple[str, ParallelCorpus]]
    """The training corpora that are not synthetic, without their tags, each with the name of its files."""


@contextmanager
def spool_standard_input(stream: BinaryIO | None, folder: Path) -> Iterator[Path]:
    """Copy `stream`, which can be read only once, to a file in `folder` that the block can read several times.

    The caller removes the folder. In errors of the block, the path of the file is replaced by "standard input".

    Raises:
        CorpusError: there is no stream.
    """
    if stream is None:
        raise CorpusError('pairs = "-" reads standard input, which is not connected: pipe the text in')
    path = folder.absolute() / "standard-input.tsv"
    write_standard_input(stream, path)
    try:
        yield path
    except (ConfigError, CorpusError) as error:
        # The user does not know the temporary file.
        raise type(error)(str(error).replace(str(path), "standard input")) from None


@contextmanager
def open_inputs(
    data: DataConfig, text: TextConfig, cache: Path, standard_input: BinaryIO | None, digest: Callable[[Path], str]
) -> Iterator[Inputs]:
    """The inputs of `data`; those from standard input are in a file in `cache` while the block runs.

    `standard_input` is what `pairs = "-"` reads, and `digest` gives the SHA-256 of a file.

    Raises:
        CorpusError: a file cannot be read, or standard input is requested and there is none.
        ConfigError: the tokenizer is not a file.
    """
    if data.pairs != "-":
        yield _open_files(data, text, None, digest)
        return
    with scratch_folder(cache, "standard-input") as folder, spool_standard_input(standard_input, folder) as spooled:
        yield _open_files(data, text, spooled, digest)


def _open_files(data: DataConfig, text: TextConfig, spooled: Path | None, digest: Callable[[Path], str]) -> Inputs:
    """Open the files that `data` names; `spooled` is the copy of standard input, None if nothing is read from there."""
    if not data.training_corpora:
        raise ConfigError("no parallel text: give source and target, pairs, or corpora")
    given = [(corpus, open_corpus(data, corpus, spooled)) for corpus in data.training_corpora]
    if (validation := data.validation_corpus) is not None:
        given.append((validation, open_corpus(data, validation, setting="data.validation_columns")))
    digests: dict[str, str] = {}
    omissions: dict[str, str] = {}
    for config, corpus in given:
        next(iter(corpus), None)  # opens the files: the corpus reports best why a file cannot be read
        if config.pairs is None:
            digests |= {name: digest(path) for name, path in zip(_list_names(config), corpus.files, strict=True)}
            continue
        digests[config.pairs] = _combine_digests(corpus.files, digest)
        if omission := corpus.describe_omissions():
            omissions[config.pairs] = omission
    if text.tokenizer is not None:
        digests |= {name: digest(Path(name)) for name in _list_tokenizer_files(text.tokenizer)}
    contents = [_describe_contents(data, config, corpus, digests) for config, corpus in given]
    corpora, num_training = [corpus for _, corpus in given], len(data.training_corpora)
    digests["all"] = _compute_key(data, text, digests, contents[:num_training], contents[num_training:])
    num_real = sum(not corpus.synthetic for corpus in data.training_corpora)
    last = corpora[-1] if validation is not None else None
    untagged = [
        (
            "standard input" if config.pairs == "-" else config.name,
            open_corpus(data, config.model_copy(update={"tag": None}), spooled),
        )
        for config in data.training_corpora[:num_real]
    ]
    return Inputs(corpora[:num_training], last, digests, omissions, num_real, data.tags, untagged)


def _combine_digests(files: Sequence[Path], digest: Callable[[Path], str]) -> str:
    """The digest of a file; of several, as those of a saved data set, that of their names and digests."""
    if len(files) == 1:
        return digest(files[0])
    return hashlib.sha256(json.dumps([[path.name, digest(path)] for path in files]).encode()).hexdigest()


def _list_tokenizer_files(tokenizer: str) -> list[str]:
    """The file named by the configuration, or all files of a tokenizer folder."""
    files = [str(path) for path in find_tokenizer_files(Path(tokenizer)).values()]
    if not all(Path(file).is_file() for file in files):
        raise ConfigError(
            f'tokenizer = "{tokenizer}" is not a file: give a SentencePiece model, or a folder with {SOURCE_MODEL}'
        )
    return files if Path(tokenizer).is_dir() else [tokenizer]


def open_corpus(
    data: DataConfig, corpus: CorpusConfig, spooled: Path | None = None, setting: str | None = None
) -> ParallelCorpus:
    """One of the corpora of `data`.

    `data.swap_sides` exchanges the sides of every corpus, also of those that the run itself has made: these need the
    columns of `choose_generated_columns`.

    Args:
        data: the settings of all text.
        corpus: the settings of this corpus.
        spooled: the file with the copy of standard input, if `corpus` is read from there.
        setting: what messages call the setting of the columns; default: that of training text.
    """
    pairs = str(spooled) if corpus.pairs == "-" else corpus.pairs
    columns = corpus.columns or data.columns
    setting = setting or ("data.columns" if data.corpora is None else "columns in data.corpora")
    languages = data.languages[::-1] if data.swap_sides else data.languages
    opened = open_parallel_corpus(Path(data.folder), corpus.source, corpus.target, pairs, columns, languages, setting)
    opened = opened.swap_sides() if data.swap_sides else opened
    return opened if corpus.tag is None else opened.with_tag(corpus.tag)


def choose_generated_columns(data: DataConfig) -> tuple[str, str]:
    """The columns of a file that the run itself has made, whose "source" is the source even if `data` swaps sides."""
    return ("target", "source") if data.swap_sides else ("source", "target")


def _list_names(corpus: CorpusConfig) -> list[str]:
    return [name for name in (corpus.source, corpus.target, corpus.pairs) if name is not None]


def _describe_contents(
    data: DataConfig, config: CorpusConfig, corpus: ParallelCorpus, digests: dict[str, str]
) -> list[object]:
    """What decides the pairs of a corpus."""
    # The extensions of a name, in upper or lower case, determine how it is read: .tsv or .jsonl, compressed or not.
    files = [(digests[name], Path(name.lower()).suffixes[-2:]) for name in _list_names(config)]
    columns, omission = config.columns or data.columns, corpus.describe_omissions()
    # In a table with a header, too, the languages may identify the source.
    keys = data.languages if columns is None and (corpus.is_by_language or omission) else columns
    changes = {"swapped": data.swap_sides, "tag": config.tag, "synthetic": config.synthetic}
    made = {name: value for name, value in changes.items() if value}
    return [files, keys, *(["header"] if omission else []), *([made] if made else [])]


def _compute_key(
    data: DataConfig,
    text: TextConfig,
    digests: dict[str, str],
    training: list[list[object]],
    validation: list[list[object]],
) -> str:
    """The digest of all that decides the prepared data; `training` and `validation` describe the corpora of each."""
    tokenizer = [] if text.tokenizer is None else [digests[name] for name in _list_tokenizer_files(text.tokenizer)]
    trained = {"vocabulary": text.vocabulary, "algorithm": text.algorithm, "sentencepiece": version("sentencepiece")}
    deciding = {
        "version": PREPARATION_VERSION,
        "training": training,
        "validation": validation[0] if validation else data.held_out,
        "tokenizer": tokenizer[0] if len(tokenizer) == 1 else tokenizer or trained,
        "cleaning": text.model_dump(exclude={"vocabulary", "algorithm", "tokenizer", "bpe_dropout", *AUGMENTATIONS}),
        "keeps_text": bool(text.sampling),
        **({"filters": data.filters, "languages": data.languages} if data.filters else {}),
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
