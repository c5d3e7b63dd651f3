"""Standard output, standard error, and the progress of work on it: a live line on a terminal, plain lines elsewhere."""

import json
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from typing import TYPE_CHECKING, Any, BinaryIO

from transduce.errors import UserError, WriteError

if TYPE_CHECKING:
    from transduce.evaluation import Score
    from transduce.training import Progress, Validation

PLAIN_EVERY_SECONDS = 15.0
"""Time between two plain lines of progress, where there is no terminal for a live line."""

FIRST_BLOCK = 256
"""Number of lines in the first block; each further block may be twice as large, within `BLOCK_SECONDS`."""

MAX_BLOCK = 2048
"""Maximum number of lines of a block: enough to form batches of similar length."""

BLOCK_SECONDS = 10.0
"""Target duration of one block in seconds: bounds the wait for output and the work lost by Ctrl-C."""


def print_message(text: str) -> None:
    """Print one line to standard error; a line that cannot be written is dropped without an error."""
    stream = get_lossy_stderr()
    if stream is not None:  # with None, print would write to standard output
        print(text, file=stream, flush=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def get_lossy_stderr() -> Any:  # noqa: ANN401 - an object like a stream
    """Standard error, which drops output that cannot be written; None if it was closed."""
    return None if sys.stderr is None else _LossyStream(sys.stderr)


def flush_or_discard(stream: Any) -> None:  # noqa: ANN401 - a stream, or None if it was closed
    """Flush a stream; if that fails, drop its buffer, which Python would otherwise flush again at exit, and fail."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class StandardOutput:
    """Standard output; a failed write raises an error that names standard output.

    Args:
        stream: standard output; None if it was closed, which matters only to commands that write to it.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - or an object like one
        self._is_closed = stream is None
        self._stream = StringIO() if stream is None else stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes are those of the stream
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text; returns the number of characters.

        Raises:
            UserError: it was closed.
            WriteError: it cannot be written, as on a full disk.
        """
        if self._is_closed:
            raise UserError("standard output is closed: send it to a file, or to /dev/null")
        with _convert_write_errors():
            return int(self._stream.write(text))

    def flush(self) -> None:
        """Flush; see `write`."""
        with _convert_write_errors():
            self._stream.flush()


@contextmanager
def _convert_write_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # its reader closed the pipe, which is not an error
        raise
    except OSError as error:
        raise WriteError(f"standard output: {error.strerror}") from None


class _LossyStream:
    """A stream that drops output it cannot write, because its reader has closed it or its disk is full."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - or an object like one
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes are those of the stream
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def open_standard_input() -> BinaryIO | None:
    """The binary stream of standard input; None if there is none, as under some service managers.

    A pipe that another process has made non-blocking is made blocking again.
    """
    stream: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if stream is not None and os.name == "posix":
        with suppress(OSError):  # held in memory
            os.set_blocking(stream.fileno(), True)
    return stream


def print_facts(facts: Mapping[str, str]) -> None:
    """Print each fact on its own line of standard error, with the values aligned."""
    width = max(map(len, facts))
    for name, value in facts.items():
        print_message(f"{name:{width}}  {value}")


class LiveLine:
    """A live line on a terminal, with plain lines above it; without a terminal, plain lines only. Never raises if
    standard error cannot be written.

    Args:
        last_plain: time of the last plain line, printed or suppressed.
        refresh_per_second: redraws per second; 0: only when the line is updated.
    """

    def __init__(self, last_plain: float, refresh_per_second: int = 0) -> None:
        from rich.console import Console  # noqa: PLC0415 - rich takes a tenth of a second to load
        from rich.live import Live  # noqa: PLC0415 - see above

        self._console = Console(
            file=get_lossy_stderr(), stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        self._live = Live(
            console=self._console,
            transient=True,
            auto_refresh=bool(refresh_per_second),
            refresh_per_second=refresh_per_second or 1,
        )
        self._is_refreshed = not refresh_per_second
        self._last_plain = last_plain

    def start(self) -> None:
        """Show the line on a terminal, if it is not shown yet."""
        if self._console.is_terminal:
            self._live.start()

    def update(self, line: str, *, is_last: bool = False) -> None:
        """Update the line, cut to the width of the terminal; without a terminal, print it at intervals."""
        from rich.text import Text  # noqa: PLC0415 - see above

        now = time.monotonic()
        if self._console.is_terminal:
            self.start()
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=self._is_refreshed)
        elif is_last or now - self._last_plain >= PLAIN_EVERY_SECONDS:
            self._last_plain = now
            self.print_above(line)

    def stop(self) -> None:
        """Remove the line."""
        self._live.stop()

    def print_above(self, line: str) -> None:
        """Print a plain line, above the live one if there is one."""
        self._console.print(line)


class ConsoleReporter:
    """Shows the progress of training on standard error; output that cannot be written is dropped, and the run
    continues.
    """

    def __init__(self) -> None:
        self._live = LiveLine(time.monotonic(), refresh_per_second=4)

    def __enter__(self) -> "ConsoleReporter":  # noqa: PYI034 - Self cannot be checked under test
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def report(self, text: str) -> None:
        """Print lines, above the live line if there is one."""
        for line in text.split("\n"):
            # Samples are untrusted text: a control character in them would control the terminal.
            self._live.print_above("".join(letter if letter.isprintable() else "\ufffd" for letter in line))

    def report_progress(self, progress: "Progress") -> None:
        """Update the live line; without a terminal, print a plain line at intervals."""
        self._live.update(format_progress(progress), is_last=progress.update == progress.updates)

    def report_validation(self, update: int, validation: "Validation", *, is_best: bool) -> None:
        """Print the figures of a validation, and its samples."""
        scores = "  ".join(map(format_score, validation.scores))
        best = "  (best so far)" if is_best else ""
        self.report(f"validation after update {update:,}: perplexity {validation.perplexity:.2f}  {scores}{best}")
        for sample in validation.samples:
            self.report(f"    source      {sample.source}")
            self.report(f"    translation {sample.translation}")
            self.report(f"    reference   {sample.reference}")


def format_score(score: "Score") -> str:
    """A score as in "BLEU 34.57 (95% 33.12 to 36.01)"; without the interval where none was computed."""
    return f"{score.metric} {score.value:.2f}{score.interval}"


def format_progress(progress: "Progress") -> str:
    """One line with updates, remaining time, epoch, loss and so on; the most important come first, for narrow
    terminals.
    """
    figures = progress.figures
    return (
        f"update {progress.update:,}/{progress.updates:,}  {format_duration(progress.seconds_remaining)} left  "
        f"epoch {progress.epochs:.2f}  loss {figures.loss:.3f}  {progress.tokens_per_second:,.0f} tokens/s  "
        f"learning rate {figures.learning_rate:.2e}  padding {figures.padding_share:.1%}"
    )


def format_duration(seconds: float) -> str:
    """A duration in hours, minutes and seconds, as in "1:02:03"; without hours, as in "2:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class LineProgress:
    """Shows the progress through a stream of lines on standard error: a live line on a terminal, plain lines elsewhere.

    Nothing is shown before `PLAIN_EVERY_SECONDS`, so that lines typed by hand are not interrupted.

    Args:
        stream: standard input; the remaining share is shown if it is a file.
    """

    def __init__(self, stream: BinaryIO | None) -> None:
        self._live: LiveLine | None = None
        self._descriptor = None if stream is None else _get_file_descriptor(stream)
        self._started = time.monotonic()
        self._num_lines, self._block_size = 0, FIRST_BLOCK

    def __enter__(self) -> "LineProgress":  # noqa: PYI034 - Self cannot be checked under test
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def choose_block_size(self) -> int:
        """Number of lines to read next."""
        return self._block_size

    def add_finished_lines(self, num_lines: int, seconds: float) -> None:
        """Record that `num_lines` more lines are finished and took `seconds`; adapt the size of blocks."""
        now = time.monotonic()
        self._num_lines += num_lines
        affordable = int(num_lines * BLOCK_SECONDS / max(seconds, 1e-6))
        if num_lines == self._block_size or affordable < self._block_size:
            self._block_size = max(1, min(2 * self._block_size, affordable, MAX_BLOCK))
        if now - self._started < PLAIN_EVERY_SECONDS:
            return
        if self._live is None:
            self._live = LiveLine(self._started)
        self._live.update(self._format_line(now))

    def _format_line(self, now: float) -> str:
        seconds = now - self._started
        line = f"{self._num_lines:,} lines  {self._num_lines / seconds:,.1f} lines/s"
        if self._descriptor is None:
            return line
        share = os.lseek(self._descriptor, 0, os.SEEK_CUR) / max(1, os.fstat(self._descriptor).st_size)
        if not 0 < share < 1:  # all has been read, or the file is still growing
            return line
        return f"{line}  {share:.1%} read  {format_duration(seconds / share - seconds)} left"


def _get_file_descriptor(stream: BinaryIO) -> int | None:
    try:
        descriptor = stream.fileno()
    except OSError:  # held in memory
        return None
    return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
