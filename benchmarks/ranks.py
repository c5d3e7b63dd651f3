"""Whether several ranks compute what one process computes: losses and weights of the same updates, compared.

    python benchmarks/ranks.py --updates 50 --ranks 2

The text is the demonstration's, made here. A small model is trained on it on the CPU in float32, without dropout: by
one process with a budget of 2 · 512 tokens, and by two ranks with 512 each, with DDP and with FSDP2. What rounding
alone does is measured beside it: one process with two threads, whose sums have another order, against the same with
one. At the paper's learning rate such differences stay small; at a much higher one they grow, wherever they come from.
The last line printed is a JSON object.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from transduce.bundle import load_checkpoint
from transduce.config import load_run_config, to_toml
from transduce.demo import generate_training_pairs

BATCH_TOKENS = 512
SETTINGS: dict[str, Any] = {
    "data.pairs": "pairs.tsv",
    "data.held_out": 20,
    "text.vocabulary": 500,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.dropout": 0.0,
    "training.device": "cpu",
    "training.precision": "float32",
    "training.log_every": 1,
    "training.best_by": "loss",
    "search.beam": 1,
    "search.max_extra_length": 1,
}
RATES: dict[str, dict[str, Any]] = {
    "paper": {},
    "high": {
        "training.schedule": "inverse_square_root",
        "training.learning_rate": 2e-3,
        "training.warmup": 20,
    },
}


def trained(folder: Path, name: str, given: dict[str, Any], num_ranks: int = 1, num_threads: int = 1) -> Path:
    """The folder of a run of these settings, trained by one process or by as many as torchrun starts."""
    run = folder / name
    recipe = folder / f"{name}.toml"
    places = {"data.folder": str(folder), "output": str(run)}
    recipe.write_text(to_toml(load_run_config(None, arguments=given | places)[0]), encoding="utf-8")
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"] if num_ranks > 1 else []
    subprocess.run(
        [sys.executable, *torchrun, "-m", "transduce", "train", str(recipe)],
        env=os.environ | {"OMP_NUM_THREADS": str(num_threads)},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return run


def losses(run: Path) -> list[float]:
    """Of each update."""
    logged = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in logged if line["kind"] == "training"]


def compared(one: Path, other: Path) -> dict[str, float]:
    """The largest difference of any update's loss, and of any weight after the last one."""
    update = len(losses(one))
    weights, others = (load_checkpoint(run / "checkpoints", update)[0]["weights"] for run in (one, other))
    return {
        "loss": max(abs(loss - other) for loss, other in zip(losses(one), losses(other), strict=True)),
        "weights": max(float((tensor - others[name]).abs().max()) for name, tensor in weights.items()),
    }


def main() -> None:
    """Train, compare, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    length = dict.fromkeys(
        ("training.updates", "training.validate_every", "training.checkpoint_every"), arguments.updates
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{arguments.updates} updates; one process of {arguments.ranks} · {BATCH_TOKENS} tokens is compared with")
    print("learning rate  trained by                largest difference of losses, of weights")
    with TemporaryDirectory() as place:
        folder = Path(place)
        text = "".join(f"{source}\t{target}\n" for source, target in generate_training_pairs(5000, seed=1))
        (folder / "pairs.tsv").write_text(text, encoding="utf-8", newline="\n")
        for rate, settings in RATES.items():
            given = SETTINGS | length | settings
            whole = {"training.batch_tokens": arguments.ranks * BATCH_TOKENS}
            part = {"training.batch_tokens": BATCH_TOKENS}
            one = trained(folder, f"{rate}-one", given | whole)
            others = {
                "one process, two threads": trained(folder, f"{rate}-threads", given | whole, num_threads=2),
                f"{arguments.ranks} ranks, DDP": trained(folder, f"{rate}-ddp", given | part, arguments.ranks),
                f"{arguments.ranks} ranks, FSDP2": trained(
                    folder, f"{rate}-fsdp", given | part | {"training.sharding": "fsdp"}, arguments.ranks
                ),
            }
            found[rate] = {name: compared(one, other) for name, other in others.items()}
            for name, largest in found[rate].items():
                print(f"{rate:14} {name:25} {largest['loss']:28.1e}  {largest['weights']:9.1e}", flush=True)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    print(json.dumps({"benchmark": "ranks", **vars(arguments), "largest_differences": found, **versions}))


if __name__ == "__main__":
    main()
