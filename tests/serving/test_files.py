"""Documents in memory, without a server."""

import asyncio
import gc
from threading import Event
from weakref import finalize

import pytest

from transduce.errors import DocumentError, FilesFullError, TooLongError, UnknownFileError
from transduce.serving.files import ENTRY_BYTES, FileStore
from transduce.serving.service import TranslatedDocument


async def translate(content: bytes = b"Sonne.", error: Exception | None = None) -> TranslatedDocument:
    await asyncio.sleep(0)
    if error is not None:
        raise error
    return TranslatedDocument(content, "en", 4)


def test_a_document_can_be_found_by_its_name_and_key() -> None:
    async def check() -> None:
        store = FileStore(4 * ENTRY_BYTES + 100, 60.0)
        file, other = (store.add(translate(), "sun_de.txt", ".txt", 4, "a") for _ in range(2))
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
        store = FileStore(4 * ENTRY_BYTES + 100, 60.0)
        file = store.add(translate(), "sun_de.txt", ".txt", 4, "a", needs_key=True)
        assert store.get(file.identifier, file.key) is file
        with pytest.raises(UnknownFileError):
            store.get(file.identifier)

    asyncio.run(check())


def test_room_is_limited_and_is_free_again() -> None:
    async def check() -> None:
        store = FileStore(2 * ENTRY_BYTES + 20, 60.0)
        first = store.add(translate(b"Die Sonne."), "x", ".txt", 4, "a")
        assert store.num_bytes == ENTRY_BYTES + 4
        await first.task
        await asyncio.sleep(0)
        assert store.num_bytes == ENTRY_BYTES + len(b"Die Sonne.")
        with pytest.raises(FilesFullError):
            store.add(translate(), "x", ".txt", 1, "a")
        store.remove(first)
        assert store.num_bytes == 0
        failed = store.add(translate(error=DocumentError("damaged")), "x", ".txt", 10, "a")
        with pytest.raises(DocumentError):
            await failed.task
        assert store.get(failed.identifier) is failed
        assert store.num_bytes == ENTRY_BYTES

    asyncio.run(check())


def test_a_client_may_have_half_of_the_room() -> None:
    async def check() -> None:
        store = FileStore(4 * (ENTRY_BYTES + 10), 60.0)
        with pytest.raises(TooLongError, match=r"has 4,117 bytes; this service keeps at most 4,116 of a client"):
            store.add(translate(), "x", ".txt", ENTRY_BYTES + 21, "a")
        for client in ("a", "b"):
            for _ in range(2):
                store.add(translate(), "x", ".txt", 10, client)
            if client == "a":
                with pytest.raises(FilesFullError, match="your documents"):
                    store.add(translate(), "x", ".txt", 10, client)
        with pytest.raises(FilesFullError, match="documents of all clients"):
            store.add(translate(), "x", ".txt", 10, "c")

    asyncio.run(check())


@pytest.mark.parametrize("client", ["a", "b"])
@pytest.mark.parametrize(("num_bytes", "seconds"), [(0, 5), (10, 5), (11, 20), (ENTRY_BYTES + 20, 20)])
def test_it_is_known_when_there_is_room_again(client: str, num_bytes: int, seconds: int) -> None:
    """For a client that has its share, and for one that finds those of two others."""

    async def check() -> None:
        store = FileStore(4 * (ENTRY_BYTES + 10), 60.0)
        for owner, remaining in (("a", 20), ("a", 5), *[("c", 60)] * (2 if client == "b" else 0)):
            file = store.add(translate(b"0123456789"), "x", ".txt", 10, owner)
            await file.task
            await asyncio.sleep(0)
            assert file.removal is not None
            file.removal.cancel()
            file.removal = asyncio.get_running_loop().call_later(remaining, store.remove, file)
        with pytest.raises(FilesFullError, match=f"retry in {seconds} s") as raised:
            store.add(translate(), "x", ".txt", num_bytes, client)
        assert raised.value.retry_after == seconds

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
        store = FileStore(2 * (ENTRY_BYTES + 10), 60.0)
        content = Content()
        freed = Event()
        finalize(content, freed.set)
        failed = store.add(translate(content), "x", ".txt", 1, "a")
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
        store = FileStore(4 * ENTRY_BYTES + 100, 0.01)
        file = store.add(translate(), "x", ".txt", 4, "a")
        await file.task
        assert store.get(file.identifier) is file
        await asyncio.sleep(0.1)
        with pytest.raises(UnknownFileError):
            store.get(file.identifier)

    asyncio.run(check())


def test_what_is_removed_is_cancelled() -> None:
    async def check() -> None:
        store = FileStore(4 * ENTRY_BYTES + 100, 60.0)
        file = store.add(translate(), "x", ".txt", 4, "a")
        store.remove(file)
        with pytest.raises(asyncio.CancelledError):
            await file.task
        assert store.num_bytes == 0

    asyncio.run(check())
