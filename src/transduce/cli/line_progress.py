"""Lines on their way through a command: how many are taken at a time, and how far it has come."""

import os
import stat
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import BinaryIO

from rich.live import Live
from rich.text import Text

from transduce.cli.console import PLAIN_EVERY_SECONDS, duration, make_console

FIRST_BLOCK = 256
"""Lines that are read before the first are translated; as many more each time, as long as they do not take too long."""

LARGEST_BLOCK = 2048
"""Enough to find companions of similar length."""

BLOCK_SECONDS = 10.0
"""For which somebody waits for output, or loses it by Ctrl-C, at most, about."""


class LineProgress(AbstractContextManager["LineProgress"]):
    """Shows how far a stream of lines is, on standard error: a live line on a terminal, plain lines elsewhere.

    Nothing is shown before `PLAIN_EVERY_SECONDS`, so that whoever types lines is left alone.

    Args:
        stream: standard input; how much is left of it is known if it is a file.
    """

    def __init__(self, stream: BinaryIO | None) -> None:
        self._console = make_console()
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._descriptor = None if stream is None else _file(stream)
        self._started = self._said = time.monotonic()
        self._num_lines, self._block_size = 0, FIRST_BLOCK

    def __enter__(self) -> "LineProgress":  # noqa: PYI034 - Self cannot be checked under test
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def block_size(self) -> int:
        """Lines to be taken next."""
        return self._block_size

    def done(self, num_lines: int, seconds: float) -> None:
        """So many lines more are finished, and took so long."""
        now = time.monotonic()
        self._num_lines += num_lines
        affordable = int(num_lines * BLOCK_SECONDS / max(seconds, 1e-6))
        if num_lines == self._block_size or affordable < self._block_size:
            self._block_size = max(1, min(2 * self._block_size, affordable, LARGEST_BLOCK))
        if now - self._started < PLAIN_EVERY_SECONDS:
            return
        if self._console.is_terminal:
            self._live.start()
            self._live.update(Text(self._line(now), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif now - self._said >= PLAIN_EVERY_SECONDS:
            self._said = now
            self._console.print(Text(self._line(now)))

    def _line(self, now: float) -> str:
        seconds = now - self._started
        line = f"{self._num_lines:,} lines  {self._num_lines / seconds:,.1f} lines/s"
        if self._descriptor is None:
            return line
        share = os.lseek(self._descriptor, 0, os.SEEK_CUR) / max(1, os.fstat(self._descriptor).st_size)
        if not 0 < share < 1:  # all is read, or it is still being written
            return line
        return f"{line}  {share:.1%} read  {duration(seconds / share - seconds)} to go"


def _file(stream: BinaryIO) -> int | None:
    """The descriptor of a stream that is a file, which knows how long it is."""
    try:
        descriptor = stream.fileno()
    except OSError:  # held in memory
        return None
    return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
