"""What an update by Muon takes beside one by Adam, on the same batches in one run.

    OMP_NUM_THREADS=1 python benchmarks/optimizers.py train.en train.de --model low-resource --batch-tokens 1024

Both train in one process, in alternating blocks; a ratio is the median over the blocks of ratios within a block. The
first block is not timed. Prints a table and, last, one line of JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from run_config import make_run_config

from training import choose_batches
from transduce.data import prepare
from transduce.kernels.memory import keep_few_kernels, keep_freed_memory
from transduce.model import Transformer
from transduce.training import Updater

OPTIMIZERS = ("adam", "muon")


def main() -> None:
    """Train in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="low-resource", help="a preset")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--batch-tokens", type=int, default=1024, help="padding included")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--updates", type=int, default=10, help="in a block")
    arguments = parser.parse_args()
    keep_freed_memory()
    keep_few_kernels()
    config = make_run_config(arguments)
    with tempfile.TemporaryDirectory() as cache:
        prepared = prepare(config.data, config.text, Path(cache), report=lambda _: None)
        config = config.with_vocabulary(prepared.tokenizer.vocabulary)
        batches = choose_batches(prepared, config, (1 + arguments.blocks) * arguments.updates)
    updaters = {}
    for optimizer in OPTIMIZERS:
        torch.manual_seed(1)
        training = config.with_training(optimizer=optimizer).training
        updaters[optimizer] = Updater(Transformer(config.model), training, torch.device("cpu"))

    seconds: dict[str, list[float]] = {optimizer: [] for optimizer in OPTIMIZERS}
    losses: dict[str, float] = {}
    for block in range(1 + arguments.blocks):
        first = block * arguments.updates
        for optimizer in OPTIMIZERS if block % 2 else reversed(OPTIMIZERS):
            start = time.perf_counter()
            for number, batch in enumerate(batches[first : first + arguments.updates], start=first + 1):
                losses[optimizer] = updaters[optimizer].update(number, [batch]).loss
            seconds[optimizer].append((time.perf_counter() - start) / arguments.updates)
    timed = {optimizer: taken[1:] for optimizer, taken in seconds.items()}
    ratio = statistics.median(muon / adam for adam, muon in zip(*timed.values(), strict=True))
    tokens = statistics.mean(batch.num_target_tokens for batch in batches)
    print(
        f"{arguments.model}, {config.model.num_parameters:,} parameters, {tokens:,.0f} target tokens a batch, "
        f"{arguments.blocks} blocks of {arguments.updates} updates, {torch.get_num_threads()} threads\n"
    )
    print("| optimizer | milliseconds an update | of Adam's time | last loss |")
    print("|---|---|---|---|")
    for optimizer, taken in timed.items():
        of_adam = f"{ratio:.2f}" if optimizer == "muon" else ""
        print(f"| {optimizer} | {1000 * statistics.median(taken):.0f} | {of_adam} | {losses[optimizer]:.3f} |")
    print(json.dumps({"model": arguments.model, "ratio": ratio, "seconds": timed, "losses": losses}))


if __name__ == "__main__":
    main()
