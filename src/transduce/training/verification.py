"""Verification that a run killed by SIGKILL and resumed is bit-identical to an uninterrupted one."""

import filecmp
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transduce.bundle import apply_start_from, find_latest_checkpoint
from transduce.config import RunConfig, flatten, remove_settings, to_toml
from transduce.errors import ConfigError, TrainingError, UserError
from transduce.storage import scratch_folder
from transduce.training.distributed import connect_ranks
from transduce.training.reporting import CLOCK
from transduce.training.run_folder import RunFolder
from transduce.training.synthetic import remove_synthetic_text

MAX_UPDATES = 40
"""Updates of the verified run; a checkpoint every 5, a validation every 20."""

NUM_KILLS = 4
"""Number of times its process is killed, once while it writes a checkpoint."""

WHILE_WRITING = " while a checkpoint was being written"
"""In the description of a kill that left a checkpoint unfinished."""


@dataclass(frozen=True)
class ResumeProof:
    """The result of a verification."""

    updates: int
    """Number of updates of the verified run."""
    kills: tuple[str, ...]
    """When its process was killed, as in "after update 7"."""
    num_lines: int
    """Lines of metrics that were compared, digests included."""
    differences: tuple[str, ...]
    """Differences between the killed run and the uninterrupted one; empty if they are equal."""
    kept: Path | None
    """The folder of both runs, if they differ."""


def verify_resume(config: RunConfig, report: Callable[[str], None]) -> ResumeProof:
    """Train the beginning of the run of `config` without interruption, and again with kills, and compare.

    Both runs are in a folder next to the run's own, which is removed unless they differ. The text is prepared in the
    run's own cache.

    Raises:
        BundleError: the bundle to start from is missing or damaged.
        ConfigError: the text is standard input, which can be read only once; or torchrun has started several ranks.
        UserError, TrainingError: training itself ended with an error.
    """
    if config.data.pairs == "-":
        raise ConfigError(
            'pairs = "-": standard input can be read only once, and the check needs several runs: give a file'
        )
    with connect_ranks() as ranks:
        if ranks.size > 1:
            raise ConfigError("--verify-resume works with a single process only: run it without torchrun")
    output = Path(config.output)
    config, _ = apply_start_from(config)
    short = _shorten(config)
    before, after = flatten(config.model_dump()), flatten(short.model_dump())
    changes = [f"{key} = {after[key]} (was {before[key]})" for key in after if after[key] != before[key]]
    report(f"verifying with the run's settings, except {', '.join(changes)}")
    with scratch_folder(output.parent, f"{output.name}-verification") as scratch:
        unbroken, broken = (_write_recipe(short, scratch / name) for name in ("unbroken", "killed"))
        report(f"training {short.training.updates} updates without interruption")
        train_in_subprocess(unbroken)
        report("training them again, killed and resumed")
        kills = []
        last, random = unbroken.metrics.read()[-1], np.random.default_rng()
        updates = sorted(random.choice(last["update"], size=min(NUM_KILLS, last["update"]), replace=False).tolist())
        chosen = int(random.choice(updates)) if updates else None
        for update in updates:
            for kill in kill_training(
                broken, update, last["seconds"] / last["update"], random, while_writing=update == chosen
            ):
                report(f"killed {kill}")
                kills.append(kill)
        train_in_subprocess(broken)
        found, kept = find_differences(broken, unbroken), None
        if found:
            kept = scratch.rename(scratch.with_suffix(".differing"))
        return ResumeProof(short.training.updates, tuple(kills), len(unbroken.metrics.read()), tuple(found), kept)


def kill_training(
    run: RunFolder, update: int, longest_pause: float, random: np.random.Generator, *, while_writing: bool
) -> Iterator[str]:
    """Train in a subprocess and kill it, at most `longest_pause` seconds after `update`; yields when it was killed.

    With `while_writing`, it is killed while a later checkpoint is being written; if the writing has ended before the
    signal, this is tried again. Nothing is yielded if the run ends before it is killed.
    """
    for _ in range(5 if while_writing else 1):
        pause = random.uniform(0, 0.002 if while_writing else longest_pause)
        if not (kill := train_in_subprocess(run, update, pause, while_writing=while_writing)):
            return
        yield kill
        if WHILE_WRITING in kill:
            return


def train_in_subprocess(
    run: RunFolder, kill_at: int | None = None, pause: float = 0.0, *, while_writing: bool = False
) -> str:
    """Train in a subprocess, to its end or until it is killed `pause` seconds after update `kill_at`.

    The update has to be in metrics.jsonl, so that `training.log_every` has to be 1. With `while_writing`, the process
    is killed while a checkpoint after that update is being written.

    Returns:
        When it was killed, as in "after update 7"; "" if it ended before.
    """
    is_killed = False
    command = [sys.executable, "-m", "transduce", "train", str(run.path.with_suffix(".toml"))]
    environment = remove_settings(os.environ)
    with (
        run.path.with_suffix(".log").open("wb") as log,
        # In its own process session, so that Ctrl-C does not reach it.
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            while kill_at is not None and process.poll() is None:
                if (not while_writing or _is_writing(run, process.pid)) and read_last_update(run) >= kill_at:
                    time.sleep(pause)
                    is_killed = process.poll() is None
                    break
                time.sleep(0.0005)
            if not is_killed:
                process.wait()
        finally:
            process.kill()
    if is_killed:
        return f"after update {read_last_update(run)}" + (WHILE_WRITING if _is_writing(run, process.pid) else "")
    if process.returncode:
        words = run.path.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip()
        kind = UserError if process.returncode == UserError.exit_code else TrainingError
        raise kind(
            f"training ended by itself, with exit code {process.returncode}: {words.rpartition('transduce: ')[2]}"
        )
    return ""


def read_last_update(run: RunFolder) -> int:
    """The update of the last complete line of metrics; 0 where there is none."""
    lines = run.metrics.path.read_bytes().split(b"\n")[:-1] if run.metrics.path.exists() else []
    return int(json.loads(lines[-1])["update"]) if lines else 0


def find_differences(one: RunFolder, other: RunFolder) -> list[str]:
    """The differences between two runs, timing excluded: in lines of metrics, in the state, and in bytes of tensors."""
    found = []
    lines = [run.metrics.read() for run in (one, other)]
    if len(lines[0]) != len(lines[1]):
        found.append(f"{one.metrics.path.name} has {len(lines[0])} lines, and {len(lines[1])}")
    for number, pair in enumerate(zip(*lines, strict=False), start=1):
        if names := _differing_names(*pair):
            found.append(f"{one.metrics.path.name}, line {number}, update {pair[0]['update']}: {', '.join(names)}")
    checkpoints = [find_latest_checkpoint(run.checkpoints, found.append) for run in (one, other)]
    states = [checkpoint.state for checkpoint in checkpoints if checkpoint is not None]
    if len(states) < 2 or _differing_names(*states):
        found.append("the state in the last checkpoint")
    tensors = {str(path.relative_to(run.path)) for run in (one, other) for path in run.path.rglob("*.safetensors")}
    _, different, missing = filecmp.cmpfiles(one.path, other.path, sorted(tensors), shallow=False)
    return [*found, *different, *missing]


def _shorten(config: RunConfig) -> RunConfig:
    """The run with few updates, validations and checkpoints, and without synthetic text and its last measurements."""
    training = config.training
    updates = min(training.updates, MAX_UPDATES)
    changes = {
        "updates": updates,
        "epochs": None,
        "time_limit": None,
        "log_every": 1,
        "validate_every": max(1, updates // 2),
        "checkpoint_every": max(1, updates // 8),
        "max_validation_pairs": min(training.max_validation_pairs or 8, 8),
        "keep_checkpoints": min(training.keep_checkpoints, 2),
        "patience": 0,
        "baseline": None,
        "scorecard_sentences": 0,
    }
    return config.model_copy(
        update={"training": training.model_copy(update=changes), "data": remove_synthetic_text(config.data)}
    )


def _write_recipe(config: RunConfig, folder: Path) -> RunFolder:
    cache = config.data.cache or str(Path(config.output).parent / ".cache")
    data = config.data.model_copy(update={"cache": cache})
    recipe = to_toml(config.model_copy(update={"output": str(folder), "data": data}))
    folder.with_suffix(".toml").write_text(recipe, encoding="utf-8", newline="\n")
    return RunFolder(folder)


def _is_writing(run: RunFolder, process: int) -> bool:
    return any(run.checkpoints.glob(f"*.transduce-tmp-{process}"))


def _differing_names(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(name for name in {*one, *other} - {*CLOCK} if one.get(name) != other.get(name))
