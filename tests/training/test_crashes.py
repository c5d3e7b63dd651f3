"""What happens to real runs in real processes: kills, full disks, read-only folders, two at once."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pytest

from transduce.bundle import Bundle, find_bundle
from transduce.config import RunConfig, to_toml
from transduce.errors import BusyError
from transduce.training import RunFolder, train
from transduce.training.verification import find_differences, read_last_update

MakeConfig = Callable[..., RunConfig]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Where processes come from that have loaded torch already."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transduce.training"])
    yield context
    del os.environ["OMP_NUM_THREADS"]
    if before is not None:
        os.environ["OMP_NUM_THREADS"] = before


def kill_at(processes: ForkServerContext, config: RunConfig, moment: Callable[[int], bool]) -> None:
    """Train, and kill the process at the first moment that is right."""
    process = processes.Process(target=train, args=(config,))
    process.start()
    assert process.pid is not None
    deadline = time.monotonic() + 120
    while not moment(process.pid):
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.0002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.exhaustive
def test_kills_at_any_moment(processes: ForkServerContext, make_config: MakeConfig) -> None:
    """At random ones, and while checkpoints and bundles are being written."""
    rhythm = {"training__validate_every": 5, "training__checkpoint_every": 3, "training__keep_checkpoints": 2}
    unbroken = RunFolder(train(make_config("unbroken", training__updates=30, **rhythm)).folder)
    config = make_config("killed", training__updates=30, **rhythm)
    run = RunFolder(Path(config.output))

    def writing(names: str) -> Callable[[int], bool]:
        return lambda process: any(run.path.glob(f"{names}.transduce-tmp-{process}"))

    def random(first: int) -> Callable[[int], bool]:
        chance = np.random.default_rng()
        update, end = chance.integers(first, first + 5), time.monotonic() + chance.uniform(0, 0.2)
        return lambda _: read_last_update(run) >= update and time.monotonic() > end

    for moment in (random(0), writing("checkpoints/*"), writing("last"), random(10), writing("checkpoints/*")):
        kill_at(processes, config, moment)
        if run.last.exists():
            Bundle.open(find_bundle(run.path))
    train(config)
    assert find_differences(run, unbroken) == []
    for places in ((run.path, unbroken.path), (run.checkpoints, unbroken.checkpoints)):
        found, expected = ({path.name for path in place.iterdir()} for place in places)
        assert found == expected


@pytest.mark.exhaustive
def test_two_processes_on_one_folder(processes: ForkServerContext, make_config: MakeConfig) -> None:
    config = make_config(training__updates=100_000)
    run = RunFolder(Path(config.output))

    def refused(process: int) -> bool:
        if not run.config_file.exists():
            return False
        for restart in (False, True):
            with pytest.raises(BusyError, match=rf"run: is in use by process {process} on .*choose another folder"):
                train(config, restart=restart)
        return read_last_update(run) > 8

    kill_at(processes, config, refused)
    # What it left locks nobody out.
    assert (run.path / ".lock").exists()
    assert train(make_config(training__updates=10)).updates >= 8
    assert not (run.path / ".lock").exists()


UNSHARE = shutil.which("unshare") or "unshare"


def can_mount() -> bool:
    """Whether this machine lets a user mount a file system of their own."""
    try:
        return subprocess.run([UNSHARE, "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode == 0
    except OSError:
        return False


ON_A_FILE_SYSTEM_OF_ITS_OWN = """
import subprocess, sys
from pathlib import Path
from transduce.bundle import list_checkpoints, load_checkpoint
from transduce.config import load_run_config
from transduce.errors import TransduceError
from transduce.training import SilentReporter, train

def mount(*options):
    subprocess.run(["mount", *options], check=True)

def failure(**options):
    try:
        train(config, **options)
    except TransduceError as error:
        return f"{type(error).__name__} {error.exit_code}: {error}"

class Filling(SilentReporter):
    def report_progress(self, progress):
        if progress.update == 11:
            with (disk / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    try:
                        ballast.write(b"0" * 4096)
                    except OSError:
                        return

disk, recipe = Path(sys.argv[1]), Path(sys.argv[2])
config, _ = load_run_config(recipe)
run = Path(config.output)
mount("-t", "tmpfs", "-o", "size=8m", "none", str(disk))
mount("-o", "remount,ro", str(disk))
print(failure())
mount("-o", "remount,rw", str(disk))
print(failure(reporter=Filling()))
print(list_checkpoints(run / "checkpoints"))
load_checkpoint(run / "checkpoints", 8)
(disk / "ballast").unlink()
before = sorted(path.name for path in run.iterdir())
mount("-o", "remount,ro", str(disk))
print(failure(), failure(restart=True))
print(sorted(path.name for path in run.iterdir()) == before)
mount("-o", "remount,rw", str(disk))
train(config)
subprocess.run(["cp", "-r", str(run), sys.argv[3]], check=True)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not can_mount(), reason="a user may not mount a file system here")
def test_a_full_and_a_read_only_disk(make_config: MakeConfig, tmp_path: Path) -> None:
    disk, recipe, copy = tmp_path / "disk", tmp_path / "recipe.toml", tmp_path / "copy"
    disk.mkdir()
    recipe.write_text(to_toml(make_config("disk/run")), encoding="utf-8")
    answer = subprocess.run(
        [UNSHARE, "-rm", sys.executable, "-c", ON_A_FILE_SYSTEM_OF_ITS_OWN, disk, recipe, copy],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    read_only, full, checkpoints, again, untouched = answer.stdout.splitlines()
    refusal = f"RunError 2: {disk / 'run'}: cannot be written (Read-only file system): make it writable, or choose"
    assert read_only.startswith(refusal)
    assert full.startswith(f"TrainingError 1: {disk / 'run'}: training stopped, because")
    assert "No space left on device" in full
    assert "the same command resumes" in full
    assert (checkpoints, again.count(refusal), untouched) == ("[8]", 2, "True")
    assert find_differences(RunFolder(copy), RunFolder(train(make_config("unbroken")).folder)) == []
