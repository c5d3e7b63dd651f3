"""Documents in memory, without a server."""

import asyncio
import gc
from threading import Event
from weakref import finalize

import pytest

from transduce.errors import DocumentError, FilesFullError, UnknownFileError
from transduce.serving.files import ENTRY_BYTES, FileStore
from transduce.serving.service import TranslatedDocument


async def translate(content: bytes = b"Sonne.", error: Exception | None = None) -> TranslatedDocument:
    await asyncio.sleep(0)
    if error is not None:
        raise error
    return TranslatedDocument(content, "en", 4)


def test_a_document_can_be_found_by_its_name_and_key() -> None:
    async def check() -> None:
        store = FileStore(2 * ENTRY_BYTES + 100, 60.0)
        file, other = (store.add(translate(), "sun_de.txt", ".txt", 4) for _ in range(2))
        assert (await file.task).content == b"Sonne."
        assert file.identifier.endswith(".txt")
        assert len({file.identifier, file.key, other.identifier, other.key}) == 4
        assert min(map(len, (file.identifier, file.key))) >= 43  # 256 bits
        assert store.get(file.identifier) is store.get(file.identifier, file.key) is file
        for identifier, key in (("x", None), (file.identifier, other.key), (file.identifier, ""), ("x", "\ud800")):
            with pytest.raises(UnknownFileError):
                store.get(identifier, key)
        store.remove(file)
        with pytest.raises(UnknownFileError):
            store.get(file.identifier)

    asyncio.run(check())


def test_a_document_may_need_its_key() -> None:
    async def check() -> None:
        store = FileStore(2 * ENTRY_BYTES + 100, 60.0)
        file = store.add(translate(), "sun_de.txt", ".txt", 4, needs_key=True)
        assert store.get(file.identifier, file.key) is file
        with pytest.raises(UnknownFileError):
            store.get(file.identifier)

    asyncio.run(check())


def test_room_is_limited_and_is_free_again() -> None:
    async def check() -> None:
        store = FileStore(ENTRY_BYTES + 10, 60.0)
        first = store.add(translate(b"Die Sonne."), "x", ".txt", 4)
        assert store.num_bytes == ENTRY_BYTES + 4
        await first.task
        await asyncio.sleep(0)
        assert store.num_bytes == ENTRY_BYTES + len(b"Die Sonne.")
        with pytest.raises(FilesFullError):
            store.add(translate(), "x", ".txt", 1)
        store.remove(first)
        assert store.num_bytes == 0
        failed = store.add(translate(error=DocumentError("damaged")), "x", ".txt", 10)
        with pytest.raises(DocumentError):
            await failed.task
        assert store.get(failed.identifier) is failed
        assert store.num_bytes == ENTRY_BYTES

    asyncio.run(check())


def test_a_failed_document_is_not_kept() -> None:
    class Content:
        def decode(self) -> str:
            raise ValueError

    def read(content: Content) -> TranslatedDocument:
        try:
            return TranslatedDocument(content.decode().encode(), "en", 4)
        except ValueError:
            raise DocumentError("no text") from None

    async def translate(content: Content) -> TranslatedDocument:
        return await asyncio.to_thread(read, content)

    async def check() -> None:
        store = FileStore(ENTRY_BYTES + 10, 60.0)
        content = Content()
        freed = Event()
        finalize(content, freed.set)
        failed = store.add(translate(content), "x", ".txt", 1)
        del content
        await asyncio.wait([failed.task])
        await asyncio.sleep(0)
        gc.collect()
        assert freed.is_set()
        for _ in range(2):
            with pytest.raises(DocumentError, match="no text"):
                failed.task.result()
        assert isinstance(failed.task.exception(), DocumentError)

    asyncio.run(check())


def test_time_is_limited() -> None:
    async def check() -> None:
        store = FileStore(2 * ENTRY_BYTES + 100, 0.01)
        file = store.add(translate(), "x", ".txt", 4)
        await file.task
        assert store.get(file.identifier) is file
        await asyncio.sleep(0.1)
        with pytest.raises(UnknownFileError):
            store.get(file.identifier)

    asyncio.run(check())


def test_what_is_removed_is_cancelled() -> None:
    async def check() -> None:
        store = FileStore(2 * ENTRY_BYTES + 100, 60.0)
        file = store.add(translate(), "x", ".txt", 4)
        store.remove(file)
        with pytest.raises(asyncio.CancelledError):
            await file.task
        assert store.num_bytes == 0

    asyncio.run(check())
