"""Time and memory of a corpus of any size: preparing it, starting to train on it, and starting again.

    OMP_NUM_THREADS=1 python benchmarks/corpus_scale.py --pairs 10_000_000 --folder /tmp/corpus-scale

Seconds are those of the clock, and in brackets those of processors, which other work on the machine hardly changes. On
Linux, as the latter are read from /proc.
The text is made up: words of two invented languages by Zipf's law, sentences of 4 to 60 words, a pair in a hundred a
repetition. The last line printed is a JSON object. What was made is deleted at the end.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

VOCABULARY = 50_000
PAIRS_AT_A_TIME = 50_000
SYLLABLES = tuple(first + vowel + last for first in "bdfgklmnprstvz" for vowel in "aeiou" for last in ("", "n", "r"))
PREPARE = """
import sys
from pathlib import Path
from transduce.config import load_run_config
from transduce.data import prepare
config, _ = load_run_config(Path(sys.argv[1]))
prepare(config.data, config.text, Path(config.data.cache), report=lambda text: print(text, file=sys.stderr))
"""
RECIPE = """
preset = "tiny"
output = "{folder}/run"
[data]
folder = "{folder}"
source = "train.source"
target = "train.target"
cache = "{folder}/cache"
held_out = 20
[text]
vocabulary = {vocabulary}
bpe_dropout = {bpe_dropout}
[model]
num_encoder_layers = 1
num_decoder_layers = 1
d_model = 64
[training]
device = "cpu"
batch_tokens = 4096
schedule = "paper"
log_every = 1
[search]
beam = 1
max_extra_length = 1
"""


def main() -> None:
    """Make the text, measure, print, delete."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="is made, and deleted at the end")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--bpe-dropout", type=float, default=0.0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    try:
        results = measure(given.folder, given.pairs, given.vocabulary, given.bpe_dropout)
    finally:
        shutil.rmtree(given.folder)
    print(json.dumps(results))


def measure(folder: Path, num_pairs: int, vocabulary: int, bpe_dropout: float) -> dict[str, float]:
    """Seconds and megabytes by what took them."""
    started = time.perf_counter()
    write_text(folder, num_pairs)
    results: dict[str, float] = {"pairs": num_pairs, "text_megabytes": size(folder)}
    print(f"{num_pairs:,} pairs, {size(folder):,.0f} MB, made in {time.perf_counter() - started:,.0f} s")
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder, vocabulary=vocabulary, bpe_dropout=bpe_dropout), encoding="utf-8")
    train = ["-m", "transduce", "train", str(recipe), "--set"]
    print(f"{'':<14}{'seconds':>18}{'to first update':>18}{'peak MB':>10}")
    for name, arguments in (
        ("prepare", ["-c", PREPARE, str(recipe)]),
        ("first start", [*train, "training.updates=5"]),
        ("second start", [*train, "training.updates=10"]),
    ):
        figures = run(arguments, folder / "run" / "metrics.jsonl")
        whole, start = (f"{figures[key]:.1f} ({figures[f'processor_{key}']:.1f})" for key in ("seconds", "start"))
        print(f"{name:<14}{whole:>18}{start:>18}{figures['peak_megabytes']:>10.0f}", flush=True)
        results |= {f"{name.replace(' ', '_')}_{key}": round(figure, 1) for key, figure in figures.items()}
    return results | {"prepared_megabytes": size(folder / "cache")}


def write_text(folder: Path, num_pairs: int) -> None:
    """`train.source` and `train.target`, always the same for the same number."""
    random = np.random.default_rng(2017)
    lexicons = [lexicon(random), lexicon(random)]
    shares = 1 / np.arange(3, VOCABULARY + 3)
    borders = np.cumsum(shares / shares.sum())
    with (folder / "train.source").open("w") as source, (folder / "train.target").open("w") as target:
        for start in range(0, num_pairs, PAIRS_AT_A_TIME):
            count = min(PAIRS_AT_A_TIME, num_pairs - start)
            num_words = np.clip(random.lognormal(np.log(18), 0.5, count), 4, 60).astype(int)
            words = np.minimum(np.searchsorted(borders, random.random(num_words.sum())), VOCABULARY - 1)
            ends = np.concatenate([[0], np.cumsum(num_words)])
            for file, lines in zip((source, target), (sentences(words, ends, one) for one in lexicons), strict=True):
                sides = list(lines)
                sides[99::100] = sides[0 : len(sides[99::100])]
                file.writelines(sides)


def lexicon(random: np.random.Generator) -> np.ndarray:
    """Different words of one to five syllables, the frequent ones short."""
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        longest = 1 + min(4, int(np.log10(1 + len(words) / 20) + 1))
        words["".join(random.choice(SYLLABLES, random.integers(1, longest + 1)))] = None
    return np.array(list(words), dtype=object)


def sentences(words: np.ndarray, ends: np.ndarray, language: np.ndarray) -> Iterator[str]:
    """Lines of text."""
    spelled = language[words].tolist()
    for start, end in pairwise(ends.tolist()):
        yield " ".join(spelled[start:end]).capitalize() + ".\n"


def run(arguments: list[str], metrics: Path) -> dict[str, float]:
    """What a Python process took: seconds, until its first update ("start") and in all; its memory at the peak."""
    before, start, processor_start = num_updates(metrics), 0.0, 0.0
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments])
    while True:
        if not start and num_updates(metrics) > before:
            start, processor_start = time.perf_counter() - started, processor_seconds(process.pid)
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return {
        "seconds": time.perf_counter() - started,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "start": start,
        "processor_start": processor_start,
        "peak_megabytes": usage.ru_maxrss * 1024 / 1e6,
    }


def num_updates(metrics: Path) -> int:
    """Lines of metrics about an update."""
    return metrics.read_bytes().count(b'"training"') if metrics.exists() else 0


def processor_seconds(pid: int) -> float:
    """What a process that runs has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def size(folder: Path) -> float:
    """Megabytes of all files."""
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


if __name__ == "__main__":
    main()
