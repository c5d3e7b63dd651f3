import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from io import FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.console import ConsoleReporter, duration, score_with_interval
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


def test_a_terminal_has_a_live_line(start: Callable[..., subprocess.Popen[bytes]], workspace: Path) -> None:
    output, seen = with_terminal(start, "train", "tiny.toml", "--set", "training.updates=40")
    assert output == b""
    assert "\x1b[" in seen
    assert re.search(r"/40  \d+:\d\d to go  epoch", seen)
    assert "300 pairs are kept" in seen.replace("\r\n", "\n")
    # The line is gone at the end, and the cursor is there again.
    assert seen.rstrip().endswith("report.html")
    assert seen.rindex("\x1b[?25h") > seen.rindex(" to go  epoch")


def unread() -> int:
    """The end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


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
    assert score_with_interval(score) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3599.4, "59:59"), (3599.6, "1:00:00"), (90_061.0, "25:01:01")],
)
def test_a_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_message_of_several_lines_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleReporter().report("the checkpoint is damaged:\nField required\x1b[31m\u2028")
    assert capsys.readouterr().err == "the checkpoint is damaged:\nField required\ufffd[31m\ufffd\n"
