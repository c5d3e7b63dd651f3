"""Documents in memory: being translated, or waiting for a limited time to be downloaded."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any

from transduce.errors import FilesFullError, TransduceError, UnknownFileError
from transduce.serving.monitoring import describe_failure, log
from transduce.serving.service import TranslatedDocument

ENTRY_BYTES = 4_096
"""Size that a document counts besides its content, so that small and failed ones are limited, too."""


@dataclass(eq=False)
class StoredFile:
    """A document whose translation has been started.

    Args:
        identifier: a name that cannot be guessed.
        key: a secret besides the name.
        needs_key: whether `FileStore.get` asks for the key.
        name: file name of the translation, for the client.
        task: translates it.
        num_bytes: size of its content, at first before and then after the translation.
        removal: timer that removes it, set when the translation is finished; None before that.
    """

    identifier: str
    key: str
    needs_key: bool
    name: str
    task: asyncio.Task[TranslatedDocument]
    num_bytes: int
    removal: asyncio.TimerHandle | None = field(default=None, repr=False)


class FileStore:
    """Documents in memory; all methods are called in one event loop.

    Args:
        max_bytes: maximum total size; translations that are longer than their documents may exceed it.
        seconds: time after its translation for which a document is kept.
    """

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._max_bytes, self._seconds = max_bytes, seconds
        self._files: dict[str, StoredFile] = {}

    @property
    def num_bytes(self) -> int:
        """Total size of all documents, each with `ENTRY_BYTES`."""
        return sum(ENTRY_BYTES + file.num_bytes for file in self._files.values())

    def add(
        self,
        translating: Coroutine[Any, Any, TranslatedDocument],
        name: str,
        ending: str,
        num_bytes: int,
        *,
        needs_key: bool = False,
    ) -> StoredFile:
        """Start a translation and store its result.

        Args:
            translating: the translation.
            name: file name of the result, for the client.
            ending: its ending, as in ".docx", which the identifier has, too.
            num_bytes: size of the document.
            needs_key: whether the identifier alone, which may stand in logs, must not give it away.

        Raises:
            FilesFullError: there is no room; the coroutine is closed.
        """
        if self.num_bytes + ENTRY_BYTES + num_bytes > self._max_bytes:
            translating.close()
            raise FilesFullError("too many documents are translated or wait to be downloaded: retry in a minute")
        identifier, key = token_urlsafe(32) + ending, token_urlsafe(32)
        file = StoredFile(identifier, key, needs_key, name, asyncio.create_task(_translate(translating)), num_bytes)
        self._files[file.identifier] = file
        file.task.add_done_callback(lambda _: self._finish(file))
        file.task.add_done_callback(lambda _: translating.close())  # if it was cancelled before it began
        return file

    def get(self, identifier: str, key: str | None = None) -> StoredFile:
        """Return a document, whose key is compared if it is given.

        Raises:
            UnknownFileError: there is none, the key differs, or it is missing and needed.
        """
        file = self._files.get(identifier)
        if file is None or not _has_access(file, key):
            raise UnknownFileError("there is no such document: it was removed, or never existed; translate it again")
        return file

    def remove(self, file: StoredFile) -> None:
        """Remove a document, and cancel its translation if it is not finished."""
        self._files.pop(file.identifier, None)
        file.task.cancel()
        if file.removal is not None:
            file.removal.cancel()

    def _finish(self, file: StoredFile) -> None:
        if file.task.cancelled():
            self.remove(file)
            return
        if file.identifier not in self._files:
            return
        file.num_bytes = 0 if file.task.exception() else len(file.task.result().content)
        file.removal = asyncio.get_running_loop().call_later(self._seconds, self.remove, file)


def _has_access(file: StoredFile, key: str | None) -> bool:
    if key is None:
        return not file.needs_key
    return compare_digest(file.key.encode(), key.encode("utf-8", "replace"))


async def _translate(translating: Coroutine[Any, Any, TranslatedDocument]) -> TranslatedDocument:
    """Await the translation of a document.

    An error that it raises is stored until somebody asks for the result. It loses its traceback, whose frames hold the
    document, so that the document does not stay in memory with it.
    """
    try:
        return await translating
    except Exception as error:
        if not isinstance(error, TransduceError):
            log("document failed", logging.ERROR, **describe_failure(error))
        error.__traceback__ = error.__context__ = error.__cause__ = None
        raise
