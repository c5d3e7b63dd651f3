"""Speed of training and of translation beside other programs that keep the cores busy.

    OMP_NUM_THREADS=2 python benchmarks/busy.py train.en train.de --bundle runs/mine/best --lines test.en

The other programs are endless loops in Python, bound to one core each: none of them, one, and as many as there are
threads. Training is measured twice, in alternating blocks in one run: with batches divided into micro-batches, and with
whole batches whose operations the threads share. A speed is the median over the blocks of
real target tokens a second; the share of the quiet speed is that of whole batches beside nothing, for both. Translation
is measured with as many threads. Prints a table and, last, one line of JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import torch
from run_config import make_run_config

from transduce.data import Batch, plan_batches, prepare, read_batches
from transduce.kernels.memory import keep_few_kernels, keep_freed_memory
from transduce.model import Transformer
from transduce.training import Updater
from transduce.translation import Translator

Work = Callable[[], float]
"""Some work; returns the tokens that it has dealt with."""


def main() -> None:
    """Parse, prepare, measure, report."""
    arguments = parsed()
    keep_freed_memory()
    keep_few_kernels()
    threads = torch.get_num_threads()
    work: dict[str, Work] = {}
    if arguments.bundle:
        work |= translation(arguments.bundle, arguments.lines, arguments.num_lines)
    work |= training(arguments, threads)
    speeds = {beside: measured(work, beside, arguments) for beside in dict.fromkeys((0, 1, threads))}
    for updater in UPDATERS:
        updater.processes.close()
    report(arguments, speeds, threads)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="tiny", help="a preset")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="padding included")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--bundle", type=Path, help="what translates; without it, only training is measured")
    parser.add_argument("--lines", type=Path, help="what it translates, one sentence a line")
    parser.add_argument("--num-lines", type=int, default=200, help="of them, in a block")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a block at least, and one update at least")
    arguments = parser.parse_args()
    if arguments.bundle and not arguments.lines:
        parser.error("--bundle needs --lines")
    return arguments


UPDATERS: list[Updater] = []


def training(arguments: argparse.Namespace, threads: int) -> dict[str, Work]:
    """Updates of the same model on the same batches, divided and whole."""
    config = make_run_config(arguments)
    with tempfile.TemporaryDirectory() as cache:
        prepared = prepare(config.data, config.text, Path(cache), report=lambda _: None)
        config = config.with_vocabulary(prepared.tokenizer.vocabulary)
        plan = plan_batches(prepared.train.lengths, arguments.batch_tokens, 1, 0)[:40]
        chosen = list(read_batches(prepared.train, plan, 0, prepared.tokenizer.pad_id))
    work: dict[str, Work] = {}
    for name, count in (("whole batches", 1), ("micro-batches", threads)):
        torch.manual_seed(1)
        updater = Updater(Transformer(config.model), config.training, torch.device("cpu"))
        updater.parallel_micro_batches = count
        UPDATERS.append(updater)
        work[name] = updates(updater, cycle(chosen))
    return work


def updates(updater: Updater, stream: Iterator[Batch]) -> Work:
    """One update after the other."""
    number = 0

    def update() -> float:
        nonlocal number
        number += 1
        return updater.update(number, [next(stream)]).num_target_tokens

    return update


def translation(bundle: Path, lines: Path, num_lines: int) -> dict[str, Work]:
    """The same lines again and again, all together and one at a time; tokens are words of their translations."""
    translator = Translator.load(bundle, device="cpu")
    sources = lines.read_text(encoding="utf-8").splitlines()[:num_lines]
    in_turn = cycle(sources)

    def translate(some: list[str]) -> float:
        return sum(len(text.split()) for text in translator.translate(some))

    return {"translation": lambda: translate(sources), "line by line": lambda: translate([next(in_turn)])}


def measured(work: dict[str, Work], beside: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Tokens a second of each kind of work beside so many loops, the median over the blocks."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for one in work.values():
        for _ in range(3):  # memory, kernels and processes that are found at first
            one()
    with busy_loops(beside):
        for block in range(arguments.blocks):
            for name in list(work)[:: 1 if block % 2 else -1]:
                tokens, started = 0.0, time.perf_counter()
                while time.perf_counter() - started < arguments.seconds:
                    tokens += work[name]()
                found[name].append(tokens / (time.perf_counter() - started))
    print(f"beside {beside}: {found}", file=sys.stderr, flush=True)
    return {name: statistics.median(speeds) for name, speeds in found.items()}


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Within, the first `count` cores that this process may use have an endless loop each."""
    cores = sorted(os.sched_getaffinity(0))[:count]
    loop = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", loop, str(core)]) for core in cores]
    try:
        time.sleep(0.5)
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def report(arguments: argparse.Namespace, speeds: dict[int, dict[str, float]], threads: int) -> None:
    """Table and JSON."""
    names = list(speeds[0])
    quiet = speeds[0] | {"micro-batches": speeds[0]["whole batches"]}
    print(
        f"{arguments.model}, batches of {arguments.batch_tokens:,} tokens, {threads} threads, {arguments.blocks} "
        f"blocks of {arguments.seconds:g} s, torch {torch.__version__}\n"
    )
    print(f"| busy loops | {' | '.join(names)} |")
    print("|---" * (1 + len(names)) + "|")
    shares = {beside: {name: of_each[name] / quiet[name] for name in names} for beside, of_each in speeds.items()}
    for beside, of_each in speeds.items():
        figures = [f"{of_each[name]:,.0f} ({shares[beside][name]:.0%})" for name in names]
        print(f"| {beside} | {' | '.join(figures)} |")
    print(json.dumps({"tokens_per_second": speeds, "share_of_quiet": shares}))


if __name__ == "__main__":
    main()
