"""The run of an experiment: every trial with every seed, measured once, also when the run was stopped in between."""

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from transduce.errors import DivergedError, OutputError, UserError
from transduce.lab.experiment import Trial
from transduce.lab.experiments import find_experiment
from transduce.lab.laboratory import PLAN, Laboratory
from transduce.lab.measurements import Measurement, MeasurementLog
from transduce.lab.report import MEASUREMENTS, Report, write_reports
from transduce.storage import check_writable, lock_folder, remove_folder
from transduce.training.reporting import describe_environment


def run_experiment(name: str, laboratory: Laboratory, *, restart: bool = False) -> Report:
    """Measure what is missing of an experiment, and write its reports into the folder of the laboratory.

    After every measurement the reports are written again, so that they show the state of a run that goes on.

    Args:
        name: the experiment.
        laboratory: folder, seeds, budget and text.
        restart: delete what was measured in the folder before.

    Raises:
        UserError: there is no such experiment, or the folder, or that of `Laboratory.plan_of`, is that of another one,
            of another text or budget; or both are the same folder.
        OutputError: the folder holds something else, or cannot be written.
        BusyError: another process is measuring in the folder.
        CorpusError: the text cannot be read, or is too short.
        MissingExtraError: a package that only experiments need is not installed.
        TrainingInterruptedError: by Ctrl-C or SIGTERM; the same call goes on.
    """
    experiment = find_experiment(name)
    folder = laboratory.folder
    task = _describe_task(laboratory)  # a text that cannot be used leaves no folder behind
    _check_folder(folder, {"name": name} if restart else {"name": name, **task})
    if laboratory.plan_of is not None:
        _check_plan(laboratory.plan_of, folder, {"name": name, **task})
    check_writable(folder / MEASUREMENTS)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, folder / ".lock"):
        log = MeasurementLog(folder / MEASUREMENTS)
        if restart:
            for part in ("runs", "data", "cache"):
                if (folder / part).exists():
                    remove_folder(folder / part)
            for one in (folder / PLAN, log.path):  # the measurements last: by them the folder is known
                one.unlink(missing_ok=True)
        header = {"name": name, "command": _format_command(name, laboratory), **task, **_describe_machine()}
        # A path in it need not be UTF-8.
        header = {key: value.encode("utf-8", "replace").decode("utf-8") for key, value in header.items()}
        if not log.header():  # before planning, as the folder is known by it
            log.begin(header)
        trials, results = experiment.plan(laboratory), log.read()
        missing = [
            (trial, seed) for seed in laboratory.seeds for trial in trials if results.find(trial.settings, seed) is None
        ]
        if missing:
            log.begin(header)
        _measure(missing, log, laboratory)
        return write_reports(folder)


def _measure(missing: Sequence[tuple[Trial, int]], log: MeasurementLog, laboratory: Laboratory) -> None:
    """Measure the trials, and say before each how far the experiment is, and how long the rest will take."""
    started, done = time.perf_counter(), 0.0
    costs = [trial.cost for trial, _ in missing]
    for number, (trial, seed) in enumerate(missing):
        elapsed = time.perf_counter() - started
        left = elapsed / done * math.fsum(costs[number:]) if done >= 1 else max(0.0, laboratory.budget - elapsed)
        settings = ", ".join(f"{name} = {value}" for name, value in trial.settings.items()) or "the only trial"
        laboratory.report(
            f"{number + 1} of {len(missing)}: {settings}, seed {seed}; about {timedelta(seconds=round(left))} left"
        )
        begun = time.perf_counter()
        torch.manual_seed(seed)
        try:
            values = trial.measure(seed)
        except DivergedError:  # of a run that an earlier trial has trained
            values = {"diverged": 1.0}
        log.append(Measurement(trial.settings, seed, values, time.perf_counter() - begun))
        done += trial.cost
        write_reports(laboratory.folder)


def _check_folder(folder: Path, task: Mapping[str, str]) -> None:
    """Check that the folder is missing, empty, or that of an experiment with this name, budget and text."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    header = MeasurementLog(folder / MEASUREMENTS).header()
    if "name" not in header:
        raise OutputError(f"{folder}: holds something other than an experiment: choose another --output")
    for key, value in task.items():
        if _identify(key, header.get(key)) != _identify(key, value):
            remedy = "" if key == "name" else ", or delete the measurements with --restart"
            raise UserError(
                f"{folder}: was begun with {key} = {header.get(key)!r}, and this is {value!r}: give the same, or "
                f"choose another --output{remedy}"
            )


def _check_plan(folder: Path, own: Path, task: Mapping[str, str]) -> None:
    """Check that decisions are taken over from another folder, of an experiment with this name, budget and text."""
    if folder.resolve() == own.resolve():  # --restart would delete what is to be taken over
        raise UserError(
            f"--plan-of {folder}: is the folder of this run itself: leave it out, or choose another --output"
        )
    header = MeasurementLog(folder / MEASUREMENTS).header()
    if not (folder / PLAN).exists():
        raise UserError(f"--plan-of {folder}: has no {PLAN}: give the folder of another run of this experiment")
    for key, value in task.items():
        if _identify(key, header.get(key)) != _identify(key, value):
            raise UserError(
                f"--plan-of {folder}: was begun with {key} = {header.get(key)!r}, and this is {value!r}: give a run of "
                "the same experiment, with the same budget and text"
            )


def _identify(key: str, value: object) -> str:
    """What has to be the same when an experiment goes on: of a text only its digest, as the files may be elsewhere."""
    return str(value).rpartition("SHA-256 ")[2] if key == "text" else str(value)


def _describe_task(laboratory: Laboratory) -> dict[str, str]:
    files = laboratory.text_files
    named = "generated" if files is None else f"{files.source} and {files.target}"
    text = f"{named}, SHA-256 {laboratory.text_digest}"
    return {"budget": _format_budget(round(laboratory.budget)), "text": text}


def _format_command(name: str, laboratory: Laboratory) -> str:
    files, plan = laboratory.text_files, laboratory.plan_of
    options = {
        "--budget": _format_budget(round(laboratory.budget)),
        "--seeds": len(laboratory.seeds),
        "--first-seed": min(laboratory.seeds),
        **({} if files is None else {"--source": files.source, "--target": files.target}),
        **({} if plan is None else {"--plan-of": plan}),
    }
    given = [str(word) for option in options.items() for word in option]
    return shlex.join(["transduce", "lab", "run", name, *given])


def _format_budget(seconds: int) -> str:
    """A duration as the command line takes it, as in "10m"."""
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


def _describe_machine() -> dict[str, str]:
    try:
        scipy = {"scipy": version("scipy")}
    except PackageNotFoundError:  # some experiments need none
        scipy = {}
    return {
        "date": datetime.now().astimezone().date().isoformat(),
        **describe_environment(torch.device("cpu"), "float32"),
        **scipy,
    }
