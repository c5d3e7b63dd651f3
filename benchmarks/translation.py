"""Speed of translation beside other engines with the same weights, each in a process of its own, in turns.

    python benchmarks/translation.py BUNDLE test.en test.de --engine ctranslate2:int8 --engine huggingface:float32

In each block every engine translates the whole text once, so that a change in the machine's speed hits all alike; a
ratio is the median over the blocks of ratios within a block, above 1 where Transduce is faster. Then each translates
single sentences one after the other, in turns again. The first round of each is not timed; BLEU is that of the last
one. Prints a table and, last, one line of JSON. With --random-preset, the network is not the bundle's but one of that
preset with random weights, and every translation has --fixed-length tokens.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch
from engines import save_for_ctranslate2

from transduce.bundle import Bundle, BundleDescription, save_bundle
from transduce.config import load_run_config
from transduce.evaluation import score_corpus
from transduce.model import Transformer

HERE = Path(__file__).parent


class Engine:
    """One process of engines.py."""

    def __init__(self, name: str, options: list[str], stack: ExitStack) -> None:
        self.name = name
        kind, precision = name.split(":")
        command = [sys.executable, str(HERE / "engines.py"), kind, *options, "--precision", precision]
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self._process.kill)
        self.seconds: list[float] = []
        self.alone: list[list[float]] = []
        self.translations: list[str] = []
        self._answer()

    def ask(self, request: str) -> float:
        """Seconds that the engine needs for it."""
        print(request, file=self._process.stdin, flush=True)
        answer = self._answer()
        self.translations = answer["translations"] or self.translations
        return float(answer["seconds"])

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended; its error is above")
        return json.loads(line)


def main() -> None:
    """Parse, race, report."""
    arguments = parsed()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bundle = Bundle.open(arguments.bundle)
        if arguments.random_preset:
            bundle = random_bundle(bundle, arguments.random_preset, folder / "bundle")
        save_for_ctranslate2(bundle.load_model(), bundle.load_tokenizer().end_id, folder / "ctranslate2")
        common = [str(bundle.folder), str(arguments.source), "--ctranslate2", str(folder / "ctranslate2")]
        common += ["--beam", str(arguments.beam), "--length-penalty", str(bundle.description.search.length_penalty)]
        common += ["--fixed-length", str(arguments.fixed_length), "--device", arguments.device]
        names = [f"transduce:{arguments.precision}", *arguments.engine]
        engines = [Engine(name, [*common, "--threads", str(arguments.threads)], stack) for name in names]
        for block in range(arguments.blocks + 1):
            for engine in engines:
                seconds = engine.ask("all")
                if block:
                    engine.seconds.append(seconds)
        alone = [*common, "--threads", str(arguments.threads), "--alone-threads", str(arguments.alone_threads)]
        single = [Engine(name, alone, stack) for name in names]
        for block in range(arguments.blocks + 1):
            for engine in single:
                times = [engine.ask(f"one {place * 7}") for place in range(arguments.alone)]
                if block:
                    engine.alone.append(times)
        report(arguments, engines, single)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", type=Path, help="one sentence a line")
    parser.add_argument("reference", type=Path, help="its translations")
    parser.add_argument(
        "--engine", action="append", help="KIND:PRECISION; ctranslate2:int8, ctranslate2:float32, huggingface:float32"
    )
    parser.add_argument("--precision", default="auto", help="of transduce")
    parser.add_argument("--random-preset", help="as in base")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--fixed-length", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--alone", type=int, default=15, help="single sentences of a block")
    parser.add_argument("--threads", type=int, default=2, help="of every engine, for the whole text")
    parser.add_argument("--alone-threads", type=int, default=1, help="of every engine, for a single sentence")
    parser.add_argument("--tokenize", default="13a", help="of BLEU")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    arguments.engine = arguments.engine or ["ctranslate2:int8", "ctranslate2:float32", "huggingface:float32"]
    return arguments


def random_bundle(bundle: Bundle, preset: str, folder: Path) -> Bundle:
    """A network of the preset with the bundle's vocabulary."""
    tokenizer = bundle.load_tokenizer()
    config = load_run_config(None, settings=[f"preset={preset}"])[0].with_vocabulary(tokenizer.vocabulary)
    torch.manual_seed(1)
    save_bundle(folder, Transformer(config.model), tokenizer, BundleDescription(model=config.model))
    return Bundle.open(folder)


def report(arguments: argparse.Namespace, engines: list[Engine], single: list[Engine]) -> None:
    """The table, and what the bars are about."""
    references = arguments.reference.read_text(encoding="utf-8").splitlines()
    ours, ours_alone = engines[0], single[0]
    results: dict[str, dict[str, float]] = {"ratios": {}, "latency": {}, "bleu": {}, "same": {}}
    print(f"{'engine':24} {'sentences/s':>12} {'ratio':>7} {'one, ms':>8} {'of its time':>11} {'BLEU':>7} {'same':>6}")
    for engine, alone in zip(engines, single, strict=True):
        ratio = statistics.median(theirs / own for theirs, own in zip(engine.seconds, ours.seconds, strict=True))
        medians = [statistics.median(times) for times in alone.alone]
        own_medians = [statistics.median(times) for times in ours_alone.alone]
        latency = statistics.median(own / theirs for own, theirs in zip(own_medians, medians, strict=True))
        (bleu,) = score_corpus(engine.translations, references, ("bleu",), tokenization=arguments.tokenize)
        same = sum(map(str.__eq__, engine.translations, ours.translations)) / len(references)
        rate = len(references) / statistics.median(engine.seconds)
        print(
            f"{engine.name:24} {rate:12.0f} {ratio:7.2f} {statistics.median(medians) * 1000:8.1f} {latency:11.2f} "
            f"{bleu.value:7.2f} {same:6.1%}"
        )
        for key, value in (("ratios", ratio), ("latency", latency), ("bleu", bleu.value), ("same", same)):
            results[key][engine.name] = round(value, 4)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
