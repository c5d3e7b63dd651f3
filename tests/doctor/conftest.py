"""Parallel text in two invented languages, always the same, and how it is read."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from transduce.doctor.corpus.reading import open_unequal_corpus, read_corpora
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.line_and_pair_checks import SEARCHES
from transduce.text import open_parallel_corpus

SYLLABLES = [first + vowel for first in "bdfgklmnprst" for vowel in "aeiou"]
NUM_WORDS = 1500


@cache
def make_lexicon(seed: int, ending: str) -> list[str]:
    """Different words that end alike, as of one language."""
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    words: dict[str, None] = {}
    while len(words) < NUM_WORDS:
        words["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) + ending] = None
    return list(words)


@cache
def make_pairs(num_pairs: int, seed: int = 1) -> tuple[tuple[str, str], ...]:
    """Sentences with words by Zipf's law, and translations: word by word, two words swapped, one of ten left out."""
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    lexicons = make_lexicon(1, "n"), make_lexicon(2, "os")
    weights = [1 / (rank + 4) for rank in range(NUM_WORDS)]
    pairs = []
    for _ in range(num_pairs):
        words = chance.choices(range(NUM_WORDS), weights, k=chance.randint(6, 16))
        others = [word for word in words if chance.random() > 0.1] or words
        at = chance.randrange(len(others))
        others[at : at + 2] = others[at : at + 2][::-1]
        source, target = (
            f"{' '.join(lexicon[word] for word in some).capitalize()}."
            for lexicon, some in zip(lexicons, (words, others), strict=True)
        )
        pairs.append((source, target))
    return tuple(pairs)


def write_pairs(folder: Path, pairs: Iterable[tuple[str, str]], name: str = "train") -> tuple[Path, Path]:
    """Two files with the pairs."""
    paths = folder / f"{name}.source", folder / f"{name}.target"
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return paths


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary()


@pytest.fixture
def read(tmp_path: Path, vocabulary: Vocabulary) -> Callable[..., Text]:
    """Read pairs as a text, with the words in the vocabulary of the test."""

    def make(
        pairs: Sequence[tuple[str, str]],
        name: str = "training",
        tags: Sequence[str] = ("",),
        **others: Sequence[tuple[str, str]],
    ) -> Text:
        corpora = []
        for corpus, content in {name: pairs, **others}.items():
            source, target = write_pairs(tmp_path, content, corpus)
            opened = open_parallel_corpus(tmp_path, source.name, target.name, None, None)
            tagged = replace(opened, tag=tags[min(len(corpora), len(tags) - 1)])
            corpora.append((corpus, open_unequal_corpus(tagged)))
        return read_corpora(name, corpora, vocabulary, SEARCHES)

    return make


@pytest.fixture
def invented() -> Callable[..., list[tuple[str, str]]]:
    """Pairs of two invented languages, to be changed at will."""
    return lambda num_pairs, seed=1: list(make_pairs(num_pairs, seed))


@pytest.fixture
def names() -> Callable[[Iterable[Any]], list[str]]:
    """The names of findings."""
    return lambda findings: [finding.name for finding in findings]
