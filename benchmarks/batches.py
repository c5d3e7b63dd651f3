"""Does a translation depend on what it is translated with? And what does an arithmetic change?

    python benchmarks/batches.py BUNDLE test.en [test.de]

Translates random inputs (pieces in random order, of random number, among them the lines of the text) in batches of 1, 7
and 64, in other orders each time, and counts translations that differ: in float32, where none should, and in the
arithmetic that `auto` stands for. With references, prints BLEU and chrF of the text in both. Last, one line of JSON.
"""

import argparse
import json
import random
from pathlib import Path

from transduce.evaluation import score_corpus
from transduce.translation import Translator

SIZES = (1, 7, 64)


def main() -> None:
    """Parse, translate, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", type=Path, help="one sentence a line")
    parser.add_argument("reference", type=Path, nargs="?", help="its translations")
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--precision", default="auto", help="beside float32")
    parser.add_argument("--beam", type=int, help="the bundle's own unless given")
    arguments = parser.parse_args()
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    found: dict[str, dict[str, float]] = {}
    texts: dict[str, list[str]] = {}
    for precision in dict.fromkeys(("float32", arguments.precision)):
        translator = Translator.load(arguments.bundle, device="cpu", precision=precision)
        if arguments.beam:
            translator = translator.with_search({"beam": arguments.beam})
        inputs = random_inputs(translator, lines, arguments.inputs)
        different = count_different(translator, inputs)
        texts[precision] = translator.translate(lines)
        found[precision] = {"inputs": len(inputs), "different": different}
        print(f"{precision}: {different} of {len(inputs)} inputs have more than one translation in batches of {SIZES}")
        if arguments.reference:
            references = arguments.reference.read_text(encoding="utf-8").splitlines()
            for score in score_corpus(texts[precision], references, ("bleu", "chrf")):
                found[precision][score.metric.lower()] = round(score.value, 3)
                print(f"{precision}: {score.metric} {score.value:.2f}")
    changed = sum(map(str.__ne__, texts["float32"], texts[arguments.precision]))
    print(f"{changed} of {len(lines)} translations of the text differ between the two")
    print(json.dumps({**found, "changed": changed, "lines": len(lines)}))


def random_inputs(translator: Translator, lines: list[str], count: int) -> list[str]:
    """Half of them lines, half of them lines with words in another order, some left out, some twice."""
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    inputs = []
    for number in range(count):
        words = lines[number % len(lines)].split()
        inputs.append(" ".join(words if number < count / 2 else chance.choices(words, k=chance.randint(1, 25))))
    return [text for text in inputs if translator.fits(text)]


def count_different(translator: Translator, inputs: list[str]) -> int:
    """How many inputs are not translated the same in every batch size, each in an order of its own."""
    seen: list[set[str]] = [set() for _ in inputs]
    for size in SIZES:
        order = random.Random(size).sample(range(len(inputs)), len(inputs))  # noqa: S311 - nothing here is secret
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            for index, text in zip(chosen, translator.translate([inputs[index] for index in chosen]), strict=True):
                seen[index].add(text)
    return sum(len(texts) > 1 for texts in seen)


if __name__ == "__main__":
    main()
