"""`transduce --install-completion`: the shell completes commands, options and their values."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from transduce.cli.console import print_message
from transduce.errors import ConfigError

Shell = Literal["bash", "zsh", "fish"]

FileName = Annotated[str | Path, Parameter(metavar="PATH")]
"""Type of an option that names a file, folder or address. Its value is a `str`, as it is typed, since a `Path` would
make s3:/ of s3://; because of `Path`, shells complete file names."""


def install_completion(
    *,
    shell: Shell | None = None,
    print_only: Annotated[bool, Parameter(name="--print")] = False,
) -> None:
    """Let the shell complete commands and options: bash, zsh or fish.

    Args:
        shell: the shell; unless given, the one that this is typed into.
        print_only: print the script to standard output, and write no file.
    """
    from cyclopts.completion.install import add_to_rc_file, get_default_completion_path  # noqa: PLC0415 - seldom needed

    from transduce.cli.app import app  # noqa: PLC0415 - it names this module

    shell = shell or _detect_shell()
    script = app.generate_completion(shell=shell)
    if shell == "bash":
        # Bash's own completion of files knows spaces and folders; cyclopts asks `compgen`, whose answer has lost them.
        script = script.replace('COMPREPLY=( $(compgen -f -- "${cur}") )', "COMPREPLY=()")
        script = script.replace("\ncomplete -F", "\ncomplete -o bashdefault -o default -F")
    if print_only:
        print(script, end="" if script.endswith("\n") else "\n")
        return
    path = get_default_completion_path(shell, "transduce")
    path.write_text(script, encoding="utf-8")
    print_message(f"{path}: written")
    if shell != "fish" and add_to_rc_file(path, "transduce", shell):  # fish finds the script by itself
        print_message(f"{Path.home() / f'.{shell}rc'}: now loads it")
    if shell == "zsh":
        print_message("zsh completes only after compinit, which most ~/.zshrc call: autoload -Uz compinit && compinit")
    print_message(f"completion begins in the next {shell} that is opened")


def _detect_shell() -> Shell:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell  # noqa: PLC0415 - seldom needed

    try:
        found = detect_shell()
    except ShellDetectionError:
        found = None
    if found is None or found == "powershell":
        raise ConfigError(f"the shell is {found or 'unknown'}: give --shell bash, --shell zsh or --shell fish")
    return found
