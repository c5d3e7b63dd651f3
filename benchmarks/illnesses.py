"""Plant illnesses in short real runs, and see after how many updates each is named; healthy runs must stay silent.

    python benchmarks/illnesses.py --corpus NAME SOURCE TARGET VALIDATION_SOURCE VALIDATION_TARGET [--corpus ...]

The demonstration's numbers and dates are one corpus more. Every run is told that it is `--length` updates long; one
with a planted illness is ended when that is named, or after a tenth. Healthy runs have `--healthy` updates. Printed are
a line for each run and, at the end, JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig, load_run_config
from transduce.demo import generate_training_pairs
from transduce.model import Transformer
from transduce.model.attention import MultiHeadAttention
from transduce.training import Progress, SilentReporter, train

Pairs = list[tuple[str, str]]

SETTINGS: dict[str, Any] = {
    "preset": "tiny",
    "text.vocabulary": 1600,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.norm_order": "pre",
    "model.dropout": 0.1,
    "training.batch_tokens": 1024,
    "training.schedule": "inverse_square_root",
    "training.learning_rate": 3e-3,
    "training.warmup": 400,
    "training.device": "cpu",
    "training.checkpoint_every": 100_000,
    "training.validate_every": 250,
    "training.max_validation_pairs": 50,
    "search.beam": 1,
}
POST_NORM = {"model.norm_order": "post", "training.learning_rate": 1.5e-3}


@dataclass(frozen=True)
class Corpus:
    """Training and validation text."""

    training: Pairs
    validation: Pairs


class EndedEarly(Exception):  # noqa: N818 - it is no error
    """Everything that was to be seen of a run has been seen."""


class Watcher(SilentReporter):
    """Remembers what a run says of its health, and ends it where it is told to."""

    def __init__(self, wanted: Sequence[str], last: int) -> None:
        self.wanted = wanted
        self.last = last
        self.update = 0
        self.said: list[tuple[int, str]] = []

    def report(self, text: str) -> None:
        """Keep warnings."""
        if text.startswith(("warning: ", "over: ")):
            self.said.append((self.update, text))
            if self.named() is not None:
                raise EndedEarly

    def report_progress(self, progress: Progress) -> None:
        """End a run that has come as far as it is to come."""
        if self.update >= self.last:
            raise EndedEarly
        self.update = progress.update

    def named(self) -> int | None:
        """The update after which one of the `wanted` words was said."""
        return next((update for update, text in self.said if any(word in text for word in self.wanted)), None)


def without_gradient(weight: nn.Parameter, rows: slice) -> None:
    """Set rows of a weight to zero, for good."""

    def keep(gradient: Tensor) -> Tensor:
        kept = gradient.clone()
        kept[rows] = 0
        return kept

    with torch.no_grad():
        weight[rows] = 0
    weight.register_hook(keep)


@contextmanager
def altered_networks(alter: Callable[[MultiHeadAttention], None] | None) -> Iterator[None]:
    """Within, `alter` is done to the attention to the source of every new decoder layer."""
    original = Transformer.__init__

    def initialize(self: Transformer, config: TransformerConfig) -> None:
        original(self, config)
        for layer in self.decoder.layers if alter is not None else ():
            alter(layer.cross_attention)

    Transformer.__init__ = initialize  # type: ignore[method-assign]
    try:
        yield
    finally:
        Transformer.__init__ = original  # type: ignore[method-assign]


def deaf(attention: MultiHeadAttention) -> None:
    """Attention to the source whose output is zero."""
    without_gradient(attention.output.weight, slice(None))


def unfocused(attention: MultiHeadAttention) -> None:
    """Attention to the source that looks at everything alike."""
    for parameter in (attention.projection.weight, attention.projection.bias):
        without_gradient(parameter, slice(attention.query_width))


def shuffled(corpus: Corpus) -> Corpus:
    """Training targets in another order."""
    sources, targets = zip(*corpus.training, strict=True)
    order = np.random.default_rng(1).permutation(len(targets))
    return Corpus([(source, targets[place]) for source, place in zip(sources, order, strict=True)], corpus.validation)


def shifted(corpus: Corpus) -> Corpus:
    """Training targets that are a line late from the middle on, as when one line is missing."""
    sources, targets = zip(*corpus.training, strict=True)
    middle = len(targets) // 2
    late = [*targets[:middle], *targets[middle + 1 :]]
    return Corpus(list(zip(sources, late, strict=False)), corpus.validation)


def swapped(corpus: Corpus) -> Corpus:
    """Validation sources and targets the other way round."""
    return Corpus(corpus.training, [(target, source) for source, target in corpus.validation])


def source_twice(corpus: Corpus) -> Corpus:
    """Validation targets in the language of the sources."""
    return Corpus(corpus.training, [(source, source) for source, _ in corpus.validation])


RATE, DROPOUT, IGNORED = "learning rate", "model.dropout = 0.9", "the model ignores the source"
ILLNESSES: dict[
    str,
    tuple[dict[str, Any], Callable[[Corpus], Corpus] | None, Callable[[MultiHeadAttention], None] | None, list[str]],
]
ILLNESSES = {
    "source shuffled": ({}, shuffled, None, ["not translations of each other"]),
    "one line missing": ({}, shifted, None, ["not translations of each other"]),
    "validation in another language": ({}, source_twice, None, ["another language"]),
    "validation swapped": ({}, swapped, None, ["sides of the validation text are swapped"]),
    "rate ten times too high": ({"training.learning_rate": 3e-2}, None, None, ["training.learning_rate = 0.03"]),
    "dropout 0.9": ({"model.dropout": 0.9}, None, None, [DROPOUT]),
    "source ignored": ({}, None, deaf, [IGNORED]),
    "attention uniform": ({}, None, unfocused, ["attention to the source is uniform"]),
}
"""Settings, what becomes of the text, what becomes of attention to the source, and words that name the illness."""


def read_corpus(paths: Sequence[str]) -> Corpus:
    """Four files as pairs; blank lines are left out."""
    sides = [Path(path).read_text(encoding="utf-8").split("\n") for path in paths]
    training, validation = (
        [pair for pair in zip(*both, strict=True) if all(map(str.strip, pair)) and "\t" not in "".join(pair)]
        for both in (sides[:2], sides[2:])
    )
    return Corpus(training, validation)


def run(name: str, corpus: Corpus, settings: dict[str, Any], wanted: Sequence[str], last: int, length: int) -> Watcher:
    """One run in a folder of its own, and what it said."""
    watcher = Watcher(wanted, last)
    with tempfile.TemporaryDirectory(prefix="transduce-illnesses-") as folder:
        for part, pairs in (("training", corpus.training), ("validation", corpus.validation)):
            lines = (f"{source}\t{target}\n" for source, target in pairs)
            (Path(folder) / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
        files = {"data.folder": folder, "data.pairs": "training.tsv", "data.validation_pairs": "validation.tsv"}
        given = {**SETTINGS, **settings, **files, "output": f"{folder}/{name}", "training.updates": length}
        with suppress(EndedEarly):
            train(load_run_config(None, arguments=given)[0], watcher)
    return watcher


def main() -> None:
    """Run, print, judge; exit code 1 if an illness is not named in time, or a healthy run is suspected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs=5, action="append", default=[], help="name and four files")
    parser.add_argument("--length", type=int, default=5000, help="updates that a run is told to have")
    parser.add_argument("--healthy", type=int, default=1500, help="updates of healthy runs")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    given = parser.parse_args()
    numbers = generate_training_pairs(12_000, seed=1)
    corpora = {"demonstration": Corpus(numbers[200:], numbers[:200])}
    corpora |= {name: read_corpus(paths) for name, *paths in given.corpus}
    torch.set_num_threads(1)
    rows = []
    print(f"{'run':58} named after update   what was said")
    for name, corpus in corpora.items():
        size = {"text.vocabulary": 500, "training.batch_tokens": 700} if name == "demonstration" else {}
        plans: dict[str, Any] = {f"{name}: {illness}": plan for illness, plan in ILLNESSES.items()}
        plans |= {f"{name}: healthy": ({}, None, None, []), f"{name}: healthy, post-norm": (POST_NORM, None, None, [])}
        for title, (settings, of_text, of_attention, wanted) in plans.items():
            if given.only not in title:
                continue
            started, length = time.monotonic(), given.length if wanted else given.healthy
            text = corpus if of_text is None else of_text(corpus)
            with altered_networks(of_attention):
                last = length // 10 if wanted else length
                watcher = run("run", text, {**size, **settings}, wanted, last, length)
            named = watcher.named() if wanted else None
            good = named is not None if wanted else not watcher.said
            rows.append({"run": title, "named": named, "good": good, "said": watcher.said, "updates": watcher.update})
            said = " | ".join(f"{update}: {text[:70]}" for update, text in watcher.said) or "nothing"
            seconds = time.monotonic() - started
            print(
                f"{title:58} {'-' if named is None else named!s:>5} {'' if good else 'WRONG'} {said} ({seconds:.0f} s)"
            )
            sys.stdout.flush()
    print(json.dumps({"length": given.length, "healthy": given.healthy, "torch": torch.__version__, "runs": rows}))
    sys.exit(not all(row["good"] for row in rows))


if __name__ == "__main__":
    main()
