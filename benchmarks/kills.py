"""One run, killed by SIGKILL again and again, compared to the bit with a run that was never stopped.

    python benchmarks/kills.py --kills 100 --updates 400 --precision bfloat16 --ranks 2

Two corpora of different weights, dropout and BPE-dropout, validations and checkpoints. The same command starts the run
again after each kill, with one process or with --ranks under torchrun, which is killed at once with all of them. A
third of the kills comes at any moment from the start of the process on, while text is prepared or checkpoints are read;
the others at any moment of the updates that follow. Compared are every line of metrics with the digests of batches and
weights, and every byte of weights, optimiser, `best/` and `last/`. Unlike in resume.py, damage of one kill is carried
through all that follow. Prints a table and, last, a line of JSON. Linux only: processes are found in /proc.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from bulk_kills import find_below, list_processes
from resume import SETTINGS, WORDS

from transduce.config import load_run_config, remove_settings, to_toml
from transduce.training import RunFolder
from transduce.training.verification import find_differences, read_last_update

_START_SECONDS = 60.0
"""Within which a process that has not made an update yet is killed, if that is its turn."""


def write_corpora(folder: Path) -> None:
    """Two corpora: sentences with their words in reverse order, and with each word twice."""
    random = np.random.default_rng(1)
    for name, change in (("reversed", lambda words: words[::-1]), ("doubled", lambda words: np.repeat(words, 2))):
        sentences = [random.choice(WORDS, size=random.integers(2, 9)) for _ in range(500)]
        lines = [f"{' '.join(words)}\t{' '.join(change(words))}\n" for words in sentences]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def make_run(folder: Path, name: str, given: argparse.Namespace) -> RunFolder:
    """A run that has yet to begin, with its recipe beside its folder."""
    settings = {key: value for key, value in SETTINGS.items() if key != "data.pairs"} | {
        "data.folder": str(folder),
        "data.corpora": [{"pairs": "reversed.tsv", "weight": 1.5}, {"pairs": "doubled.tsv", "weight": 0.5}],
        "text.bpe_dropout": 0.1,
        "training.precision": given.precision,
        "training.updates": given.updates,
        "training.checkpoint_every": 10,
        "output": str(folder / name),
    }
    config, _ = load_run_config(None, arguments=settings)
    (folder / f"{name}.toml").write_text(to_toml(config), encoding="utf-8")
    return RunFolder(folder / name)


def start(run: RunFolder, ranks: int) -> subprocess.Popen[bytes]:
    """Start or resume the run; what it says is beside its folder."""
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"] if ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "transduce", "train", str(run.path.with_suffix(".toml"))]
    with run.path.with_suffix(".log").open("ab") as log:
        environment = remove_settings(os.environ)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def finish(run: RunFolder, ranks: int) -> None:
    """Train to the end."""
    check(run, start(run, ranks).wait())


def check(run: RunFolder, code: int) -> None:
    """End with what training said last if it failed."""
    if code:
        words = run.path.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"training failed with {code}: {words[-1000:]}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started, and wait until they are gone.

    torchrun starts each rank in a session of its own: no signal reaches them together.
    """
    process.send_signal(signal.SIGSTOP)  # so that it starts no more
    victims = [process.pid, *find_below(process.pid, "")]
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    process.wait()
    while not list_processes().keys().isdisjoint(victims):
        time.sleep(0.01)


def kill_once(run: RunFolder, given: argparse.Namespace, random: np.random.Generator, seconds: float) -> str:
    """Start, and kill all processes; `seconds` is what an update takes. What was under way, or "" if the run ended."""
    before = read_last_update(run)
    process = start(run, given.ranks)
    most = max(2, given.updates // given.kills)  # so that the run does not end before all kills
    if random.random() < 1 / 3:
        deadline, update = time.monotonic() + random.uniform(0, given.start_seconds), before + most
    else:
        deadline, update = time.monotonic() + 600, before + int(random.integers(1, most))
    while process.poll() is None and time.monotonic() < deadline and read_last_update(run) < update:
        time.sleep(0.0005)
    time.sleep(random.uniform(0, seconds))
    if process.poll() is not None:
        check(run, process.returncode)
        return ""
    writing = any(run.path.rglob("*.transduce-tmp-*"))
    kill(process)
    if read_last_update(run) <= before:
        return "before an update"
    return "while a folder was being written" if writing else "between updates"


def main() -> None:
    """Train, kill, compare, print; exit code 1 if the runs differ or there were too few kills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--precision", choices=["float32", "bfloat16", "auto"], default="auto")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--start-seconds", type=float, default=_START_SECONDS, help="what a process may need to begin")
    given = parser.parse_args()
    random, started = np.random.default_rng(given.seed), time.monotonic()
    moments: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="transduce-kills-") as name:
        folder = Path(name)
        write_corpora(folder)
        unbroken, killed = (make_run(folder, one, given) for one in ("unbroken", "killed"))
        finish(unbroken, given.ranks)
        last = unbroken.metrics.read()[-1]
        seconds = last.get("seconds", 1.0) / given.updates
        for number in range(1, given.kills + 1):
            moment = kill_once(killed, given, random, seconds)
            if not moment:
                break
            moments[moment] += 1
            print(f"{number:4}  killed after update {read_last_update(killed):5}, {moment}", flush=True)
        finish(killed, given.ranks)
        found = find_differences(killed, unbroken)
    print("; ".join(found) or "equal to the bit")
    result = {
        "kills": sum(moments.values()),
        "moments": dict(moments),
        "differences": found,
        "updates": given.updates,
        "precision": given.precision,
        "ranks": given.ranks,
        "seed": given.seed,
        "seconds": round(time.monotonic() - started),
        "torch": torch.__version__,
    }
    print(json.dumps(result))
    sys.exit(bool(found) or sum(moments.values()) < given.kills)


if __name__ == "__main__":
    main()
