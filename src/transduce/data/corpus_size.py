"""How much text a run has, counted before it is prepared."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from transduce.config import DataConfig, TextConfig
from transduce.data.input_files import open_corpus
from transduce.data.training_text import may_be_kept
from transduce.text import Cleaner, Pair, read_lines

MAX_DIGESTS = 1_000_000
"""Number of pairs up to which different ones are counted exactly; of more, the number is estimated from a sample of at
least half as many, with a standard error of at most 0.15 % for all texts together."""


class CorpusSize(NamedTuple):
    """How much text a parallel corpus has.

    Args:
        num_pairs: number of pairs.
        num_target_characters: number of characters of all targets.
    """

    num_pairs: int
    num_target_characters: int


STANDARD_INPUT = CorpusSize(6_000, 700_000)
"""The assumed size of the text on standard input, which cannot be counted before a run reads it."""


def measure_training_text(data: DataConfig, text: TextConfig) -> CorpusSize:
    """Measure the text that an epoch has: that of all corpora, and the monolingual text.

    Pairs that are left out (`text`) do not count, as far as that can be decided without a tokenizer (`may_be_kept`). A
    pair counts as often as an epoch has it, by the weight of its corpus.

    Raises:
        CorpusError: a file is missing, damaged or not UTF-8, or source and target differ in number of lines.
    """
    if data.pairs == "-":
        return STANDARD_INPUT
    different = _DifferentPairs()
    counted: list[tuple[float, CorpusSize]] = []
    for number, (pairs, weight) in enumerate(_list_texts(data, text)):
        num_pairs = num_characters = 0
        for pair in pairs:
            num_pairs += 1
            num_characters += len(pair[1])
            if text.drop_duplicates:
                different.add(pair, number)
        counted.append((weight, CorpusSize(num_pairs, num_characters)))
    estimates = different.estimate()
    total_pairs = total_characters = 0.0
    for number, (weight, size) in enumerate(counted):
        num_kept = min(size.num_pairs, estimates[number]) if text.drop_duplicates else size.num_pairs
        total_pairs += weight * num_kept
        total_characters += weight * size.num_target_characters * num_kept / max(1, size.num_pairs)
    return CorpusSize(round(total_pairs), round(total_characters))


def _list_texts(data: DataConfig, text: TextConfig) -> Iterator[tuple[Iterator[Pair], float]]:
    """The pairs of each corpus and of each monolingual text, whose translations are not known yet, and its weight."""
    for corpus in data.training_corpora:
        is_kept = partial(may_be_kept, cleaner=Cleaner(text), tags=data.tags)
        yield filter(is_kept, open_corpus(data, corpus)), corpus.weight
    for name in (data.monolingual_target, data.monolingual_source):
        if name is not None:
            yield (("", line) for line in read_lines(Path(data.folder) / name) if line.strip()), data.monolingual_weight


class _DifferentPairs:
    """Counts the pairs of each text that are in no earlier one.

    They are counted by digests: all of them, or a sample by adaptive sampling (Flajolet 1990).
    """

    def __init__(self) -> None:
        self._texts: dict[int, int] = {}
        """The number of the first text that has a pair, by the digest of the pair."""
        self._one_in = 1

    def add(self, pair: Pair, text: int) -> None:
        """Count a pair of the text of this number, unless it was counted before."""
        digest = int.from_bytes(hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest())
        if digest % self._one_in:
            return
        self._texts.setdefault(digest, text)
        if len(self._texts) > MAX_DIGESTS:
            self._one_in *= 2
            self._texts = {one: first for one, first in self._texts.items() if one % self._one_in == 0}

    def estimate(self) -> Counter[int]:
        """For the number of each text, about how many different pairs it has that are in no earlier text."""
        counts = Counter(self._texts.values())
        return Counter({text: self._one_in * count for text, count in counts.items()})
