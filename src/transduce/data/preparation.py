"""From the files that were given to everything a run trains on: done once, found again by every later run."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from transduce.config import DataConfig, Settings, TextConfig
from transduce.data.digest import file_digest
from transduce.data.encoding import as_line, encode_corpus, read_pairs
from transduce.data.folder import complete_folder
from transduce.data.held_out import Pair, TrainingText, choose_held_out, is_blank
from transduce.data.inputs import Inputs, open_inputs
from transduce.data.store import TokenStore
from transduce.errors import CorpusError, RunError
from transduce.text import Tokenizer, fitted_vocabulary


@dataclass(frozen=True)
class PreparedData:
    """What a run trains on and is validated with."""

    tokenizer: Tokenizer
    train: TokenStore
    validation: list[tuple[str, str]]
    """Raw text; the targets are the references that translations are scored against."""
    cleaning: dict[str, int]
    """How many pairs of the training text each rule left out, and how many are `kept`."""
    digests: dict[str, str]
    """SHA-256 of every input file by its name in the configuration; `all` also covers the settings."""
    folder: Path
    """Where it is kept."""


class _Record(Settings):
    """What `prepared.json` says: the counts, and the digests of the files beside it."""

    cleaning: dict[str, int]
    files: dict[str, str]


_FILES = ("tokenizer.model", "validation.jsonl", "kept.jsonl")


def prepare(
    data: DataConfig,
    text: TextConfig,
    cache: Path,
    *,
    standard_input: BinaryIO | None = None,
    talk: Callable[[str], None],
) -> PreparedData:
    """Reads, checks, cleans and encodes the text, or finds in `cache` what an earlier run made of the same text.

    Args:
        data: The files.
        text: The tokenizer and the rules of cleaning.
        cache: Folder for the results, one folder each, named after the digest of text and settings.
        standard_input: What `pairs = "-"` reads.
        talk: Is told, a sentence at a time, what happens.

    Raises:
        CorpusError: The text breaks a rule, or none of it is left after cleaning. Nothing has been written then.
    """
    with open_inputs(data, text, cache, standard_input) as inputs:
        folder = cache / inputs.digests["all"][:16]
        if folder.exists():
            try:
                prepared = _open(folder, inputs.digests)
            except RunError as error:
                talk(f"The prepared data is damaged and is made again: {error}")
                shutil.rmtree(folder)
            else:
                talk(f"Prepared data found in {folder}: {len(prepared.train):,} pairs.")
                return prepared
        num_pairs = inputs.training.check()
        if inputs.validation is not None:
            inputs.validation.check()
        validation, training = _split(data, inputs, num_pairs, talk)
        with complete_folder(folder) as path:
            _build(path, training, validation, text, talk)
        return _open(folder, inputs.digests)


def _open(folder: Path, digests: dict[str, str]) -> PreparedData:
    path = folder / "prepared.json"
    try:
        record = _Record.model_validate_json(path.read_bytes())
        damaged = [name for name in _FILES if file_digest(folder / name) != record.files.get(name)]
    except (FileNotFoundError, ValidationError) as error:
        raise RunError(f"{path}, or a file that it names, is missing or damaged: delete {folder}") from error
    if damaged:
        raise RunError(f"{folder / damaged[0]} is not what was written: delete {folder}")
    return PreparedData(
        tokenizer=Tokenizer.load(folder / "tokenizer.model"),
        train=TokenStore.open(folder / "train"),
        validation=list(read_pairs(folder / "validation.jsonl")),
        cleaning=record.cleaning,
        digests=digests,
        folder=folder,
    )


def _split(
    data: DataConfig, inputs: Inputs, num_pairs: int, talk: Callable[[str], None]
) -> tuple[list[Pair], TrainingText]:
    """The validation pairs, given or held out, and the training text without those that were held out."""
    if inputs.validation is None:
        if num_pairs == 1:
            raise CorpusError("one pair cannot be trained on and validated with: give more, or validation files")
        held_out = choose_held_out(inputs.training, max(1, min(data.held_out, num_pairs // 10)))
        talk(f"{len(held_out):,} of {num_pairs:,} pairs are held out for validation.")
        return held_out, TrainingText(inputs.training, num_pairs, held_out)
    given = list(inputs.validation)
    validation = [pair for pair in given if not is_blank(pair)]
    if len(validation) < len(given):
        talk(f"{len(given) - len(validation):,} of {len(given):,} validation pairs have a blank side and are left out.")
    if not validation:
        names = " and ".join(str(path) for path in inputs.validation.files)
        raise CorpusError(f"{names} has no pair with text on both sides, and validation needs at least one")
    return validation, TrainingText(inputs.training, num_pairs, held_out=[])


def _build(
    path: Path, training: TrainingText, validation: list[Pair], text: TextConfig, talk: Callable[[str], None]
) -> None:
    """Fills the folder `path`; `prepared.json` comes last."""
    tokenizer = _tokenizer(training, text, talk)
    (path / "tokenizer.model").write_bytes(tokenizer.model_bytes)
    with (path / "validation.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(as_line, validation))
    talk(f"Encoding {training.num_pairs:,} pairs with {tokenizer.vocabulary:,} token ids.")
    cleaning = encode_corpus(training, tokenizer, text, path)
    talk(f"{cleaning['kept']:,} of {training.num_pairs:,} pairs are kept for training.")
    record = _Record(cleaning=cleaning, files={name: file_digest(path / name) for name in _FILES})
    (path / "prepared.json").write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")


def _tokenizer(training: TrainingText, text: TextConfig, talk: Callable[[str], None]) -> Tokenizer:
    if text.tokenizer is not None:
        return Tokenizer.load(Path(text.tokenizer))
    fitted = text.vocabulary == "fitted"
    vocabulary = fitted_vocabulary(training.num_pairs) if text.vocabulary == "fitted" else text.vocabulary
    talk(f"Training a tokenizer of {vocabulary:,} token ids.")
    return Tokenizer.train(_sentences(training), vocabulary, text.algorithm, shrink=fitted)


def _sentences(training: TrainingText) -> Iterator[str]:
    """Both sides of the training text, for the one vocabulary that they share (paper 5.1)."""
    for pair in training:
        yield from (side for side in pair if side.strip())
