import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from io import FileIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from transduce.cli import console
from transduce.cli.console import (
    FIRST_BLOCK,
    MAX_BLOCK,
    ConsoleReporter,
    LineProgress,
    StandardOutput,
    format_duration,
    format_score,
    open_standard_input,
)
from transduce.errors import WriteError
from transduce.evaluation import Score


def with_terminal(
    start: Callable[..., subprocess.Popen[bytes]], *arguments: object, standard_input: bytes = b""
) -> tuple[bytes, str]:
    """Standard output, and what a terminal is sent on standard error."""
    terminal, end = pty.openpty()
    with start(*arguments, stderr=end) as running:
        os.close(end)
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(standard_input)
        running.stdin.close()
        seen = b""
        try:
            while block := os.read(terminal, 1 << 16):
                seen += block
        except OSError:  # the other end is closed
            pass
        output = running.stdout.read()
    os.close(terminal)
    assert running.returncode == 0, seen
    return output, seen.decode()


@pytest.mark.exhaustive
def test_a_terminal_has_a_live_line(start: Callable[..., subprocess.Popen[bytes]], workspace: Path) -> None:
    output, seen = with_terminal(start, "train", "tiny.toml", "--set", "training.updates=40")
    assert output == b""
    assert "\x1b[" in seen
    assert re.search(r"/40  \d+:\d\d left  epoch", seen)
    assert "300 pairs are kept" in seen.replace("\r\n", "\n")
    # The line is gone at the end, and the cursor is there again.
    assert seen.rstrip().endswith("report.html")
    assert seen.rindex("\x1b[?25h") > seen.rindex(" left  epoch")


def unread() -> int:
    """The end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", [lambda: "/dev/full", unread, lambda: None], ids=["full", "unread", "closed"])
def test_a_watcher_who_goes_away_does_not_stop_a_run(
    transduce: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch, place: Callable[[], Any]
) -> None:
    monkeypatch.setattr("transduce.cli.console.PLAIN_EVERY_SECONDS", 0.0)
    target = place()
    with nullcontext() if target is None else TextIOWrapper(FileIO(target, "w"), write_through=True) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        answer = transduce("train", "tiny.toml")
    assert (answer.exit_code, answer.output) == (0, b"")
    assert (workspace / "runs" / "tiny" / "best").is_dir()


@pytest.mark.exhaustive
def test_translations_stay_apart_from_messages(start: Callable[..., subprocess.Popen[bytes]], run_folder: Path) -> None:
    output, seen = with_terminal(start, "translate", run_folder, standard_input=b"ba do\nfi\n")
    assert output.count(b"\n") == 2
    assert b"\x1b" not in output
    assert "2 lines in " in seen


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score("BLEU", 34.567, "s", 33.12, 36.014), "BLEU 34.57 (95% 33.12 to 36.01)"),
        (Score("chrF", 60.0, "s"), "chrF 60.00"),
    ],
)
def test_a_score_is_told_with_its_interval(score: Score, text: str) -> None:
    assert format_score(score) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3599.4, "59:59"), (3599.6, "1:00:00"), (90_061.0, "25:01:01")],
)
def test_a_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_message_of_several_lines_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleReporter().report("the checkpoint is damaged:\nField required\x1b[31m\u2028")
    assert capsys.readouterr().err == "the checkpoint is damaged:\nField required\ufffd[31m\ufffd\n"


@pytest.fixture
def half_read(tmp_path: Path) -> Iterator[BinaryIO]:
    path = tmp_path / "text"
    path.write_bytes(b"ba\n" * 200)
    with path.open("rb", buffering=0) as stream:
        stream.read(300)
        yield stream


def test_blocks_grow_while_they_are_fast_and_shrink_when_they_are_slow() -> None:
    with LineProgress(None) as progress:
        sizes = [progress.choose_block_size()]
        for _ in range(5):
            progress.add_finished_lines(progress.choose_block_size(), 0.1)
            sizes.append(progress.choose_block_size())
        assert sizes == [FIRST_BLOCK, 2 * FIRST_BLOCK, 4 * FIRST_BLOCK, MAX_BLOCK, MAX_BLOCK, MAX_BLOCK]
        progress.add_finished_lines(MAX_BLOCK, 40.0)
        assert progress.choose_block_size() == MAX_BLOCK // 4
        progress.add_finished_lines(1, 0.001)  # a line that somebody typed says nothing about a block
        assert progress.choose_block_size() == MAX_BLOCK // 4
        progress.add_finished_lines(1, 100.0)
        assert progress.choose_block_size() == 1


def test_nothing_is_said_at_first(half_read: BinaryIO, capsys: pytest.CaptureFixture[str]) -> None:
    with LineProgress(half_read) as progress:
        progress.add_finished_lines(100, 1.0)
    assert capsys.readouterr().err == ""


def test_of_a_file_it_is_known_how_much_is_left(
    half_read: BinaryIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "PLAIN_EVERY_SECONDS", 0.0)
    with LineProgress(half_read) as progress:
        progress.add_finished_lines(100, 1.0)
    found = capsys.readouterr().err
    assert found.startswith("100 lines  ")
    assert found.endswith("  50.0% read  0:00 left\n")


def test_of_a_pipe_it_is_not_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "PLAIN_EVERY_SECONDS", 0.0)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb"), LineProgress(stream) as progress:
        progress.add_finished_lines(100, 1.0)
    assert capsys.readouterr().err.endswith(" lines/s\n")


def test_a_terminal_has_a_live_line_that_goes_away(half_read: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PLAIN_EVERY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    ours, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        with LineProgress(half_read) as progress:
            progress.add_finished_lines(100, 1.0)
            progress.add_finished_lines(50, 1.0)
    shown = b""
    with suppress(OSError):  # what Linux says at the end of a terminal that nobody writes to any more
        while block := os.read(ours, 10_000):  # a terminal gives its text in parts
            shown += block
    os.close(ours)
    found = shown.decode()
    assert "100 lines" in found
    assert found.index("100 lines") < found.index("150 lines")
    assert found.endswith("\x1b[2K")  # the line is wiped


def test_standard_input_that_does_not_block_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, b"first\n")
    later = threading.Timer(0.2, lambda: (os.write(writer, b"second\n"), os.close(writer)))
    with os.fdopen(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        later.start()
        taken = open_standard_input()
        assert taken is not None
        assert taken.read() == b"first\nsecond\n"
    later.join()


@pytest.mark.exhaustive
@pytest.mark.parametrize("arguments", [("translate", "nowhere"), ("translate", "nowhere", "--nonsense")])
@pytest.mark.parametrize(
    "streams",
    [
        lambda: {"preexec_fn": partial(os.close, 2)},
        lambda: {"stderr": unread()},
        lambda: {"stderr": os.open("/dev/full", os.O_WRONLY)},
    ],
    ids=["closed", "unread", "full"],
)
def test_mistakes_have_their_exit_code_wherever_the_message_goes(
    process: Any, arguments: tuple[str, ...], streams: Callable[[], dict[str, Any]]
) -> None:
    answer = process(*arguments, **streams())
    assert (answer.exit_code, answer.output, answer.messages) == (2, b"", "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("arguments", [("info", "base"), ("config", "schema"), ("--help",)])
def test_a_closed_output_is_refused_by_what_writes_to_it(process: Any, arguments: tuple[str, ...]) -> None:
    answer = process(*arguments, preexec_fn=partial(os.close, 1))
    expected = "transduce: standard output is closed: send it to a file, or to /dev/null\n"
    assert (answer.exit_code, answer.messages) == (2, expected)


@pytest.mark.exhaustive
def test_what_writes_nothing_needs_no_output(process: Any, run_folder: Path, workspace: Path) -> None:
    answer = process("average", run_folder, "--last", "1", "--output", "averaged", preexec_fn=partial(os.close, 1))
    assert answer.exit_code == 0
    assert (workspace / "averaged").is_dir()


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_unbuffered", ["", "1"])
def test_a_full_device_is_a_failure(process: Any, is_unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        answer = process("info", "base", stdout=full, environment={"PYTHONUNBUFFERED": is_unbuffered})
    assert (answer.exit_code, answer.messages) == (1, "transduce: standard output: No space left on device\n")


def test_output_is_the_streams(tmp_path: Path) -> None:
    held = StringIO()
    print("a", "b", sep="\n", file=StandardOutput(held))
    assert held.getvalue() == "a\nb\n"
    with Path("/dev/full").open("w") as full:
        output = StandardOutput(full)
        assert output.fileno() == full.fileno()
        with pytest.raises(WriteError, match="standard output: No space left"):
            output.write("a" * 2**20)
    with (tmp_path / "file").open("w") as stream:
        StandardOutput(stream).write("a")
        StandardOutput(stream).flush()
    assert (tmp_path / "file").read_text() == "a"
