"""Completion, by the shells themselves."""

import os
import pty
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOMES = ("HOME", "ZDOTDIR", "ZSH", "ZSH_CUSTOM", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "BASH_ENV", "ENV")
START = {"bash": ["--noprofile", "-i"], "zsh": ["-d", "-i"]}
"""What makes a shell read the files of its user alone, and talk."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user who has nothing but what zsh asks new users for."""
    for name in HOMES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".zshrc").write_text("autoload -Uz compinit && compinit -u\n", encoding="utf-8")
    program = folder / "bin" / "transduce"  # fish completes what there is
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def press_tab(shell: str, typed: str, expected: str, folder: Path) -> str:
    """What the terminal shows after `typed` and Tab, as soon as it has `expected`; all of it after a minute."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", PS1="ready> ")
        os.execvp(shell, [shell, *START[shell]])  # noqa: S606 - no shell starts this shell
    shown = b""
    try:
        deadline, is_typed = time.monotonic() + 60, False
        while time.monotonic() < deadline and expected.encode() not in shown:
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 4096)
            elif not is_typed:  # it has said all that it says before the first line
                os.write(terminal, f"{typed}\t".encode())
                is_typed = True
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
    return shown.decode(errors="replace")


def install_for(shell: str, home: Path, transduce: Any) -> Path:
    """Install completion for a shell that is there; gives a folder without files to complete."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    answer = transduce("--install-completion", "--shell", shell)
    assert (answer.exit_code, answer.output) == (0, b"")
    assert f"the next {shell}" in answer.messages
    (home / "work").mkdir()
    return home / "work"


@pytest.mark.parametrize("shell", START)
def test_tab_completes_commands_and_values(shell: str, home: Path, transduce: Any) -> None:
    folder = install_for(shell, home, transduce)
    assert "transduce evaluate" in press_tab(shell, "transduce evalu", "transduce evaluate", folder)
    line = "transduce translate model --precision bf"
    wanted = line.removesuffix("bf") + "bfloat16"
    assert wanted in press_tab(shell, line, wanted, folder)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("info mo", "info model/"),
        ("train REC", "train RECIPE.toml"),
        ("train --output mo", "train --output model/"),
        ("train --source model/tr", "train --source model/train.en"),
        ("train --pairs my", r"train --pairs my\ pairs.tsv"),
        ("translate model --input model/tr", "translate model --input model/train.en"),
        ("doctor --test-source model/tr", "doctor --test-source model/train.en"),
        ("export mo", "export model/"),
        ("export model --to hug", "export model --to huggingface"),
        ("lab run riv", "lab run rivals"),
    ],
)
def test_bash_completes_names_of_files_formats_and_experiments(
    home: Path, transduce: Any, typed: str, completed: str
) -> None:
    folder = install_for("bash", home, transduce)
    (folder / "model").mkdir()
    for name in ("RECIPE.toml", "my pairs.tsv", "model/train.en"):
        (folder / name).touch()
    assert f"transduce {completed}" in press_tab("bash", f"transduce {typed}", f"transduce {completed}", folder)


@pytest.mark.parametrize(("shell", "of_files"), [("zsh", ":_files'"), ("fish", " -r -F ")])
@pytest.mark.parametrize("option", ["source", "pairs", "validation-target", "test-pairs", "input", "output"])
def test_scripts_of_other_shells_have_names_of_files(
    shell: str, of_files: str, option: str, home: Path, transduce: Any
) -> None:
    lines = transduce("--install-completion", "--shell", shell, "--print").lines
    of_option = [line for line in lines if f"--{option}[" in line or f"-l {option} " in line]
    assert of_option
    assert [line for line in of_option if of_files not in line] == []


def test_fish_completes_commands_and_values(home: Path, transduce: Any) -> None:
    folder = install_for("fish", home, transduce)
    for line, wanted in (("transduce evalu", "evaluate"), ("transduce translate model --precision bf", "bfloat16")):
        command = ["fish", "--command", f"complete --do-complete '{line}'"]
        shown = subprocess.run(command, cwd=folder, capture_output=True, check=True, encoding="utf-8", timeout=60)
        assert [offered.split("\t")[0] for offered in shown.stdout.splitlines()] == [wanted]


def test_what_was_in_startup_files_stays(home: Path, transduce: Any) -> None:
    (home / ".bashrc").write_text("alias a=b", encoding="utf-8")
    for _ in range(2):
        assert transduce("--install-completion", "--shell", "bash").exit_code == 0
    lines = (home / ".bashrc").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "alias a=b"
    assert len([line for line in lines if "completions/transduce" in line]) == 1


@pytest.mark.parametrize(
    ("shell", "has"), [("bash", "complete "), ("zsh", "#compdef transduce"), ("fish", "complete ")]
)
def test_the_script_is_printed_and_nothing_written(
    shell: str, has: str, home: Path, transduce: Any, contents: Callable[[Path], dict[str, bytes | None]]
) -> None:
    before = contents(home)
    answer = transduce("--install-completion", "--shell", shell, "--print")
    assert (answer.exit_code, answer.messages) == (0, "")
    assert has in answer.output.decode()
    assert contents(home) == before


def test_an_unknown_shell_has_to_be_named(home: Path, transduce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no program says what the parent process is
    monkeypatch.setenv("SHELL", "/bin/dash")
    for name in ("BASH_VERSION", "ZSH_VERSION", "FISH_VERSION"):
        monkeypatch.delenv(name, raising=False)
    answer = transduce("--install-completion")
    assert answer.exit_code == 2
    assert "the shell is unknown: give --shell bash" in answer.messages
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert transduce("--install-completion").exit_code == 0
    assert (home / ".zsh" / "completions" / "_cyclopts_transduce").is_file()
