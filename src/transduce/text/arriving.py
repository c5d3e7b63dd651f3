"""Lines that are still being written: blocks of what is there, so that nobody waits for lines to come."""

import io
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator

from transduce.errors import CorpusError
from transduce.text.lines import read_stream

_READ = 2**16
_PATIENCE = 0.05


class _Descriptor:
    """The lines of an open file, and whether there is another one without waiting for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._buffer = bytearray()
        self._searched = 0  # bytes of it without a line end
        self._is_at_end = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            end = self._line_end()
            if not end and not self._is_at_end:
                self._read()
                continue
            line = bytes(self._buffer[: end or len(self._buffer)])
            del self._buffer[: len(line)]
            self._searched = 0
            if not line:
                return
            yield line

    def has_more(self) -> bool:
        """Whether a whole line, or the end, is there already or comes within a moment."""
        until = time.monotonic() + _PATIENCE
        while not self._line_end() and not self._is_at_end and not self._is_file:
            rest = max(0.0, until - time.monotonic())
            if not select.select([self._descriptor], [], [], rest)[0]:
                return False
            self._read()
        return True

    def _line_end(self) -> int:
        """Bytes of the first line, its end included; 0 if its end is not there yet."""
        end = self._buffer.find(b"\n", self._searched) + 1
        self._searched = end - 1 if end else len(self._buffer)
        return end

    def _read(self) -> None:
        found = os.read(self._descriptor, _READ)
        self._buffer += found
        self._is_at_end = not found


def arriving_blocks(stream: Iterable[bytes] | None, name: str, most: Callable[[], int]) -> Iterator[list[str]]:
    """The lines of a stream in blocks; see `read_stream` for what a line is.

    A file's blocks are as large as they may be. What comes through a pipe or from a terminal is handed on as soon as
    nothing more comes for a twentieth of a second. Before an error is raised, what stands before it is handed on.

    Args:
        stream: binary, at its start; None is empty.
        name: what errors call it.
        most: says, before each block, how many lines it may have.

    Raises:
        CorpusError: a line is not UTF-8, or the stream breaks off.
    """
    if stream is None:
        return
    try:
        source = _Descriptor(stream.fileno()) if os.name == "posix" and isinstance(stream, io.IOBase) else None
    except (OSError, io.UnsupportedOperation):  # held in memory
        source = None
    given: Iterable[bytes] = stream if source is None else source
    block: list[str] = []
    room = most()
    try:
        for line in read_stream(given, name):
            block.append(line)
            if len(block) >= room or (source is not None and not source.has_more()):
                yield block
                block, room = [], most()
    except CorpusError:
        if block:
            yield block
        raise
    if block:
        yield block
