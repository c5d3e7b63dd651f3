"""Glossaries of clients, which are stored once and named by later requests: in memory, or as files in a folder."""

import csv
import logging
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Literal
from uuid import uuid4

from pydantic import ValidationError

from transduce.config import Record
from transduce.errors import (
    ConfigError,
    ParameterError,
    TooLongError,
    TooManyGlossariesError,
    UnknownGlossaryError,
    WriteError,
)
from transduce.serving.models import LanguagePair
from transduce.serving.monitoring import log
from transduce.storage import replace_file
from transduce.text import Glossary
from transduce.text.languages import get_base_code

MAX_TERM_BYTES = 1_024
"""Maximum size in bytes of a term, and of the name of a glossary; as at DeepL."""

_PARSED = 16
"""Number of glossaries that are kept ready for use."""

EntriesFormat = Literal["tsv", "csv"]
"""How terms are written: a line each, with a tab or a comma between source and target term."""


class StoredGlossary(Record):
    """A glossary, which never changes once it is stored."""

    identifier: str
    owner: str
    """Whose it is: what `Authorization.check` returns for the API key with which it was made."""
    name: str
    source: str
    """Language code of a model."""
    target: str
    """Language code of a model."""
    created: str
    """Time in UTC, as in "2026-11-26T12:00:00.000000Z"."""
    num_terms: int
    terms: str
    """Lines with a source term, a tab and a target term each."""

    @property
    def pair(self) -> LanguagePair:
        """The languages of the glossary."""
        return self.source, self.target

    def parse(self) -> Glossary:
        """Parse the terms, which takes a while for many of them, unless the glossary was in use lately."""
        return _parse_terms(self.terms, self.source)


@lru_cache(maxsize=_PARSED)
def _parse_terms(terms: str, language: str) -> Glossary:
    return Glossary(dict(line.split("\t") for line in terms.split("\n")), language)


class GlossaryStore:
    """Glossaries of all clients, each of which knows only its own; methods may be called in any thread.

    In a folder each glossary is a JSON file. Files that another process adds or removes there are noticed at the next
    call, so that several servers can share a folder.

    Args:
        folder: is made if it does not exist; None: glossaries are in memory only.
        max_glossaries: maximum number of glossaries of an owner.
        max_bytes: maximum size of the terms of a glossary in bytes.

    Raises:
        ConfigError: the folder cannot be used, or has a file that is no glossary.
    """

    def __init__(self, folder: Path | None = None, max_glossaries: int = 100, max_bytes: int = 1_000_000) -> None:
        self._folder, self._max_glossaries, self._max_bytes = folder, max_glossaries, max_bytes
        self._glossaries: dict[str, StoredGlossary] = {}
        self._damaged: dict[str, int] = {}  # files that are no glossaries, with the times at which they were written
        self._lock = Lock()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with TemporaryFile(dir=folder):  # which fails if nothing can be written there
                    pass
                for path in _list_files(folder):
                    with suppress(FileNotFoundError):  # another server has removed it
                        self._glossaries[path.stem] = _read_glossary(path)
            except OSError as error:
                raise ConfigError(
                    f"{error.filename or folder}: cannot be used for glossaries: {error.strerror}; make it readable "
                    "and writable, or choose another --glossary-folder"
                ) from None

    def add(
        self, owner: str, name: str, pair: LanguagePair, entries: str, entries_format: EntriesFormat
    ) -> StoredGlossary:
        """Store a glossary.

        Args:
            owner: see `Authorization.check`.
            name: for people; need not differ from others.
            pair: language codes of a model.
            entries: a term per line. In a CSV file the language codes may follow it, as DeepL's website writes them.
            entries_format: how they are written.

        Raises:
            CorpusError, ParameterError: a line is not a term, or a source term has two translations.
            TooLongError: the glossary, a term or the name is too long.
            TooManyGlossariesError: the owner has too many.
            WriteError: the folder cannot be written to.
        """
        _check_length("name", name)
        if len(entries.encode()) > self._max_bytes:
            raise TooLongError(
                f"entries: {len(entries.encode()):,} bytes; this service accepts at most {self._max_bytes:,} per "
                "glossary: divide it"
            )
        separator: Literal["\t", ","] = "\t" if entries_format == "tsv" else ","
        terms = Glossary.from_rows(_divide_rows(entries, separator, pair), "entries", separator).targets
        for term in (*terms, *terms.values()):
            _check_length("entries", term)
        source, target = pair
        stored = StoredGlossary(
            identifier=str(uuid4()),
            owner=owner,
            name=name,
            source=source,
            target=target,
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            num_terms=len(terms),
            terms="\n".join(f"{source}\t{target}" for source, target in terms.items()),
        )
        with self._lock:
            if len(self._find_all(owner)) >= self._max_glossaries:
                raise TooManyGlossariesError(
                    f"there are {self._max_glossaries:,} glossaries, the maximum of this service: delete one first"
                )
            self._write(stored)
            self._glossaries[stored.identifier] = stored
        return stored

    def list_all(self, owner: str) -> list[StoredGlossary]:
        """Return the glossaries that an owner has stored, oldest first."""
        with self._lock:
            return self._find_all(owner)

    def get(self, owner: str, identifier: str) -> StoredGlossary:
        """Return a glossary.

        Raises:
            UnknownGlossaryError: the owner has none with this id.
        """
        with self._lock:
            self._synchronize()
            found = self._glossaries.get(identifier)
        if found is None or found.owner != owner:
            raise UnknownGlossaryError(
                "there is no such glossary: it was deleted, or never existed; list those there are"
            )
        return found

    def remove(self, owner: str, identifier: str) -> None:
        """Remove a glossary; requests that use it are not disturbed.

        Raises:
            UnknownGlossaryError: the owner has none with this id.
            WriteError: the folder cannot be written to.
        """
        found = self.get(owner, identifier)
        with self._lock:
            if self._folder is not None:
                try:
                    _make_path(self._folder, found).unlink(missing_ok=True)
                except OSError as error:
                    log("glossary cannot be deleted", logging.ERROR, reason=error.strerror)
                    raise WriteError(f"{self._folder}: a glossary cannot be deleted: {error.strerror}") from error
            self._glossaries.pop(identifier, None)

    def _find_all(self, owner: str) -> list[StoredGlossary]:
        self._synchronize()
        own = [one for one in self._glossaries.values() if one.owner == owner]
        return sorted(own, key=lambda one: (one.created, one.identifier))

    def _synchronize(self) -> None:
        """Read glossaries that other processes have added to the folder, and forget those that they have removed."""
        if self._folder is None:
            return
        try:
            paths = {path.stem: path for path in _list_files(self._folder)}
        except OSError as error:
            log("glossaries cannot be listed", logging.ERROR, reason=error.strerror)
            return
        for identifier in self._glossaries.keys() - paths.keys():
            del self._glossaries[identifier]
        for identifier in paths.keys() - self._glossaries.keys():
            path = paths[identifier]
            try:
                changed = path.stat().st_mtime_ns
                if self._damaged.get(identifier) == changed:
                    continue
                self._glossaries[identifier] = _read_glossary(path)
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError as error:  # perhaps only now
                log("glossary cannot be read", logging.ERROR, file=path.name, reason=error.strerror)
            except ConfigError:
                self._damaged[identifier] = changed
                log("file is no glossary", logging.ERROR, file=path.name)

    def _write(self, glossary: StoredGlossary) -> None:
        if self._folder is None:
            return
        try:
            with replace_file(_make_path(self._folder, glossary)) as path:
                path.write_text(glossary.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            log("glossary cannot be written", logging.ERROR, reason=error.strerror)
            raise WriteError(f"{self._folder}: a glossary cannot be written: {error.strerror}") from error


def _list_files(folder: Path) -> list[Path]:
    """The files of glossaries; unlike by `Path.glob`, a folder that cannot be read is an error."""
    return [path for path in folder.iterdir() if path.suffix == ".json"]


def _make_path(folder: Path, glossary: StoredGlossary) -> Path:
    return folder / f"{glossary.identifier}.json"


def _read_glossary(path: Path) -> StoredGlossary:
    try:
        found = StoredGlossary.model_validate_json(path.read_bytes())
        found.parse()
    except (ValidationError, ValueError):
        raise ConfigError(f"{path}: is no glossary of this service: move it away") from None
    if found.identifier != path.stem:
        raise ConfigError(f"{path}: is the glossary {found.identifier[:50]}: give the file its name again")
    return found


def _divide_rows(entries: str, separator: Literal["\t", ","], pair: LanguagePair) -> Iterable[Sequence[str]]:
    entries = entries.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        rows = (
            [line.split("\t") for line in entries.split("\n")]
            if separator == "\t"
            else list(csv.reader(StringIO(entries, newline=""), strict=True))
        )
    except csv.Error as error:
        raise ParameterError(f"entries: not CSV: {error}") from None
    for number, row in enumerate(rows, start=1):
        for column in row:
            if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in column):
                raise ParameterError(f"entries, line {number}: {column!r:.80} has a control character: remove it")
        if separator == "," and len(row) == 4:
            _check_languages(number, row[2:], pair)
            row = row[:2]  # noqa: PLW2901 - without the languages
        yield row


def _check_languages(number: int, codes: Sequence[str], pair: LanguagePair) -> None:
    for code, expected in zip(codes, pair, strict=True):
        if get_base_code(code.strip()) != get_base_code(expected):
            raise ParameterError(
                f"entries, line {number}: is of the languages {', '.join(codes)!r:.80}, but the glossary of "
                f"{', '.join(pair)}: leave it out"
            )


def _check_length(name: str, text: str) -> None:
    num_bytes = len(text.encode())
    if num_bytes > MAX_TERM_BYTES:
        raise TooLongError(f"{name}: {text!r:.80} has {num_bytes:,} bytes, more than {MAX_TERM_BYTES:,}: shorten it")
