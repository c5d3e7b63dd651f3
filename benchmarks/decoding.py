"""Speed of decoding with compiled kernels beside PyTorch's operations and CTranslate2, in float32 and int8.

    python benchmarks/decoding.py --blocks 7

Each engine is a process of its own. In each block all of them translate the same sentences in turns, so that a change
in the machine's speed hits all alike; a ratio is the median over the blocks of ratios within a block. The weights are
random, and every engine is made to write as many tokens as the source has, by a least and a greatest length: what is
compared is the time of the same number of steps, not what is written. "one" is one sentence at a time on one thread,
"many" all sentences on --threads threads. CTranslate2 is measured with several workers and with several threads for
each, and its faster one counts. Prints a table and, last, one line of JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from engines import save_for_ctranslate2

from transduce.config import SearchConfig, TransformerConfig
from transduce.model import Transformer
from transduce.translation import PyTorchEngine

END = 1
TINY = {"d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 4, "num_decoder_layers": 4}
SIZES: dict[str, tuple[dict, int, int]] = {
    "tiny": ({**TINY, "vocabulary": 5_000, "norm_order": "pre"}, 13, 600),
    "base": ({}, 20, 40),
}
"""Settings of the network, tokens of each sentence, and sentences of "many"."""
ENGINES = ("transduce:int8", "transduce:float32", "pytorch:float32", "ctranslate2:int8", "ctranslate2:float32")
"""Engines and precisions. A third part names the instruction sets of our kernels: transduce:int8:avx2."""


def make_model(size: str) -> Transformer:
    """The network with random weights, the same in every process."""
    torch.manual_seed(1)
    return Transformer(TransformerConfig(**SIZES[size][0])).eval()


def make_sources(size: str, count: int) -> list[list[int]]:
    """Random sentences, the same in every process."""
    settings, length, _ = SIZES[size]
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(2, TransformerConfig(**settings).vocabulary - 1, (count, length - 1), generator=random)
    return [[*row, END] for row in ids.tolist()]


def transduce_engine(arguments: argparse.Namespace, precision: str) -> Callable[[list[list[int]]], object]:
    """Ours, compiled or, with `TRANSDUCE_KERNELS=off`, by PyTorch."""
    torch.set_num_threads(arguments.threads)
    engine = PyTorchEngine(make_model(arguments.size), END, precision)
    length = SIZES[arguments.size][1]
    config = SearchConfig(beam=arguments.beam, min_length=length, max_length=length)
    return lambda sources: engine.search(sources, config)


def ctranslate2_engine(arguments: argparse.Namespace, precision: str) -> Callable[[list[list[int]]], object]:
    """CTranslate2, with `--workers` workers that share the threads."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(arguments.folder),
        compute_type=precision,
        inter_threads=arguments.workers,
        intra_threads=arguments.threads // arguments.workers,
    )
    length = SIZES[arguments.size][1]
    # Its lengths do not count the end.
    options = {"min_decoding_length": length - 1, "max_decoding_length": length - 1, "end_token": str(END)}
    options |= {"beam_size": arguments.beam, "length_penalty": 0.6, "max_batch_size": arguments.batch}

    def search(sources: list[list[int]]) -> object:
        return translator.translate_batch([[str(token) for token in source] for source in sources], **options)

    return search


def work(arguments: argparse.Namespace) -> None:
    """Be one engine: answer every line of standard input with the seconds that a pass over all sentences took."""
    kind, precision = arguments.worker.split(":")[:2]
    if kind not in {"transduce", "pytorch", "ctranslate2"}:
        raise SystemExit(f"unknown engine: {kind}")
    search = (ctranslate2_engine if kind == "ctranslate2" else transduce_engine)(arguments, precision)
    count = arguments.alone if arguments.mode == "one" else SIZES[arguments.size][2]
    sources = make_sources(arguments.size, count)
    passes = [[source] for source in sources] if arguments.mode == "one" else [sources]
    for part in passes:  # kernels are built, and caches are filled
        search(part)
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        for part in passes:
            started = time.perf_counter()
            search(part)
            times.append(time.perf_counter() - started)
        print(statistics.median(times), flush=True)


class Worker:
    """A process with one engine."""

    def __init__(self, name: str, options: list[str], stack: ExitStack) -> None:
        self.name = name
        level = "off" if name.startswith("pytorch") else ":".join(name.split(":")[2:])
        environment = {**os.environ, "TRANSDUCE_KERNELS": level}
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, __file__, "--worker", name, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
        stack.callback(self._process.kill)
        self.seconds: list[float] = []
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"{name} did not start: see its error above")

    def measure(self) -> None:
        """One pass."""
        print(file=self._process.stdin, flush=True)
        self.seconds.append(float(self._process.stdout.readline()))


def compare(arguments: argparse.Namespace, size: str, mode: str, folder: Path) -> dict[str, float]:
    """The seconds of each engine, and its time divided by that of ours in int8; prints a row for each."""
    threads = 1 if mode == "one" else arguments.threads
    common = ["--size", size, "--mode", mode, "--folder", str(folder), "--threads", str(threads)]
    common += ["--beam", str(arguments.beam), "--alone", str(arguments.alone), "--batch", str(arguments.batch)]
    with ExitStack() as stack:
        workers = []
        for name in arguments.engine or ENGINES:
            shares = sorted({1, threads}) if name.startswith("ctranslate2") else [1]
            workers += [Worker(name, [*common, "--workers", str(share)], stack) for share in shares]
        for _ in range(arguments.blocks):
            for worker in workers:
                worker.measure()
    fastest: dict[str, Worker] = {}
    for worker in workers:
        best = fastest.get(worker.name)
        if best is None or statistics.median(worker.seconds) < statistics.median(best.seconds):
            fastest[worker.name] = worker
    ours = next(iter(fastest.values())).seconds
    found = {}
    for name, worker in fastest.items():
        ratios = [theirs / own for theirs, own in zip(worker.seconds, ours, strict=True)]
        milliseconds, ratio = 1000 * statistics.median(worker.seconds), statistics.median(ratios)
        print(f"{size:5} {mode:5} {name:20} {milliseconds:9.2f} ms {ratio:7.2f}", flush=True)
        found[f"{size} {mode} {name}"] = round(ratio, 3)
    return found


def main() -> None:
    """Measure, or be an engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, action="append", help="both unless given")
    parser.add_argument("--mode", choices=["one", "many"], action="append", help="both unless given")
    parser.add_argument(
        "--engine", action="append", help="as transduce:int8:avx2; the first is what others are compared with"
    )
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--alone", type=int, default=15, help="single sentences of a block")
    parser.add_argument("--threads", type=int, default=2, help="for many sentences")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="sentences that CTranslate2 decodes at a time")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        arguments.size, arguments.mode = arguments.size[0], arguments.mode[0]
        work(arguments)
        return
    print("size  mode  engine                    median    time / ours in int8")
    results: dict[str, float] = {}
    for size in arguments.size or SIZES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, "ctranslate2")
            save_for_ctranslate2(make_model(size), END, folder)
            for mode in arguments.mode or ("one", "many"):
                results |= compare(arguments, size, mode, folder)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
