"""The command `transduce lab`: lists, runs and reports experiments."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.console import ConsoleReporter, print_message
from transduce.config import parse_duration
from transduce.errors import UserError
from transduce.lab import (
    EXPERIMENTS,
    Laboratory,
    TextFiles,
    compare_verdicts,
    find_experiment,
    render_html,
    run_experiment,
    write_reports,
)
from transduce.lab.report import REPORT_PAGE
from transduce.pages import format_table

MAX_SEEDS = 2**31
"""Seeds are smaller than this, as `training.seed` is."""


def list_experiments() -> None:
    """Print the experiments: name, and what is compared."""
    width = max(map(len, EXPERIMENTS))
    for name, title in EXPERIMENTS.items():
        print(f"{name:<{width}}  {title}")


def run(  # noqa: PLR0913 - the options of the command
    name: Annotated[str, Parameter(choices=tuple(EXPERIMENTS), show_choices=False)],
    /,
    *,
    budget: Annotated[str, Parameter(metavar="DURATION")] = "10m",
    seeds: int | None = None,
    first_seed: int = 1,
    output: Path | None = None,
    source: Path | None = None,
    target: Path | None = None,
    plan_of: Path | None = None,
    restart: bool = False,
) -> None:
    """Run an experiment, or go on with a stopped one, and write its reports.

    Args:
        name: the experiment, as in `transduce lab list`.
        budget: how long it is to take, as in 10m or 1h, on the machine it runs on: an aim, which other work on the
            machine may delay.
        seeds: how often every trial is repeated, each time with another seed. Default: 3, or 1 where a trial takes
            minutes.
        first_seed: the first seed; the others follow.
        output: folder of the experiment. Default: lab/ and its name.
        source: text to train on, source side, one sentence per line; generated text unless given.
        target: text to train on, target side.
        plan_of: folder of another run of the experiment, whose decisions are taken over, such as the number of updates;
            otherwise they follow from the speed of this machine.
        restart: delete what was measured in the folder, and start over.
    """
    try:
        seconds = parse_duration(budget)
    except ValueError as error:
        raise UserError(f"--budget: {error}") from None
    num_seeds = find_experiment(name).num_seeds if seeds is None else seeds
    if num_seeds < 1 or first_seed < 0:
        raise UserError(f"--seeds {num_seeds} --first-seed {first_seed}: at least one seed, and none below 0")
    if first_seed + num_seeds > MAX_SEEDS:
        raise UserError(f"--seeds {num_seeds} --first-seed {first_seed}: all seeds must be below {MAX_SEEDS:,}")
    if (source is None) != (target is None):
        raise UserError("--source and --target: give both, or none of them")
    files = None if source is None or target is None else TextFiles(source, target)
    folder = output or Path("lab") / name
    with ConsoleReporter() as reporter:
        laboratory = Laboratory(
            folder,
            range(first_seed, first_seed + num_seeds),
            seconds,
            reporter.report,
            reporter.report_progress,
            files,
            plan_of=plan_of,
        )
        result = run_experiment(name, laboratory, restart=restart)
    for found in result.conclusion.claim_results:
        print(f"{found.verdict:<13}  {found.claim.section}: {found.claim.text}\n{'':15}{found.measured}")
    print_message(f"the report is in {folder / 'report.html'} and {folder / 'report.md'}")


def report(folders: list[Path], /, *, output: Path | None = None, force: bool = False) -> None:
    """Write the reports of experiments again, and print the verdicts of all of them as a table.

    Args:
        folders: folders of experiments; of an experiment that was run more than once, verdicts are shown side by side.
        output: a page (HTML) with the reports of all folders; an earlier page of this command is replaced.
        force: replace any existing file.
    """
    if output is not None:
        REPORT_PAGE.check(output, force=force, also_prints=True)
    reports = [write_reports(folder) for folder in folders]
    if output is not None:
        REPORT_PAGE.write(output, render_html(reports), force=force)
    print(format_table(compare_verdicts(reports)))
