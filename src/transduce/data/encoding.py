"""Text to token ids on disk, a piece of the corpus at a time."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from transduce.config import TextConfig
from transduce.data.chunks import Pair, in_chunks
from transduce.data.store import create_store
from transduce.data.training_text import TrainingText
from transduce.errors import CorpusError
from transduce.text import Cleaner, Tokenizer


def as_line(pair: Pair) -> str:
    """A line of JSON, whatever characters the pair has."""
    return json.dumps(pair, ensure_ascii=False) + "\n"


def read_pairs(path: Path) -> Iterator[Pair]:
    """The pairs in a file of lines that `as_line` made."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            source, target = json.loads(line)
            yield source, target


def encode_text(training: TrainingText, tokenizer: Tokenizer, text: TextConfig, folder: Path) -> list[dict[str, int]]:
    """Writes the pairs that the rules keep to the store `train` in `folder`, and their text to `kept.jsonl`.

    `kept.jsonl` stays empty without `bpe_dropout`, which alone needs the text again.

    Returns:
        Of each corpus, how many pairs each rule left out, and how many are kept.

    Raises:
        CorpusError: No pair is kept.
    """
    counts = []
    with (
        (folder / "kept.jsonl").open("w", encoding="utf-8", newline="\n") as kept,
        create_store(folder / "train", tokenizer.vocabulary) as writer,
    ):
        for number in range(len(training.num_pairs)):
            cleaner, left_out = Cleaner(text), Counter[str](held_out=0, like_held_out=0)
            for pair, source_ids, target_ids in _kept(training.of(number, left_out), tokenizer, cleaner):
                writer.add(tokenizer.as_source(source_ids), tokenizer.as_target(target_ids))
                if text.bpe_dropout:
                    kept.write(as_line(pair))
            counts.append({**left_out, **cleaner.counts})
        if not writer.num_pairs:
            rules = ", ".join(f"{rule} {count:,}" for rule, count in total(counts).items())
            raise CorpusError(
                f"none of the {sum(training.num_pairs):,} pairs of training text is left ({rules}): give more text, "
                f"validation files of its own, or wider limits under [text]"
            )
    return counts


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The counts of all corpora together."""
    summed: Counter[str] = Counter()
    for one in counts:
        summed.update(one)
    return dict(summed)


def _kept(
    pairs: Iterable[tuple[Pair, bool]], tokenizer: Tokenizer, cleaner: Cleaner
) -> Iterator[tuple[Pair, list[int], list[int]]]:
    for chunk in in_chunks(pairs):
        source_ids = tokenizer.encode_all([source for (source, _), _ in chunk])
        target_ids = tokenizer.encode_targets([target for (_, target), _ in chunk])
        for (pair, repeats), from_source, from_target in zip(chunk, source_ids, target_ids, strict=True):
            if cleaner.keeps(*pair, len(from_source), len(from_target), repeats=repeats):
                yield pair, from_source, from_target
