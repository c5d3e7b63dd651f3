"""The command `transduce`: runs the given command, and turns errors into messages and exit codes.

Commands are imported when they are called, so that `transduce --help` loads no torch.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import cached_property
from io import TextIOWrapper
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from cyclopts import App, CycloptsError, Parameter

from transduce.cli.console import StandardOutput, flush_or_discard, get_lossy_stderr, print_message
from transduce.errors import OtherRankEndedError, TransduceError, is_out_of_memory

if TYPE_CHECKING:
    from cyclopts.help import DefaultFormatter

COMMANDS = {
    "train": "Train a model from parallel text, or resume a stopped run.\n\n"
    "The run is a folder: best/ is the model to use, report.html shows how it went. Ctrl-C saves the state; the same "
    "command resumes the run. On several devices: torchrun --nproc-per-node N -m transduce train ...",
    "distill": "Train a small, fast student from a model's translations.\n\n"
    "The teacher translates the sources of the training text, and the student learns from its translations instead of "
    "the targets (sequence-level knowledge distillation, Kim & Rush 2016), or from both. At the end, size, speed and "
    "scores of both are printed. Ctrl-C stops it, and the same command goes on.",
    "doctor": "Look for mistakes in parallel text before training on it.\n\n"
    "Finds lines that are shifted or do not belong together, languages and sides that are swapped, damaged characters, "
    "test text that is in the training text, repetitions and much more; says where, and what to do. Nothing is "
    "changed. The exit code is 3 if a finding is serious: scores mislead, or the model learns what is wrong.",
    "translate": "Translate standard input to standard output, line by line.\n\n"
    "Line n in gives line n out; a blank line stays blank. A line longer than the model reads at once is translated in "
    "parts, sentence by sentence; standard error reports it. A shorter line is translated as a whole: for lines of "
    "several sentences, see --document.",
    "translate-file": "Translate a document, and keep its formatting.\n\n"
    "Word documents (DOCX), HTML, subtitles (SubRip and WebVTT) and plain text, by the ending of the name. Words in "
    "bold and the like stay so with the native engine; a paragraph is translated as a whole.",
    "evaluate": "Score translations of test sets: BLEU, chrF, TER, with signatures.\n\n"
    "Several systems are compared with the first one, and the significance of each difference is printed.",
    "compare": "Compare systems: scores, significance, and where they differ.\n\n"
    "A difference counts as significant if paired bootstrap resampling and approximate randomisation both find p "
    "below 0.05. Both are sacreBLEU's tests, but here a random difference counts also if it only equals the measured "
    "one, so that p may be slightly larger, above all of TER, which counts whole edits. If several systems are "
    "compared with the first one, p is corrected for that (Holm 1979). What is not decided is printed with the size of "
    "a difference that the test set would show. The page shows scores by length and by frequency of the words, "
    "phrases, and sentences.",
    "scorecard": "Test how a model behaves on unusual input, and show it in the model card.\n\n"
    "Capitals, typing errors, numbers, addresses, several sentences and the like: inputs made of your own sentences "
    "are translated as by `translate`, and judged by rules. Each behaviour has a score from 0 to 100, the best. Where "
    "an option of `translate` helps, the score with it is given, too. scorecard.json and README.md of the bundle keep "
    "the scores, without the sentences.",
    "score": "Print how probable the model finds given translations, line by line.\n\n"
    "A score is computed as in `translate`: the sum of the log-probabilities of the pieces, in nats, divided by the "
    "model's length penalty. The perplexity is printed to standard error.",
    "align": "Print which words of given pairs translate each other, line by line.\n\n"
    "Words are separated by white space. Each target word is linked to the source word to which one attention head of "
    "the decoder gives the largest weight. Without --head, this is the head named by the bundle's calibration, or else "
    "the best one for the first 1,000 pairs, by how well linked words translate each other (IBM Model 1); standard "
    "error names it.",
    "calibrate": "Calibrate confidence and choose the alignment head; store both in the bundle.",
    "average": "Average the last checkpoints of a run into one bundle (paper 6.1).",
    "export": "Write a model for another program or in int8, and check that it is the same.\n\n"
    "The exported model is loaded by the other program and compared with the original: tokenizer, log-probability of "
    "every token, greedy translations, and weights. If they differ by more than the tolerance, nothing is written. "
    "parity.json records the differences.",
    "import": "Convert another program's model to a bundle, and check that it is the same.",
    "info": "Describe a preset, recipe, run or bundle: parameters, shapes, sizes, settings.",
    "config": "Show the settings of a recipe, or the schema of all settings.",
    "serve": "Translate over HTTP, for clients of LibreTranslate and DeepL, and for browsers.\n\n"
    "http://127.0.0.1:5000/ is a page for translating, /inspect shows the Transformer at work, /docs describes the "
    "API. After SIGTERM or Ctrl-C the server refuses new requests, finishes the accepted ones, and exits with code 0. "
    "A model whose files change is reloaded without losing requests. /v1/score, /v1/inspect, markup and glossaries "
    "need the native engine.",
    "inspect": "Write a page that shows how a sentence is translated.\n\n"
    "Attention, the arithmetic of each head, the search as a tree, and what each layer predicts: a single HTML file "
    "that opens in any browser, without a network.",
    "lab": "Run experiments that test the claims of the paper.\n\n"
    "An experiment trains variants of the model, measures them, and writes a report with a verdict for each claim. "
    "Ctrl-C stops it; the same command goes on.",
    "demo": "Make data, train a small model on it in under three minutes, and test it.\n\n"
    "The data are numbers, years and dates in English and German. It needs two processor cores and no network. The "
    "bundle works with every other command.",
    "--install-completion": "Let the shell complete commands and options: bash, zsh or fish.\n\n"
    "A script is written to where the shell looks for it, and for bash and zsh a line is added to ~/.bashrc or "
    "~/.zshrc. After an update, the same command renews the script.",
}
"""The description of each command: its first paragraph in `transduce --help`, all of it in the command's own help."""


_LIBRARY_HELP = {
    "Display this message and exit.": "Print this help.",
    "Display application version.": "Print the version.",
}
"""The descriptions of cyclopts' own flags, and those printed in their place."""


class HelpFormatter:
    """Prints help as cyclopts does, but breaks descriptions at the width of the terminal, not where docstrings do."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:  # noqa: ANN401 - rich's, which is not loaded
        """Print a panel of help."""
        for entry in panel.entries:
            text: Any = getattr(entry.description, "primary_renderable", None)
            if hasattr(text, "plain"):
                plain = " ".join(text.plain.split())
                text.plain = _LIBRARY_HELP.get(plain, plain)
        self._formatter(console, options, panel)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes are those of cyclopts' formatter
        return getattr(self._formatter, name)

    @cached_property
    def _formatter(self) -> "DefaultFormatter":
        from cyclopts.help import DefaultFormatter  # noqa: PLC0415 - slow to import, and only help needs it

        return DefaultFormatter()


def _read_version() -> str:
    from transduce import __version__  # noqa: PLC0415 - only `--version` needs it

    return __version__


app = App(
    name="transduce",
    help='The Transformer of "Attention Is All You Need": from parallel text to a trained, measured translation model.',
    version=_read_version,
    help_format="plaintext",
    help_formatter=cast("Any", HelpFormatter()),
    # No --no-json flags; defaults that are false or empty are not shown.
    default_parameter=Parameter(negative=(), show_default=lambda default: default or None),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
_MODULES = {
    **dict.fromkeys(("average", "export", "import"), "bundles"),
    **dict.fromkeys(("calibrate", "align"), "score"),
    "--install-completion": "completion",
    "compare": "evaluate",
    "translate-file": "translate_file",
}
"""The module of each command that has no module of its own name."""
_FUNCTIONS = {
    "import": "import_bundle",
    "translate-file": "translate_file",
    "--install-completion": "install_completion",
}
"""Functions of commands whose own names are not valid in Python; every other command has a function of its own name."""

_FILE_HINTS = {
    "doctor": "doctor takes one file, a recipe: give two files of text as --source FILE --target FILE",
    "train": "train takes one file, a recipe: give two files of text as --source FILE --target FILE",
    "translate": "translate reads standard input: give a file as < FILE, or as --input FILE --output FOLDER",
}
"""Added to the error about an argument too many, by command: how text is given instead."""

_TEST_SET_OPTIONS = ("--source", "--reference", "--pairs")
_REPEATED_OPTIONS = {
    "compare": _TEST_SET_OPTIONS,
    "distill": ("--ensemble", "--set"),
    "doctor": ("--set",),
    "evaluate": _TEST_SET_OPTIONS,
    "inspect": ("--head", "--compare"),
    "serve": ("--cors", "--trusted-proxies"),
    "train": ("--set",),
    "translate": ("--ensemble", "--require", "--forbid"),
}
"""By command, options that take one value, and may be repeated: an error about an argument too many says so."""

_config = App(name="config", help=COMMANDS["config"])
_config.command(
    "transduce.cli.config:show",
    name="show",
    help="Print the resolved settings of a recipe as TOML; comments name the origins of values that are no defaults.",
)
_config.command(
    "transduce.cli.config:schema",
    name="schema",
    help="Print the JSON Schema of all settings, with which an editor can complete and check a recipe.",
)
_lab = App(name="lab", help=COMMANDS["lab"])
_lab.command("transduce.cli.lab:list_experiments", name="list", help="Print the experiments.")
_lab.command(
    "transduce.cli.lab:run", name="run", help="Run an experiment, or go on with a stopped one, and write its reports."
)
_lab.command(
    "transduce.cli.lab:report",
    name="report",
    help="Write the reports of experiments again, and print the verdicts of all of them as a table.",
)
_groups = {"config": _config, "lab": _lab}
for _name, _help in COMMANDS.items():
    if _name in _groups:
        app.command(_groups[_name])
        continue
    _function = _FUNCTIONS.get(_name, _name)
    app.command(f"transduce.cli.{_MODULES.get(_name, _name)}:{_function}", name=_name, help=_help)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit code: 0, 1 failed, 2 the user's mistake, 130 interrupted, or what the
    command returns.
    """
    # No command uses pydantic plugins; searching all installed packages for them takes 30 to 50 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if not os.environ.get("COLUMNS", "").strip("0"):
        os.environ.pop("COLUMNS", None)  # a width of 0 is none, as for most programs; rich fails with it
    exit_code = _run_command(arguments)
    for stream in (sys.stdout, sys.stderr):
        flush_or_discard(stream)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Under torchrun, objects that still refer to the process group keep its threads alive, and C++ aborts a process
        # that is torn down around them, after all work is done. This process therefore exits directly.
        os._exit(exit_code)
    sys.exit(exit_code)


def _run_command(arguments: Sequence[str] | None) -> int:
    try:
        signal.signal(signal.SIGTERM, _handle_sigterm)
        if isinstance(sys.stdout, TextIOWrapper):  # the output is UTF-8 on every machine
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
        with redirect_stdout(cast("Any", StandardOutput(sys.stdout))):
            found = app(arguments, exit_on_error=False, print_error=False)
            sys.stdout.flush()
    except CycloptsError as error:
        _print_usage_error(error, arguments)
        return 2
    except OtherRankEndedError as error:
        return error.exit_code
    except BrokenPipeError:
        return 141  # the reader of the output closed the pipe, as `head` does
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # from rich, which prints help, instead of the error itself
            return 141
        raise
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - users see no traceback unless they ask for it
        message, exit_code = _describe_exception(error)
        if isinstance(error, KeyboardInterrupt) and [*(arguments or sys.argv[1:])][:1] == ["serve"]:
            exit_code = 0  # the usual way to stop a server, also while it starts
        print_message(f"transduce: {message}")
        return exit_code
    return found if isinstance(found, int) else 0


def _print_usage_error(error: CycloptsError, arguments: Sequence[str] | None) -> None:
    from cyclopts import CycloptsPanel, UnusedCliTokensError  # noqa: PLC0415 - loads rich, which takes a tenth of a second
    from rich.console import Console  # noqa: PLC0415 - see above

    Console(file=get_lossy_stderr(), stderr=True).print(CycloptsPanel(error))
    if isinstance(error, UnusedCliTokensError):
        given = [*(arguments or sys.argv[1:])]
        unused = (error.unused_tokens or [""])[0]
        index = given.index(unused) if unused in given else 0
        option = given[index - 2] if index >= 2 else ""  # whose value is the token between
        if option in _REPEATED_OPTIONS.get(given[0], ()):
            print_message(f"{option} takes one value at a time, and is given again for another: {option} A {option} B")
        elif given[0] in _FILE_HINTS:
            print_message(_FILE_HINTS[given[0]])


def _handle_sigterm(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _describe_exception(error: BaseException) -> tuple[str, int]:
    match error:
        case KeyboardInterrupt():
            return "interrupted", 130
        case TransduceError():
            return str(error), error.exit_code
        case OSError():
            is_mistake = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError)
            return f"{error.filename}: {error.strerror}" if error.filename else str(error), 2 if is_mistake else 1
        case _ if is_out_of_memory(error):
            return (
                "memory is full: close other programs, or reduce memory use: smaller batches (training.batch_tokens, "
                "search.batch_tokens), fewer hypotheses (search.beam), a smaller model"
            ), 1
    if os.environ.get("TRANSDUCE_TRACEBACK"):
        traceback.print_exception(error)
    return f"a bug in Transduce: {type(error).__name__}: {error}; set TRANSDUCE_TRACEBACK=1 for the traceback", 1
