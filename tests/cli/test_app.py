import inspect
import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from transduce import __version__
from transduce.cli.app import _FUNCTIONS, _MODULES, COMMANDS

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.exhaustive
def test_help_is_there_at_once(process: Any) -> None:
    def processor_seconds() -> float:  # of all processes so far; other programs' work does not count
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    seconds = []
    for _ in range(3):
        started = processor_seconds()
        answer = process("--help")
        seconds.append(processor_seconds() - started)
        assert (answer.exit_code, answer.messages) == (0, "")
        assert all(command in answer.output.decode() for command in COMMANDS)
    # Less than half of what it takes to import torch, whatever the machine.
    started = processor_seconds()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    assert min(seconds) < (processor_seconds() - started) / 2


@pytest.mark.parametrize("command", [*COMMANDS, "config show", "config schema"])
def test_every_command_has_help(transduce: Any, command: str) -> None:
    answer = transduce(*command.split(), "--help")
    assert (answer.exit_code, answer.messages) == (0, "")
    text = answer.output.decode()
    assert text.split("\n")[0].startswith(f"Usage: transduce {command}")
    if command in COMMANDS:
        assert COMMANDS[command].split("\n")[0] in text
    # What an option is for stands behind its name.
    described = [line for line in text.split("\n") if line.startswith(("│ --", "│ *  --", "│    --"))]
    assert all(len(line.strip("│ *").split("  ", 1)) == 2 for line in described)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in {"config", "lab"}])
def test_code_and_help_describe_a_command_alike(command: str) -> None:
    module = import_module(f"transduce.cli.{_MODULES.get(command, command)}")
    described = inspect.getdoc(getattr(module, _FUNCTIONS.get(command, command)))
    assert described is not None
    assert described.split("\n\n")[0].replace("\n", " ") == COMMANDS[command].split("\n\n")[0]


WITHOUT_EXTRAS = """
import sys
for module in {modules!r}:
    sys.modules[module] = None  # importing it fails, as if it were not installed
from importlib import import_module
from transduce.cli import main
for module in {commands!r}:
    import_module(module)
codes = []
for command in {arguments!r}:
    try:
        main(command)
    except SystemExit as leaving:
        codes.append(leaving.code)
print(codes, file=sys.stderr)
"""
"""What a process does in which no package of an extra is installed: it prints the exit codes of `arguments`."""


def test_commands_and_their_help_need_no_extra(workspace: Path) -> None:
    modules = (
        "babel ctranslate2 fastapi httptools num2words onnx onnxruntime prometheus_client py3langid pyarrow "
        "python_multipart starlette tensorboard transformers uvicorn zstandard"
    )
    commands = [f"transduce.cli.{path.stem}" for path in (SOURCE / "transduce" / "cli").glob("[a-z]*.py")]
    arguments = [[*command.split(), "--help"] for command in (*COMMANDS, "config show", "config schema")]
    arguments.append(["serve", "model"])
    program = WITHOUT_EXTRAS.format(modules=modules.split(), commands=commands, arguments=arguments)
    result = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        encoding="utf-8",
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    *messages, codes = result.stderr.splitlines()
    assert codes == str([0] * (len(arguments) - 1) + [2])
    assert len(messages) == 1
    assert messages[0].startswith("transduce: transduce serve needs the package 'fastapi', which is not installed: pip")


def test_without_a_command_help_is_shown(transduce: Any) -> None:
    assert transduce().output == transduce("--help").output


def test_help_whose_reader_leaves(process: Any) -> None:
    """As `head -1` does."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stream:
        answer = process("train", "--help", stdout=stream)
    assert (answer.exit_code, answer.messages) == (141, "")


def test_the_version(transduce: Any) -> None:
    assert transduce("--version").output.decode() == f"{__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nonsense"], "nonsense"),
        (["config", "nonsense"], "nonsense"),
        (["train", "--nonsense"], "--nonsense"),
        (["translate"], "MODEL"),
        (["translate", "model", "more"], "more"),
        (["translate", "model", "--beam", "four"], "four"),
        (["translate", "model", "--beam"], "--beam"),
        (["evaluate", "model", "--source", "a"], "--reference"),
        (["info", "base", "--no-json"], "--no-json"),
        (["average", "run"], "--output"),
    ],
)
def test_what_is_not_a_command_or_option_is_refused(transduce: Any, arguments: list[str], named: str) -> None:
    answer = transduce(*arguments)
    assert answer.exit_code == 2
    assert answer.output == b""
    assert named in answer.messages
    assert "Traceback" not in answer.messages


def test_output_is_utf_8_wherever_it_goes(transduce: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "größe.toml").write_text("", encoding="utf-8")
    with (workspace / "output").open("w", encoding="latin-1") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert transduce("info", "größe.toml", "--json").exit_code == 0
    assert json.loads((workspace / "output").read_text(encoding="utf-8"))["subject"] == "größe.toml"


def test_help_breaks_lines_only_at_the_width_of_the_terminal(process: Any) -> None:
    (line,) = (line for line in process("train", "--help", environment={"COLUMNS": "250"}).lines if "--time" in line)
    assert "time budget" in line
    assert "chosen to fit it." in line


@pytest.mark.parametrize("width", ["0", "00", ""])
def test_a_terminal_without_width_counts_as_one_of_unknown_width(process: Any, width: str) -> None:
    answer = process("--help", environment={"COLUMNS": width})
    assert (answer.exit_code, answer.messages) == (0, "")
    assert max(map(len, answer.lines)) == 80


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["translate", "runs/mine", "input.txt"], "translate reads standard input: give a file as <"),
        (["translate", "a", "--ensemble", "b", "c"], "is given again for another: --ensemble A --ensemble B"),
        (["translate", "--json", "a", "c"], "translate reads standard input: give a file as <"),
        (["translate", "a", "--beam", "4", "c"], "translate reads standard input: give a file as <"),
        (["doctor", "train.en", "train.de"], "doctor takes one file, a recipe: give two files of text as --source"),
        (["train", "train.en", "train.de"], "train takes one file, a recipe: give two files of text as --source"),
        (["train", "--set", "training.seed=2", "a.en", "a.de"], "train takes one file, a recipe: give two files"),
        (["train", "a.toml", "--set", "training.seed=2", "b=3"], "is given again for another: --set A --set B"),
        (["evaluate", "a", "--source", "x", "y"], "is given again for another: --source A --source B"),
    ],
)
def test_an_argument_too_many_is_answered_with_how_it_is_given(transduce: Any, arguments: list[str], hint: str) -> None:
    answer = transduce(*arguments)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert arguments[-1] in answer.messages
    assert hint in answer.messages


def test_a_setting_that_would_be_a_recipe_is_recognised(transduce: Any) -> None:
    answer = transduce("config", "show", "--set", "training.updates=5", "model.d_ff=8")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "model.d_ff=8: there is no such file" in answer.messages
    assert "give it as --set model.d_ff=8" in answer.messages


def test_other_mistakes_have_no_hint_on_files(transduce: Any) -> None:
    assert "--source FILE" not in transduce("train", "--nonsense").messages
    assert "FILE" not in transduce("info", "base", "tiny").messages
