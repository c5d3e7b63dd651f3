import os
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.standard_streams import StandardOutput
from transduce.errors import WriteError


def unread() -> int:
    """The end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


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
    StandardOutput(held).writelines(["a\n", "b\n"])
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
