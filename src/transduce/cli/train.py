"""`transduce train`."""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.completion import FileName
from transduce.cli.console import ConsoleReporter, format_duration, open_standard_input, print_message
from transduce.cli.corpus_options import TextFlags
from transduce.cli.run_settings import choose_automatic_settings, get_text_settings
from transduce.config import RunConfig, load_run_config
from transduce.errors import TrainingError, UserError
from transduce.training import agree_on_run, connect_ranks, verify_resume
from transduce.training import train as train_run


def train(
    recipe: Path | None = None,
    /,
    *,
    texts: TextFlags | None = None,
    output: FileName | None = None,
    time: Annotated[str | None, Parameter(metavar="DURATION")] = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
    restart: bool = False,
    verify: Annotated[bool, Parameter(name="--verify-resume")] = False,
) -> None:
    """Train a model from parallel text, or resume a stopped run.

    Args:
        recipe: a TOML file with the settings that differ from the defaults; without one, give --source and --target, or
            --pairs.
        texts: the text files.
        output: folder of the run. Default: runs/ and the recipe's name.
        time: time budget, as in 30m or 2h. Without a recipe, the model size and schedule are chosen to fit it.
        settings: change one setting, as in training.updates=2000; may be repeated.
        restart: delete the earlier run in the folder and start over.
        verify: check on the first updates, without touching the run, that a killed run resumes bit-identically.
    """
    if restart and verify:
        raise UserError(
            "--restart and --verify-resume: one deletes the run, the other does not touch it; give one of them"
        )
    given = get_text_settings(texts, output, time)

    def resolve() -> RunConfig:
        automatic = choose_automatic_settings(given, settings or [], time, restart=restart) if recipe is None else {}
        return load_run_config(
            recipe, settings=settings or [], environment=os.environ, arguments=given, automatic=automatic
        )[0]

    with connect_ranks() as connected:
        ranks, config = agree_on_run(connected, resolve)
        if verify:
            _verify(config)
            return
        if config.data.pairs == "-" and ranks.is_first:
            if recipe is None and not _has_preset(settings or []):
                print_message(
                    f"the size of standard input is unknown; using preset {config.preset}; choose another with --set "
                    "preset=small"
                )
            if sys.stdin is not None and sys.stdin.isatty():
                print_message("reading pairs, with a tab between source and target, until Ctrl-D")
        with ConsoleReporter() if ranks.is_first else nullcontext() as reporter:
            result = train_run(config, reporter, restart=restart, standard_input=open_standard_input(), ranks=ranks)
    if ranks.is_first:
        print_message(
            f"trained {result.updates:,} updates in {format_duration(result.seconds)}; the model is in "
            f"{result.folder / 'best'}, the report in {result.folder / 'report.html'}"
        )


def _has_preset(settings: Sequence[str]) -> bool:
    """Whether the user has chosen a preset."""
    return "TRANSDUCE_PRESET" in os.environ or any(one.partition("=")[0].strip() == "preset" for one in settings)


def _verify(config: RunConfig) -> None:
    proof = verify_resume(config, print_message)
    how = f"{proof.updates} updates, killed {', '.join(proof.kills) or 'never'}, resumed each time"
    if proof.differences:
        differences = "\n".join(f"  {difference}" for difference in proof.differences)
        print(f"DIFFERENT: {how}, differ from those of a run that was never stopped:\n{differences}")
        raise TrainingError(
            f"a killed and resumed run is not identical on this machine; both runs are kept in {proof.kept}"
        )
    print(
        f"EQUAL: {how}, are bit-identical to those of a run that was never stopped: {proof.num_lines} lines of metrics "
        "with "
        f"the digests of batches and weights, and the bytes of weights and optimiser"
    )
