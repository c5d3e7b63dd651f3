"""Documents in memory: being translated, or waiting for a limited time to be downloaded."""

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from operator import itemgetter
from secrets import token_urlsafe
from typing import Any

from transduce.errors import FilesFullError, TooLongError, TransduceError, UnknownFileError
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
        client: whose it is.
        task: translates it.
        num_bytes: size of its content, at first before and then after the translation.
        removal: timer that removes it, set when the translation is finished; None before that.
    """

    identifier: str
    key: str
    needs_key: bool
    name: str
    client: str
    task: asyncio.Task[TranslatedDocument]
    num_bytes: int
    removal: asyncio.TimerHandle | None = field(default=None, repr=False)


class FileStore:
    """Documents in memory; all methods are called in one event loop.

    Args:
        max_bytes: maximum total size, half of which one client may use; translations that are longer than their
            documents may exceed it.
        seconds: time after its translation for which a document is kept.
    """

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._max_bytes, self._seconds = max_bytes, seconds
        self._files: dict[str, StoredFile] = {}

    @property
    def num_bytes(self) -> int:
        """Total size of all documents, each with `ENTRY_BYTES`."""
        return _count_bytes(self._files.values())

    def add(
        self,
        translating: Coroutine[Any, Any, TranslatedDocument],
        name: str,
        ending: str,
        num_bytes: int,
        client: str,
        *,
        needs_key: bool = False,
    ) -> StoredFile:
        """Start a translation and store its result.

        Args:
            translating: the translation.
            name: file name of the result, for the client.
            ending: its ending, as in ".docx", which the identifier has, too.
            num_bytes: size of the document.
            client: who sent it; see `get_client`.
            needs_key: whether the identifier alone, which may stand in logs, must not give it away.

        Raises:
            FilesFullError: there is no room at present; the coroutine is closed.
            TooLongError: the document is larger than what one client may use; the coroutine is closed.
        """
        try:
            self._check_room(num_bytes, client)
        except (FilesFullError, TooLongError):
            translating.close()
            raise
        identifier, key = token_urlsafe(32) + ending, token_urlsafe(32)
        task = asyncio.create_task(_translate(translating))
        file = StoredFile(identifier, key, needs_key, name, client, task, num_bytes)
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

    def _check_room(self, num_bytes: int, client: str) -> None:
        share = self._max_bytes // 2
        if ENTRY_BYTES + num_bytes > share:
            most = max(0, share - ENTRY_BYTES)
            raise TooLongError(
                f"the document has {num_bytes:,} bytes; this service keeps at most {most:,} of a client: divide it"
            )
        own = [file for file in self._files.values() if file.client == client]
        for files, whose, max_bytes in (
            (own, "your documents", share),
            (list(self._files.values()), "the documents of all clients", self._max_bytes),
        ):
            seconds = self._find_seconds(files, max_bytes - ENTRY_BYTES - num_bytes)
            if seconds:
                raise FilesFullError(
                    f"{whose} that are translated or wait to be downloaded take too much memory: retry in {seconds} s",
                    seconds,
                )

    def _find_seconds(self, files: Sequence[StoredFile], max_bytes: int) -> int:
        """Find the time until so many of the files are removed that the others have `max_bytes` or less; 0 if all have.

        Of a file that is still being translated, the time that is left for this is unknown and not counted.
        """
        excess, seconds, now = _count_bytes(files) - max_bytes, 0, asyncio.get_running_loop().time()
        kept = [(self._seconds if file.removal is None else file.removal.when() - now, file) for file in files]
        for remaining, file in sorted(kept, key=itemgetter(0)):
            if excess > 0:
                seconds = max(1, math.ceil(remaining))
            excess -= _count_bytes([file])
        return seconds

    def _finish(self, file: StoredFile) -> None:
        if file.task.cancelled():
            self.remove(file)
            return
        if file.identifier not in self._files:
            return
        file.num_bytes = 0 if file.task.exception() else len(file.task.result().content)
        file.removal = asyncio.get_running_loop().call_later(self._seconds, self.remove, file)


def _count_bytes(files: Iterable[StoredFile]) -> int:
    return sum(ENTRY_BYTES + file.num_bytes for file in files)


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
