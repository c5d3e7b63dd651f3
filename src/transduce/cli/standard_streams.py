"""Standard output, without which a command fails, and standard error, whose failures stop no command."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any

from transduce.errors import UserError, WriteError


def print_message(text: str) -> None:
    """Print one line on standard error; a line that cannot be written is lost, and is no error."""
    stream = get_lossy_stderr()
    if stream is not None:  # print would take standard output instead
        print(text, file=stream, flush=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def get_lossy_stderr() -> Any:  # noqa: ANN401 - what takes the place of a stream
    """Standard error, on which what cannot be written is lost; None if it was closed."""
    return None if sys.stderr is None else _LossyStream(sys.stderr)


def flush_or_discard(stream: Any) -> None:  # noqa: ANN401 - a stream, or None if it was closed
    """Flush a stream; drop what it cannot write, as Python would try once more at the end, and fail."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class StandardOutput:
    """Standard output, whose errors say that it could not be written.

    Args:
        stream: standard output; None if it was closed, which matters only to commands that write to it.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - or whatever takes the place of one
        self._is_closed = stream is None
        self._stream = StringIO() if stream is None else stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - in all else, it is that stream
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text; the number of its characters is returned.

        Raises:
            UserError: it was closed.
            WriteError: it takes no more, as on a full disk.
        """
        if self._is_closed:
            raise UserError("standard output is closed: send it to a file, or to /dev/null")
        with _convert_write_errors():
            return int(self._stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines; see `write`."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush; see `write`."""
        with _convert_write_errors():
            self._stream.flush()


@contextmanager
def _convert_write_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # its reader wants no more, which is no failure
        raise
    except OSError as error:
        raise WriteError(f"standard output: {error.strerror}") from None


class _LossyStream:
    """A stream on which what cannot be written is lost, because its reader has gone or its disk is full."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - or whatever takes the place of one
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - in all else, it is that stream
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()
