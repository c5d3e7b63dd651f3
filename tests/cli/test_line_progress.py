import os
import pty
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from transduce.cli import line_progress
from transduce.cli.line_progress import FIRST_BLOCK, LARGEST_BLOCK, LineProgress


@pytest.fixture
def half_read(tmp_path: Path) -> Iterator[BinaryIO]:
    path = tmp_path / "text"
    path.write_bytes(b"ba\n" * 200)
    with path.open("rb", buffering=0) as stream:
        stream.read(300)
        yield stream


def test_blocks_grow_while_they_are_fast_and_shrink_when_they_are_slow() -> None:
    with LineProgress(None) as progress:
        sizes = [progress.block_size()]
        for _ in range(5):
            progress.done(progress.block_size(), 0.1)
            sizes.append(progress.block_size())
        assert sizes == [FIRST_BLOCK, 2 * FIRST_BLOCK, 4 * FIRST_BLOCK, LARGEST_BLOCK, LARGEST_BLOCK, LARGEST_BLOCK]
        progress.done(LARGEST_BLOCK, 40.0)
        assert progress.block_size() == LARGEST_BLOCK // 4
        progress.done(1, 0.001)  # a line that somebody typed says nothing about a block
        assert progress.block_size() == LARGEST_BLOCK // 4
        progress.done(1, 100.0)
        assert progress.block_size() == 1


def test_nothing_is_said_at_first(half_read: BinaryIO, capsys: pytest.CaptureFixture[str]) -> None:
    with LineProgress(half_read) as progress:
        progress.done(100, 1.0)
    assert capsys.readouterr().err == ""


def test_of_a_file_it_is_known_how_much_is_left(
    half_read: BinaryIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(line_progress, "PLAIN_EVERY_SECONDS", 0.0)
    with LineProgress(half_read) as progress:
        progress.done(100, 1.0)
    found = capsys.readouterr().err
    assert found.startswith("100 lines  ")
    assert found.endswith("  50.0% read  0:00 to go\n")


def test_of_a_pipe_it_is_not_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(line_progress, "PLAIN_EVERY_SECONDS", 0.0)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb"), LineProgress(stream) as progress:
        progress.done(100, 1.0)
    assert capsys.readouterr().err.endswith(" lines/s\n")


def test_a_terminal_has_a_live_line_that_goes_away(half_read: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_progress, "PLAIN_EVERY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    ours, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        with LineProgress(half_read) as progress:
            progress.done(100, 1.0)
            progress.done(50, 1.0)
    shown = b""
    with suppress(OSError):  # what Linux says at the end of a terminal that nobody writes to any more
        while block := os.read(ours, 10_000):  # a terminal gives its text in parts
            shown += block
    os.close(ours)
    found = shown.decode()
    assert "100 lines" in found
    assert found.index("100 lines") < found.index("150 lines")
    assert found.endswith("\x1b[2K")  # the line is wiped
