"""The input files of a run, their digests, and the key under which their preparation is kept."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from transduce.config import CorpusConfig, DataConfig, TextConfig
from transduce.data.cache import scratch_folder
from transduce.data.training_text import Pair
from transduce.errors import ConfigError, CorpusError
from transduce.text import (
    SOURCE_MODEL,
    ParallelCorpus,
    find_tokenizer_files,
    open_parallel_corpus,
    write_standard_input,
)

# To be raised when the same text and settings would give other token ids than before.
PREPARATION_VERSION = 3


@dataclass(frozen=True)
class Inputs:
    """The given files with their digests; `digests["all"]` covers the settings that matter, too."""

    training: list[ParallelCorpus]
    validation: ParallelCorpus | None
    digests: dict[str, str]
    headers: dict[str, Pair]
    """First rows that name the columns and are no pairs, by the name of their file in the configuration."""


@contextmanager
def open_inputs(
    data: DataConfig,
    text: TextConfig,
    cache: Path,
    standard_input: BinaryIO | None,
    digest: Callable[[Path], str],
) -> Iterator[Inputs]:
    """The inputs of `data`; those from standard input lie in a file in `cache` for as long as the block runs.

    `standard_input` is what `pairs = "-"` reads, and `digest` gives the SHA-256 of a file.

    Raises:
        CorpusError: A file cannot be read, or standard input is asked for and there is none.
        ConfigError: The tokenizer is not a file.
    """
    if data.pairs != "-":
        yield _open_files(data, text, None, digest)
    elif standard_input is None:
        raise CorpusError('pairs = "-" reads standard input, and nothing is connected to it: pipe the text in')
    else:
        with scratch_folder(cache, "standard-input") as folder:
            spooled = folder.absolute() / "standard-input.tsv"
            write_standard_input(standard_input, spooled)
            try:
                yield _open_files(data, text, spooled, digest)
            except CorpusError as error:
                # The reader of the message knows nothing of our file.
                raise CorpusError(str(error).replace(str(spooled), "standard input")) from None


def _open_files(data: DataConfig, text: TextConfig, spooled: Path | None, digest: Callable[[Path], str]) -> Inputs:
    """`spooled` is the file with what came from standard input."""
    if not data.training_corpora:
        raise ConfigError("there is no parallel text: give source and target, pairs, or corpora")
    validation = _validation_corpus(data)
    given = [*data.training_corpora, *([validation] if validation else [])]
    opened = [open_corpus(data, corpus, spooled) for corpus in given]
    digests: dict[str, str] = {}
    headers: dict[str, Pair] = {}
    for corpus, files in zip(given, opened, strict=True):
        next(iter(files), None)  # opens the files: the corpus says best what is wrong with one that cannot be read
        digests |= {name: digest(path) for name, path in zip(_list_names(corpus), files.files, strict=True)}
        if corpus.pairs is not None and (header := files.header()) is not None:
            headers[corpus.pairs] = header
    if text.tokenizer is not None:
        digests |= {name: digest(Path(name)) for name in _list_tokenizer_files(text.tokenizer)}
    digests["all"] = _compute_key(data, text, digests, headers)
    return Inputs(opened if validation is None else opened[:-1], opened[-1] if validation else None, digests, headers)


def _list_tokenizer_files(tokenizer: str) -> list[str]:
    """The file that the configuration names, or all that a tokenizer has in such a folder."""
    files = [str(path) for path in find_tokenizer_files(Path(tokenizer)).values()]
    if not all(Path(file).is_file() for file in files):
        raise ConfigError(
            f'tokenizer = "{tokenizer}" is not a file: give a SentencePiece model, or a folder with {SOURCE_MODEL}'
        )
    return files if Path(tokenizer).is_dir() else [tokenizer]


def _validation_corpus(data: DataConfig) -> CorpusConfig | None:
    source, target, pairs = data.validation_source, data.validation_target, data.validation_pairs
    return CorpusConfig(source=source, target=target, pairs=pairs) if source is not None or pairs is not None else None


def open_corpus(data: DataConfig, corpus: CorpusConfig, spooled: Path | None = None) -> ParallelCorpus:
    """One of the corpora of `data`; `spooled` is the file with what came from standard input.

    Raises:
        ConfigError, CorpusError: see `open_parallel_corpus`.
    """
    pairs = str(spooled) if corpus.pairs == "-" else corpus.pairs
    columns = corpus.columns or data.columns
    return open_parallel_corpus(Path(data.folder), corpus.source, corpus.target, pairs, columns, data.languages)


def _list_names(corpus: CorpusConfig) -> list[str]:
    return [name for name in (corpus.source, corpus.target, corpus.pairs) if name is not None]


def _compute_key(data: DataConfig, text: TextConfig, digests: dict[str, str], headers: dict[str, Pair]) -> str:

    def contents(corpus: CorpusConfig) -> list[object]:
        # The endings of a name say how its bytes are read: .tsv or .jsonl, compressed or not.
        files = [(digests[name], Path(name).suffixes[-2:]) for name in _list_names(corpus)]
        columns = corpus.columns or data.columns
        # Of JSON, the languages may be what says which text is the source.
        keys = data.languages if columns is None and "json" in "".join(files[0][1]) else columns
        return [files, keys, *(["header"] if corpus.pairs in headers else [])]

    validation = _validation_corpus(data)
    tokenizer = [] if text.tokenizer is None else [digests[name] for name in _list_tokenizer_files(text.tokenizer)]
    trained = {"vocabulary": text.vocabulary, "algorithm": text.algorithm, "sentencepiece": version("sentencepiece")}
    deciding = {
        "version": PREPARATION_VERSION,
        "training": [contents(corpus) for corpus in data.training_corpora],
        "validation": data.held_out if validation is None else contents(validation),
        "tokenizer": tokenizer[0] if len(tokenizer) == 1 else tokenizer or trained,
        "cleaning": text.model_dump(exclude={"vocabulary", "algorithm", "tokenizer", "bpe_dropout"}),
        "keeps_text": text.bpe_dropout > 0,
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
