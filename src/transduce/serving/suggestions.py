"""Suggestions: translations that users of the server think better than its own, stored as text to train on."""

import errno
import json
import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock

from transduce.errors import ConfigError, ParameterError, SuggestionsFullError, WriteError
from transduce.serving.models import LanguagePair
from transduce.serving.monitoring import log


class SuggestionStore:
    """Appends suggestions to files in a folder, one for each pair of languages; methods may be called in any thread.

    `en-de.jsonl` has a JSON object per line, with "source", "target" and "received", the time in UTC: as `data.pairs`
    reads them. Nothing of it changes a model until somebody trains one. Several servers can share a folder.

    Args:
        folder: is made if it does not exist.
        max_bytes: maximum size in bytes of all files together.

    Raises:
        ConfigError: the folder cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):  # which fails if nothing can be written there
                pass
        except OSError as error:
            raise ConfigError(
                f"{error.filename or folder}: cannot be used for suggestions: {error.strerror}; make it writable, or "
                "choose another --suggestion-folder"
            ) from None

    def add(self, pair: LanguagePair, text: str, translation: str) -> None:
        """Store a suggested translation of a text; text of several lines becomes a pair for each line.

        Raises:
            ParameterError: the two have different numbers of lines, or nothing but spaces in one.
            SuggestionsFullError: the folder has no space left for it.
            WriteError: the file cannot be written; it is unchanged.
        """
        lines = [one.strip().splitlines() for one in (text, translation)]
        if len(lines[0]) != len(lines[1]):
            raise ParameterError(
                f"Invalid request: q has {len(lines[0])} lines and s has {len(lines[1])}: suggest a line for each line"
            )
        pairs = [(one.strip(), other.strip()) for one, other in zip(*lines, strict=True)]
        if not pairs or any(bool(one) != bool(other) for one, other in pairs):
            raise ParameterError("Invalid request: a line of q or s is blank, and the other is not")
        received = datetime.now(UTC).isoformat(timespec="seconds")
        records = [{"source": one, "target": other, "received": received} for one, other in pairs if one]
        content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        # A bundle may say that its language is a path.
        path = self._folder / (re.sub(r"[^\w-]", "_", "-".join(pair)) + ".jsonl")
        with self._lock:
            try:
                size = sum(one.stat().st_size for one in self._folder.glob("*.jsonl"))
                if size + len(content) > self._max_bytes:
                    raise SuggestionsFullError(
                        "no more suggestions can be stored: the operator of this service has to move the present ones"
                    )
                _append(path, content)
            except OSError as error:
                log("suggestion cannot be written", logging.ERROR, reason=error.strerror)
                raise WriteError(f"{path}: a suggestion cannot be written: {error.strerror}") from error


def _append(path: Path, content: bytes) -> None:
    """Append all of the content, by one call of the system so that other processes write before or behind it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    try:
        before = os.fstat(descriptor).st_size
        written = os.write(descriptor, content)
        if written < len(content):  # the disk is full
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
