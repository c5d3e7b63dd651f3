"""The files that a run reads, parallel text and tokenizer, with the digests by which prepared text is found again."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from transduce.config import CorpusConfig, DataConfig, TextConfig
from transduce.config.text import AUGMENTATIONS
from transduce.errors import ConfigError, CorpusError
from transduce.storage import scratch_folder
from transduce.text import (
    SOURCE_MODEL,
    ParallelCorpus,
    find_tokenizer_files,
    open_parallel_corpus,
    write_standard_input,
)

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
            open_untagged_corpus(data, config, spooled),
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


def open_untagged_corpus(
    data: DataConfig, corpus: CorpusConfig, spooled: Path | None = None, setting: str | None = None
) -> ParallelCorpus:
    """A corpus as people wrote it: its tag is known, and not in front of its sources. As `open_corpus` otherwise."""
    opened = open_corpus(data, corpus.model_copy(update={"tag": None}), spooled, setting)
    return replace(opened, tag=corpus.tag or "")


def choose_generated_columns(data: DataConfig) -> tuple[str, str]:
    """The `columns` setting for a file of pairs that the run itself has written.

    Where `data.swap_sides` is set, they are named the other way round, as opening the file exchanges them again.
    """
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
