"""`transduce train` and `demo`."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.console import ConsoleReporter, format_duration, print_json, print_message, standard_input
from transduce.config import RunConfig, load_run_config, parse_duration
from transduce.demo import demonstrate
from transduce.errors import TrainingError, UserError
from transduce.training import choose_settings_for_run, connect_ranks, verify_resume
from transduce.training import train as train_run


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Where the text is and in which languages, for a run without a recipe."""

    source: str | None = None
    """Training text, source side; plain, .gz, .xz or .zst, one sentence a line."""
    target: str | None = None
    """Training text, target side, line for line."""
    pairs: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Instead of both: a .tsv, .json or .jsonl file, or - for TSV on standard input."""
    validation_source: str | None = None
    """Validation text, source side; without it, some training pairs are set aside."""
    validation_target: str | None = None
    """Validation text, target side."""
    source_language: str | None = None
    """Language code of the source, as in en: a model that is to be served has to know it."""
    target_language: str | None = None
    """Language code of the target, as in de."""


def train(
    recipe: Path | None = None,
    /,
    *,
    texts: TextOptions | None = None,
    output: str | None = None,
    time: Annotated[str | None, Parameter(metavar="DURATION")] = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
    restart: bool = False,
    verify: Annotated[bool, Parameter(name="--verify-resume")] = False,
) -> None:
    """Train a model from parallel text, or go on where training stopped.

    Args:
        recipe: a TOML file that says what differs from the defaults; without one, give --source and --target.
        texts: the files.
        output: folder of the run; runs/ and the recipe's name unless given.
        time: how long it may take, as in 30m or 2h: without a recipe, all that decides the quality is chosen for that
            time, and the run ends in it with an averaged model.
        settings: change one setting, as in training.updates=2000; may be repeated.
        restart: delete what the folder holds of an earlier run and start over.
        verify: leave the run alone and prove, on its first updates, that one that is killed goes on bit for bit.
    """
    if restart and verify:
        raise UserError("--restart and --verify-resume: one deletes the run, the other leaves it alone; give one")
    given = {f"data.{key}": value for key, value in asdict(texts or TextOptions()).items() if value is not None}
    if output is not None:
        given["output"] = output
    if time is not None:
        given["training.time_limit"] = time
        try:
            parse_duration(time)
        except ValueError as error:
            raise UserError(f"--time: {error}") from None
    with connect_ranks() as ranks:
        automatic = (
            choose_settings_for_run(_locate_run(given, settings or []), time, restart=restart) if recipe is None else {}
        )
        config, _ = load_run_config(
            recipe, settings=settings or [], environment=os.environ, arguments=given, automatic=automatic
        )
        if verify:
            _verify(config)
            return
        if config.data.pairs == "-" and ranks.is_first:
            if recipe is None:
                print_message(
                    f"standard input cannot be counted beforehand: preset {config.preset}; another: --set preset=small"
                )
            if sys.stdin is not None and sys.stdin.isatty():
                print_message("reading pairs, with a tab between source and target, until Ctrl-D")
        with ConsoleReporter() if ranks.is_first else nullcontext() as reporter:
            result = train_run(config, reporter, restart=restart, standard_input=standard_input())
    if ranks.is_first:
        print_message(
            f"trained {result.updates:,} updates in {format_duration(result.seconds)}; the model is in "
            f"{result.folder / 'best'}, the report in {result.folder / 'report.html'}"
        )


def _verify(config: RunConfig) -> None:
    proof = verify_resume(config, print_message)
    how = f"{proof.updates} updates, killed {', '.join(proof.kills) or 'never'}, and started again each time"
    if proof.differences:
        differences = "\n".join(f"  {difference}" for difference in proof.differences)
        print(f"DIFFERENT: {how}, are not those of a run that was never stopped. What differs:\n{differences}")
        raise TrainingError(f"a run that is killed and resumed here is not the same; both are kept in {proof.kept}")
    print(
        f"EQUAL: {how}, are bit for bit those of a run that was never stopped: {proof.num_lines} lines of metrics with "
        f"the digests of batches and weights, and the bytes of weights and optimiser"
    )


def _locate_run(given: Mapping[str, str], settings: Sequence[str]) -> dict[str, object]:
    """Where the run and its text lie and which model it starts from: settings that are chosen depend on these."""
    known = ("TRANSDUCE_DATA_", "TRANSDUCE_OUTPUT", "TRANSDUCE_TRAINING_START_FROM")
    environment = {name: value for name, value in os.environ.items() if name.startswith(known)}
    given = {key: value for key, value in given.items() if not key.startswith("training.")}
    own = ("data.", "output", "training.start_from")
    located = [setting for setting in settings if setting.lstrip().startswith(own)]
    config, _ = load_run_config(None, settings=located, environment=environment, arguments=given)
    start_from = {"training.start_from": config.training.start_from}
    return {"output": config.output} | start_from | {f"data.{key}": value for key, value in config.data}


def demo(
    *,
    output: Path = Path("runs/demo"),
    updates: int | None = None,
    restart: bool = False,
    json: bool = False,
) -> None:
    """Make data, train a small model on it, and test it on what it has never seen.

    Args:
        output: folder of the run; the text that is made lies in it, as data/text.tsv.
        updates: train for fewer updates than it takes to learn the task.
        restart: delete what the folder holds of an earlier demonstration and start over.
        json: print one JSON object.
    """
    with ConsoleReporter() as reporter:
        result = demonstrate(output, reporter, updates=updates, restart=restart)
    if json:
        print_json(result.as_json())
        return
    for sample in result.samples:
        correction = "" if sample.is_right else f"   (should be {sample.reference})"
        print(f"{sample.source}\n  -> {sample.translation}{correction}")
    print(
        f"exact matches: {result.exact_match:.1%} of {result.num_tested:,} inputs never seen in training; "
        f"trained in {result.seconds:.0f} s; bundle: {result.bundle}"
    )
