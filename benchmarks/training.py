"""Speed of training beside other implementations of the same network, on the same batches in one run.

    OMP_NUM_THREADS=2 python benchmarks/training.py train.en train.de --model tiny --peer torch --peer huggingface

Every trainer starts from the same weights and sees the same batches in the same order, in alternating blocks, so that a
change in the machine's speed hits all alike; a ratio is the median over the blocks of ratios within a block. The first
block, in which each finds its memory, is not timed. The allocator is tuned the same way for all. The mean losses of a
block must agree within 1 %, or the comparison fails. Prints a table and, last, one line of JSON.

Tokens are real target tokens. The share of the limit is the time that the useful matrix products (of real tokens;
forward and backward) would take at the rate of one large product in the same precision, over the time taken.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from peers import PEERS
from run_config import make_run_config

from transduce.config import RunConfig
from transduce.data import Batch, PreparedData, plan_batches, prepare, read_batches
from transduce.kernels.device import find_device, resolve_precision
from transduce.kernels.hardware import keep_few_kernels, keep_freed_memory
from transduce.model import Transformer
from transduce.training import Updater
from transduce.training.distributed.batches import choose_parallel_micro_batches
from transduce.training.updater import use_deterministic_algorithms

Trainer = Callable[[int, Batch], float]


def main() -> None:
    """Parse, prepare, train in turns, report."""
    arguments = parsed()
    keep_freed_memory()
    keep_few_kernels()
    device = find_device(arguments.device)
    config = make_run_config(arguments)
    with tempfile.TemporaryDirectory() as cache:
        prepared = prepare(config.data, config.text, Path(cache), report=lambda _: None)
        config = config.with_vocabulary(prepared.tokenizer.vocabulary)
        wanted = (1 + arguments.blocks) * arguments.updates
        stream = [batch.to(device) for batch in some_batches(prepared, config, wanted)]
    torch.manual_seed(1)
    ours = Transformer(config.model).to(device)
    trainers: dict[str, Trainer] = {}
    for name in arguments.peer:
        peer = PEERS[name](ours, config.training, bfloat16=arguments.peer_precision == "bfloat16").to(device)
        peer.begin()
        trainers[name] = lambda number, batch, peer=peer: peer.update(number, batch)
    updater = Updater(ours, config.training, device)
    updater.parallel_micro_batches = choose_parallel_micro_batches(config, device, updater.ranks)

    def update(number: int, batch: Batch) -> float:
        with use_deterministic_algorithms(device):  # as in `transduce train`
            return updater.update(number, [batch]).loss

    trainers["transduce"] = update
    dtype = resolve_precision(config.training.precision, device, config.model.d_model).compute_dtype
    own_precision = str(dtype).removeprefix("torch.")
    precisions = dict.fromkeys(trainers, arguments.peer_precision) | {"transduce": own_precision}

    seconds, losses = race(trainers, stream, arguments.updates, device)
    report(arguments, config, stream, seconds, losses, precisions, device)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="tiny", help="a preset")
    parser.add_argument("--peer", action="append", choices=sorted(PEERS), help="default: all")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"], help="of transduce")
    parser.add_argument(
        "--peer-precision", default="float32", choices=["float32", "bfloat16"], help="bfloat16: autocast"
    )
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--batch-tokens", type=int, default=4352, help="padding included")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--updates", type=int, default=5, help="in a block")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    arguments.peer = arguments.peer or sorted(PEERS)
    return arguments


def some_batches(prepared: PreparedData, config: RunConfig, count: int) -> list[Batch]:
    """The first `count` batches of a run, passing over its small ones, which would not show the usual speed."""
    chosen: list[Batch] = []
    epoch = 0
    while len(chosen) < count:
        plan = plan_batches(prepared.train.lengths, config.training.batch_tokens, config.training.seed, epoch)
        made = read_batches(prepared.train, plan, 0, prepared.tokenizer.pad_id)
        chosen += [batch for batch in made if batch.num_target_tokens > 0.8 * config.training.batch_tokens]
        epoch += 1
    return chosen[:count]


def race(
    trainers: dict[str, Trainer], stream: list[Batch], size: int, device: torch.device
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds and mean loss of every block of `size` updates of every trainer."""
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    losses: dict[str, list[float]] = {name: [] for name in trainers}
    blocks = len(stream) // size
    for block in range(blocks):
        part = stream[block * size : (block + 1) * size]
        turn = list(trainers)[block % len(trainers) :] + list(trainers)[: block % len(trainers)]
        for name in turn:
            synchronize(device)
            start = time.perf_counter()
            made = [trainers[name](1 + block * size + number, batch) for number, batch in enumerate(part)]
            synchronize(device)
            seconds[name].append(time.perf_counter() - start)
            losses[name].append(statistics.mean(float(loss) for loss in made))
        show(f"block {block} of {blocks - 1}: " + ", ".join(f"{name} {seconds[name][-1]:.2f} s" for name in trainers))
    return seconds, losses


def report(
    arguments: argparse.Namespace,
    config: RunConfig,
    stream: list[Batch],
    seconds: dict[str, list[float]],
    losses: dict[str, list[float]],
    precisions: dict[str, str],
    device: torch.device,
) -> None:
    """Table and JSON; exits with 1 if the losses do not agree."""
    size = arguments.updates
    timed = stream[size:]
    seconds = {name: taken[1:] for name, taken in seconds.items()}
    tokens = [
        sum(batch.num_target_tokens for batch in timed[block * size : (block + 1) * size])
        for block in range(arguments.blocks)
    ]
    work = sum(useful_operations(batch, config) for batch in timed)
    # Others may be a hundred times slower: products in bfloat16 are, where the processor has none.
    rates = {precision: product_rate(precision, device) for precision in sorted(set(precisions.values()))}
    speed = {
        name: statistics.median(n / s for n, s in zip(tokens, taken, strict=True)) for name, taken in seconds.items()
    }
    share = {name: work / rates[precisions[name]] / sum(taken) for name, taken in seconds.items()}
    ratios = {
        name: statistics.median(theirs / mine for theirs, mine in zip(taken, seconds["transduce"], strict=True))
        for name, taken in seconds.items()
        if name != "transduce"
    }
    mean_tokens = sum(tokens) / len(timed)
    print(
        f"{arguments.model}, {config.model.vocabulary:,} token ids, {mean_tokens:,.0f} real target tokens a batch, "
        f"{arguments.blocks} blocks of {size} updates; {device}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}; large product: "
        + ", ".join(f"{precision} {rate / 1e9:,.0f} GFLOP/s" for precision, rate in rates.items())
    )
    print("\n| trainer | precision | tokens/s | ours is faster by | share of limit | first loss | last loss |")
    print("|---|---|---|---|---|---|---|")
    for name in seconds:
        ratio = f"{ratios[name]:.2f}" if name in ratios else ""
        print(
            f"| {name} | {precisions[name]} | {speed[name]:,.0f} | {ratio} | {share[name]:.0%} | "
            f"{losses[name][0]:.4f} | {losses[name][-1]:.4f} |"
        )
    curves = {
        name: max(abs(a - b) / b for a, b in zip(losses["transduce"], curve, strict=True))
        for name, curve in losses.items()
        if name != "transduce"
    }
    print(
        json.dumps(
            {
                "ratios": ratios,
                "tokens_per_second": speed,
                "share_of_limit": share,
                "largest_loss_difference": curves,
                "precisions": precisions,
            }
        )
    )
    if any(difference > 0.01 for difference in curves.values()):
        sys.exit(f"the losses do not agree: {curves}")


def useful_operations(batch: Batch, config: RunConfig) -> float:
    """Multiplications and additions of the matrix products of real tokens, forward and backward."""
    model = config.model
    sources, targets = batch.source_mask.sum(dim=1).double(), batch.target_mask.sum(dim=1).double()
    queries, values = model.num_heads * model.d_k, model.num_heads * model.d_v
    feed_forward = 2 * model.d_model * model.d_ff
    encoder = model.d_model * (2 * queries + 2 * values) + feed_forward
    memory = model.d_model * (queries + values)
    decoder = encoder + model.d_model * (queries + values)
    pairs = queries + values
    products = (
        model.num_encoder_layers * (encoder * sources + pairs * sources**2)
        + model.num_decoder_layers
        * (decoder * targets + memory * sources + pairs * (targets * (targets + 1) / 2 + sources * targets))
        + model.vocabulary * model.d_model * targets
    )
    return 2 * 3 * float(products.sum())


def product_rate(precision: str, device: torch.device) -> float:
    """Operations a second of a product of two large square matrices, the best of several."""
    size = 2048 if device.type == "cpu" else 8192
    dtype = getattr(torch, precision)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(12):
        synchronize(device)
        start = time.perf_counter()
        left @ right
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def show(text: str) -> None:
    """Talk goes to standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
