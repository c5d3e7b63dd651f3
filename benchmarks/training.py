"""Speed of training beside other implementations of the same network, on the same batches in one run.

    OMP_NUM_THREADS=2 python benchmarks/training.py train.en train.de --model tiny --peer torch --peer huggingface

Every trainer is a process of its own, starts from the same weights and sees the same batches in the same order, in
alternating blocks, so that a change in the machine's speed hits all alike; a ratio is the median over the blocks of
ratios within a block. The first block, in which each finds its memory, is not timed. The allocator is tuned the same
way for all. The mean losses of a block must agree within 1 %, or the comparison fails. Prints a table and, last, one
line of JSON.

Tokens are real target tokens. The share of the limit is the time that the useful matrix products (of real tokens;
forward and backward) would take at the rate of one large product in the same precision, over the time taken.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from peers import PEERS
from run_config import make_run_config

from transduce.config import RunConfig
from transduce.data import Batch, PreparedData, plan_batches, prepare, read_batches
from transduce.kernels.device import find_device, resolve_precision
from transduce.kernels.memory import keep_few_kernels, keep_freed_memory
from transduce.model import Transformer
from transduce.training import Updater
from transduce.training.optimization.micro_batches import choose_parallel_micro_batches
from transduce.training.optimization.updater import use_deterministic_algorithms

Trainer = Callable[[int, Batch], float]
OURS = "transduce"


def main() -> None:
    """Parse, prepare, train in turns, report."""
    arguments = parsed()
    device = find_device(arguments.device)
    config = make_run_config(arguments)
    names = [*arguments.peer, OURS]
    with tempfile.TemporaryDirectory() as cache:
        prepared = prepare(config.data, config.text, Path(cache), report=lambda _: None)
        config = config.with_vocabulary(prepared.tokenizer.vocabulary)
        stream = choose_batches(prepared, config, (1 + arguments.blocks) * arguments.updates)
        workers = {name: Worker(name, arguments, config, stream) for name in names}
    dtype = resolve_precision(config.training.precision, device, config.model.d_model).compute_dtype
    own_precision = str(dtype).removeprefix("torch.")
    precisions = dict.fromkeys(names, arguments.peer_precision) | {OURS: own_precision}

    seconds, losses = race(workers, arguments.blocks)
    for worker in workers.values():
        worker.end()
    report(arguments, config, stream, seconds, losses, precisions, device)


class Worker:
    """A process that trains with one of the trainers, a block of updates at a time.

    In one process, trainers would disturb each other: PyTorch's products with two threads take longer once processes
    have computed micro-batches with one thread each.
    """

    def __init__(self, name: str, arguments: argparse.Namespace, config: RunConfig, stream: list[Batch]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(name, arguments, config, stream, theirs))
        self._process.start()
        theirs.close()

    def train_block(self, block: int) -> tuple[float, float]:
        """Seconds of the block's updates, and their mean loss."""
        self._connection.send(block)
        seconds, loss = self._connection.recv()
        return seconds, loss

    def end(self) -> None:
        """Let the process end."""
        self._connection.send(None)
        self._process.join()


def work(
    name: str, arguments: argparse.Namespace, config: RunConfig, stream: list[Batch], connection: Connection
) -> None:
    """Train a block of updates with the trainer `name` whenever the number of one arrives, until None does."""
    keep_freed_memory()
    keep_few_kernels()
    device = find_device(arguments.device)
    trainer = make_trainer(name, arguments, config, device)
    while (block := connection.recv()) is not None:
        first = block * arguments.updates
        batches = [batch.to(device) for batch in stream[first : first + arguments.updates]]
        synchronize(device)
        start = time.perf_counter()
        losses = [trainer(number, batch) for number, batch in enumerate(batches, start=first + 1)]
        synchronize(device)
        seconds = time.perf_counter() - start
        connection.send((seconds, statistics.mean(float(loss) for loss in losses)))


def make_trainer(name: str, arguments: argparse.Namespace, config: RunConfig, device: torch.device) -> Trainer:
    """A trainer, with the weights that all begin with."""
    torch.manual_seed(1)
    ours = Transformer(config.model).to(device)
    if name != OURS:
        peer = PEERS[name](ours, config.training, bfloat16=arguments.peer_precision == "bfloat16").to(device)
        peer.begin()
        trainer: Trainer = peer.update
        return trainer
    updater = Updater(ours, config.training, device)
    updater.parallel_micro_batches = choose_parallel_micro_batches(config, device, updater.ranks)

    def update(number: int, batch: Batch) -> float:
        with use_deterministic_algorithms(device):  # as in `transduce train`
            return updater.update(number, [batch]).loss

    return update


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


def choose_batches(prepared: PreparedData, config: RunConfig, count: int) -> list[Batch]:
    """The first `count` batches of a run, passing over its small ones, which would not show the usual speed."""
    chosen: list[Batch] = []
    epoch = 0
    while len(chosen) < count:
        plan = plan_batches(prepared.train.lengths, config.training.batch_tokens, config.training.seed, epoch)
        made = read_batches(prepared.train, plan, 0, prepared.tokenizer.pad_id)
        chosen += [batch for batch in made if batch.num_target_tokens > 0.8 * config.training.batch_tokens]
        epoch += 1
    return chosen[:count]


def race(workers: dict[str, Worker], num_blocks: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds and mean loss of every block of every trainer, the first of which is not to be counted."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    losses: dict[str, list[float]] = {name: [] for name in workers}
    for block in range(1 + num_blocks):
        first = block % len(workers)
        for name in [*workers][first:] + [*workers][:first]:
            taken, loss = workers[name].train_block(block)
            seconds[name].append(taken)
            losses[name].append(loss)
        show(f"block {block} of {num_blocks}: " + ", ".join(f"{name} {seconds[name][-1]:.2f} s" for name in workers))
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
        name: statistics.median(theirs / mine for theirs, mine in zip(taken, seconds[OURS], strict=True))
        for name, taken in seconds.items()
        if name != OURS
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
        name: max(abs(a - b) / b for a, b in zip(losses[OURS], curve, strict=True))
        for name, curve in losses.items()
        if name != OURS
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
