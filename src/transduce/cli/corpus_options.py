"""Options that name parallel text, of the commands that train on it, examine it, or measure with it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.completion import FileName
from transduce.errors import UserError
from transduce.interop import read_languages
from transduce.text import ParallelCorpus, open_parallel_corpus
from transduce.text.languages import LANGUAGE_CODES


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextFlags:
    """Training and validation text and their languages, for a run without a recipe."""

    source: FileName | None = None
    """Training text, source side; plain, .gz, .xz or .zst, one sentence per line."""
    target: FileName | None = None
    """Training text, target side, line for line."""
    pairs: Annotated[FileName | None, Parameter(allow_leading_hyphen=True)] = None
    """Instead of both: a .tsv, .csv, .json, .jsonl, .tmx, .parquet or .zip file, a saved data set of Hugging Face, or -
    for TSV on standard input, except with `distill`."""
    validation_source: FileName | None = None
    """Validation text, source side; without it, some training pairs are set aside."""
    validation_target: FileName | None = None
    """Validation text, target side."""
    source_language: str | None = None
    """Language code of the source, as in en: required for serving the model."""
    target_language: str | None = None
    """Language code of the target, as in de."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings that the given options stand for, by dotted key."""
        for side in ("source", "target"):
            if (language := getattr(self, f"{side}_language")) is not None:
                check_language_code(f"--{side}-language", language)
        return {f"data.{key}": str(value) for key, value in asdict(self).items() if value is not None}


_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")


def check_language_code(option: str, language: str) -> None:
    """Check that a language is given by a code as in en, pt-BR or swh_Latn: clients ask for a model by such codes.

    Raises:
        UserError: it is not; the message has the code of a language that is given by its name.
    """
    if language and not _LANGUAGE_CODE.fullmatch(language):
        code = LANGUAGE_CODES.get(language.casefold())
        remedy = f"give its code, {code}" if code else "give a code, as in en, pt-BR or swh_Latn"
        raise UserError(f"{option} {language}: is no language code: {remedy}")


def is_in_one_file(
    source: object, other: object, pairs: object, columns: Sequence[str] | None, *, name: str = "--target"
) -> bool:
    """Whether parallel text is given as `pairs`, a file with both sides, and not as two files.

    Args:
        source: of two files, that with the sources; None or empty if it is not given, like the others.
        other: that with their translations.
        pairs: instead of both, one file.
        columns: what `pairs` calls its sides.
        name: the option of `other`, for messages.

    Raises:
        UserError: files are missing, or given in both ways.
    """
    if pairs and (source or other):
        raise UserError(f"--pairs has both sides in one file: leave out --source and {name}")
    if columns is not None and not pairs:
        raise UserError("--columns are those of a file with both sides: give it as --pairs")
    if not pairs and bool(source) != bool(other):
        given, missing = ("--source", name) if source else (name, "--source")
        raise UserError(f"{given} is given without {missing}: give both")
    if not pairs and not source:
        raise UserError(f"no text: give --source and {name}, or a file with both sides as --pairs")
    return bool(pairs)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PairFlags:
    """Text with human translations, in two files or in one."""

    source: Path | None = None
    """The text, one sentence per line; plain, .gz, .xz or .zst; required without --pairs."""
    target: Path | None = None
    """Its translations, line for line."""
    pairs: Path | None = None
    """Instead of both: a file with both sides, in any of the formats of training text."""
    columns: tuple[str, str] | None = None
    """What the file of --pairs calls source and target, as in en de. Default: as for training text, by the model's
    languages."""

    def open_corpus(self, model: Path) -> ParallelCorpus:
        """The text; it is not read yet. The languages of `model` tell its sides apart where there are no `columns`.

        Raises:
            BundleError: there is no model.
            UserError: files are missing, or given in both ways.
            CorpusError: a file is missing, or has an unknown extension.
        """
        is_in_one_file(self.source, self.target, self.pairs, self.columns)
        source, target, pairs = (None if path is None else str(path) for path in (self.source, self.target, self.pairs))
        languages = read_languages(model)
        return open_parallel_corpus(
            Path(), source, target, pairs, self.columns, languages, setting="--columns", has_direction=True
        )

    def name_files(self, corpus: ParallelCorpus) -> dict[str, Path]:
        """The files of `corpus`, which is the text, by the sides that they have."""
        if self.pairs is None:
            return {name: path for name, path in (("source", self.source), ("target", self.target)) if path}
        files = corpus.files
        return {"pairs" if len(files) == 1 else f"pairs, file {number}": path for number, path in enumerate(files, 1)}
