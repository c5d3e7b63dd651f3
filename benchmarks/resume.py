"""Kill a run by SIGKILL at random moments, start it again, and compare with a run that was never stopped.

    python benchmarks/resume.py --kills 25 --while-writing 5 --updates 200 --seed 1

Every trial is a run of its own: a small Transformer with dropout that learns to reverse sentences. Its process is
killed once and started again by the same command, and what it ends with is compared: every line of metrics, with the
digests of batches and weights, and every byte of weights, optimiser, `best/` and `last/`. Prints a table, and last a
line of JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from transduce.config import load_run_config, to_toml
from transduce.training import RunFolder
from transduce.training.verification import (
    WHILE_WRITING,
    find_differences,
    kill_training,
    train_in_subprocess,
)

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")
SETTINGS = {
    "data.pairs": "train.tsv",
    "data.held_out": 10,
    "text.vocabulary": 320,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_heads": 4,
    "model.dropout": 0.1,
    "training.batch_tokens": 400,
    "training.schedule": "inverse_square_root",
    "training.learning_rate": 5e-3,
    "training.warmup": 20,
    "training.device": "cpu",
    "training.log_every": 1,
    "training.validate_every": 50,
    "training.checkpoint_every": 20,
    "search.max_extra_length": 5,
}


def write_text(folder: Path) -> None:
    """A thousand sentences, and the same with their words in reverse order."""
    random = np.random.default_rng(1)
    sentences = [list(random.choice(WORDS, size=random.integers(1, 9))) for _ in range(1000)]
    lines = [f"{' '.join(words)}\t{' '.join(reversed(words))}\n" for words in sentences]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")


def make_run(folder: Path, name: str, updates: int) -> RunFolder:
    """A run that has yet to begin, with its recipe beside its folder."""
    places = {"data.folder": str(folder), "output": str(folder / name), "training.updates": updates}
    config, _ = load_run_config(None, arguments={**SETTINGS, **places})
    (folder / f"{name}.toml").write_text(to_toml(config), encoding="utf-8")
    return RunFolder(folder / name)


def main() -> None:
    """Make the runs, kill, compare, print; exit code 1 if one of them is not the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25, help="trials, each of which is killed")
    parser.add_argument("--while-writing", type=int, default=5, help="how many of them while a checkpoint is written")
    parser.add_argument("--updates", type=int, default=200, help="of each run")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    given = parser.parse_args()
    random, started = np.random.default_rng(given.seed), time.monotonic()
    num_equal = num_writing = num_killed = 0
    with tempfile.TemporaryDirectory(prefix="transduce-resume-") as name:
        folder = Path(name)
        write_text(folder)
        unbroken = make_run(folder, "unbroken", given.updates)
        train_in_subprocess(unbroken)
        print("trial  killed                                                     compared with the unbroken run")
        for trial in range(1, given.kills + 1):
            run = make_run(folder, f"killed-{trial}", given.updates)
            update, is_writing = int(random.integers(1, given.updates - 1)), trial <= given.while_writing
            kills = list(kill_training(run, update, 0.05, random, while_writing=is_writing))
            train_in_subprocess(run)
            found = find_differences(run, unbroken)
            when = ", ".join(kills) or "not at all"
            print(f"{trial:5}  {when:57}  {'; '.join(found) or 'equal'}", flush=True)
            num_killed += bool(kills)
            num_writing += any(WHILE_WRITING in one for one in kills)
            num_equal += bool(kills) and not found
    result = {
        "trials": given.kills,
        "killed": num_killed,
        "while_writing": num_writing,
        "equal": num_equal,
        "updates": given.updates,
        "seed": given.seed,
        "seconds": round(time.monotonic() - started),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }
    print(json.dumps(result))
    sys.exit(num_equal < given.kills or num_writing < given.while_writing)


if __name__ == "__main__":
    main()
