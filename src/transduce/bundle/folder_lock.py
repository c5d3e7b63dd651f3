"""One process at a time: a lock that is let go of when its process ends, however it ends."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from transduce.errors import BusyError, OutputError

_SIGNED = "process "
"""How a lock begins that says who holds it."""


@contextmanager
def locked(folder: Path, lock: Path, patience: float = 0) -> Iterator[None]:
    """Keep every other process out of such a block of its own.

    Args:
        folder: what is kept, for the message.
        lock: a file that is made for this, says which process holds it, and is removed again. One that a killed
            process left behind locks nobody out.
        patience: seconds to wait for another process to leave such a block.

    Raises:
        BusyError: another process is in such a block.
        OutputError: a file of somebody's own has the name of the lock.
        OSError: `lock` cannot be written, or its file system knows no locks.
    """
    if _is_foreign(lock):
        raise OutputError(
            f"{lock}: is in the place of a lock, which would remove it: move it, or choose another folder"
        )
    holder = FileLock(lock, timeout=patience, on_acquired=_sign)
    try:
        holder.acquire()
    except Timeout:
        raise BusyError(
            f"{folder}: is in use by {_signature(lock)}; wait until that ends, or choose another folder"
        ) from None
    try:
        yield
    finally:
        # While it is held: whoever opened it meanwhile finds that the file has lost its name, and does not take it.
        with suppress(OSError):
            lock.unlink()
        holder.release()


def _sign(descriptor: int) -> None:
    with suppress(OSError):  # a full disk: nobody will know the name, but the lock holds
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{_SIGNED}{os.getpid()} on {socket.gethostname()}".encode())


def _is_foreign(lock: Path) -> bool:
    try:
        content = lock.read_bytes()
    except OSError:  # it is not there, or Windows lets nobody read it while it is held
        return False
    return bool(content) and not content.startswith(_SIGNED.encode())


def _signature(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"
