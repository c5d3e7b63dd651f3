"""Text to token ids on disk, a piece of the corpus at a time."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from transduce.config import TextConfig
from transduce.data.held_out import Pair, TrainingText
from transduce.data.store import create_store
from transduce.errors import CorpusError
from transduce.text import Cleaner, Tokenizer

_PAIRS_AT_A_TIME = 10_000


def in_chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs in order, as many at a time as are worth a call of the tokenizer."""
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _PAIRS_AT_A_TIME)):
        yield chunk


def as_line(pair: Pair) -> str:
    """A line of JSON, whatever characters the pair has."""
    return json.dumps(pair, ensure_ascii=False) + "\n"


def read_pairs(path: Path) -> Iterator[Pair]:
    """The pairs in a file of lines that `as_line` made."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            source, target = json.loads(line)
            yield source, target


def encode_corpus(training: TrainingText, tokenizer: Tokenizer, text: TextConfig, folder: Path) -> dict[str, int]:
    """Writes the pairs that the rules keep to the store `train` in `folder`, and their text to `kept.jsonl`.

    `kept.jsonl` stays empty without `bpe_dropout`, which alone needs the text again.

    Returns:
        How many pairs each rule left out, and how many are kept.

    Raises:
        CorpusError: No pair is kept.
    """
    cleaner = Cleaner(text)
    with (
        (folder / "kept.jsonl").open("w", encoding="utf-8", newline="\n") as kept,
        create_store(folder / "train", tokenizer.vocabulary) as writer,
    ):
        for chunk in in_chunks(training):
            source_ids = tokenizer.encode_all([source for source, _ in chunk])
            target_ids = tokenizer.encode_all([target for _, target in chunk])
            for pair, from_source, from_target in zip(chunk, source_ids, target_ids, strict=True):
                if cleaner.keeps(*pair, len(from_source), len(from_target)):
                    writer.add([*from_source, tokenizer.end_id], [*from_target, tokenizer.end_id])
                    if text.bpe_dropout:
                        kept.write(as_line(pair))
        counts = {"held_out": training.num_pairs - sum(cleaner.counts.values()), **cleaner.counts}
        if not writer.num_pairs:
            rules = ", ".join(f"{rule} {count:,}" for rule, count in counts.items())
            raise CorpusError(
                f"none of the {training.num_pairs:,} pairs of training text is left ({rules}): give more text, "
                f"validation files of its own, or wider limits under [text]"
            )
    return counts
