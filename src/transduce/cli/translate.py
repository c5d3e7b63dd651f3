"""`transduce translate`."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from transduce.cli.console import say, standard_input
from transduce.text import read_stream
from transduce.translation import Translation, Translator


def translate(model: Path, /, *, beam: int | None = None, num_best: int = 1, device: str = "auto") -> None:
    """Translate standard input to standard output, line by line.

    Args:
        model: a bundle, or the folder of a run.
        beam: hypotheses kept for each sentence; 1 is greedy. The model's own setting unless given.
        num_best: alternatives for each line; above 1, what is printed is line number, tab, score, tab, translation.
        device: cpu, cuda, mps or auto.
    """
    translator = Translator.load(model, device=device)
    started = time.monotonic()
    num_lines = 0
    lines = read_stream(standard_input() or [], "standard input")
    translations = translator.translate_stream(lines, beam=beam, num_best=num_best)
    for num_lines, translation in enumerate(translations, start=1):
        for line in _output(num_lines, translation, num_best):
            sys.stdout.write(line + "\n")
        if translation.num_parts > 1:
            say(f"line {num_lines} is longer than the model reads at a time: read in {translation.num_parts} parts")
    say(f"{num_lines:,} lines in {time.monotonic() - started:.1f} s")


def _output(number: int, translation: Translation, num_best: int) -> Iterator[str]:
    if num_best == 1:
        yield translation.text
        return
    for alternative in translation.alternatives:
        yield f"{number}\t{alternative.score:.4f}\t{alternative.text}"
