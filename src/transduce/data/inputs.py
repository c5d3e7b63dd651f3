"""The text that was given: which files, what is in them, and the key under which its preparation is kept."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from transduce.config import DataConfig, TextConfig
from transduce.data.digest import file_digest
from transduce.data.folder import scratch_folder
from transduce.errors import ConfigError, CorpusError
from transduce.text import ParallelCorpus, parallel_corpus, write_standard_input

# To be raised when the same text and settings would give other token ids than before.
PREPARATION_VERSION = 1


@dataclass(frozen=True)
class Inputs:
    """The given files, read once for their digests; `digests["all"]` covers the settings that matter, too."""

    training: ParallelCorpus
    validation: ParallelCorpus | None
    digests: dict[str, str]


@contextmanager
def open_inputs(data: DataConfig, text: TextConfig, cache: Path, standard_input: BinaryIO | None) -> Iterator[Inputs]:
    """The inputs of `data`; those from standard input lie in a file in `cache` for as long as the block runs.

    Raises:
        CorpusError: A file cannot be read, or standard input is asked for and there is none.
        ConfigError: The tokenizer is not a file.
    """
    if data.pairs != "-":
        yield _inputs(data, text, data.pairs)
    elif standard_input is None:
        raise CorpusError('pairs = "-" reads standard input, and nothing is connected to it: pipe the text in')
    else:
        with scratch_folder(cache, "standard-input") as folder:
            spooled = folder.absolute() / "standard-input.tsv"
            write_standard_input(standard_input, spooled)
            try:
                yield _inputs(data, text, str(spooled))
            except CorpusError as error:
                # The reader of the message knows nothing of our file.
                raise CorpusError(str(error).replace(str(spooled), "standard input")) from None


def _inputs(data: DataConfig, text: TextConfig, pairs: str | None) -> Inputs:
    """`pairs` is `data.pairs`, or the file with what came from standard input."""
    folder = Path(data.folder)
    training = parallel_corpus(folder, data.source, data.target, pairs, data.columns)
    validation = None
    if data.validation_source is not None or data.validation_pairs is not None:
        validation = parallel_corpus(
            folder, data.validation_source, data.validation_target, data.validation_pairs, data.columns
        )
    digests = _digests((data.source, data.target, data.pairs), training)
    if validation is not None:
        names = (data.validation_source, data.validation_target, data.validation_pairs)
        digests |= _digests(names, validation)
    if text.tokenizer is not None:
        if not Path(text.tokenizer).is_file():
            raise ConfigError(f'tokenizer = "{text.tokenizer}" is not a file: give a SentencePiece model')
        digests[text.tokenizer] = file_digest(Path(text.tokenizer))
    digests["all"] = _key(data, text, digests)
    return Inputs(training, validation, digests)


def _digests(names: tuple[str | None, ...], corpus: ParallelCorpus) -> dict[str, str]:
    """By the names that the configuration uses."""
    given = [name for name in names if name is not None]
    next(iter(corpus), None)  # opens the files: the corpus says best what is wrong with one that cannot be read
    return {name: file_digest(path) for name, path in zip(given, corpus.files, strict=True)}


def _key(data: DataConfig, text: TextConfig, digests: dict[str, str]) -> str:
    """SHA-256 of everything that decides the token ids."""

    def contents(*names: str | None) -> list[tuple[str, list[str]]]:
        # The endings of a name say how its bytes are read: .tsv or .jsonl, compressed or not.
        return [(digests[name], Path(name).suffixes[-2:]) for name in names if name is not None]

    validation = contents(data.validation_source, data.validation_target, data.validation_pairs)
    trained = {"vocabulary": text.vocabulary, "algorithm": text.algorithm, "sentencepiece": version("sentencepiece")}
    deciding = {
        "version": PREPARATION_VERSION,
        "training": contents(data.source, data.target, data.pairs),
        "validation": validation or data.held_out,
        "columns": data.columns,
        "tokenizer": trained if text.tokenizer is None else digests[text.tokenizer],
        "cleaning": text.model_dump(exclude={"vocabulary", "algorithm", "tokenizer", "bpe_dropout"}),
        "keeps_text": text.bpe_dropout > 0,
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
