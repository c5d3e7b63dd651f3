"""Lexical translation models: which words translate each other, learned from pairs alone (IBM Model 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

NUM_ITERATIONS = 10
"""Iterations of EM; further ones only overfit rare words."""

NULL = ""
"""The empty source word, for target words without a counterpart."""


def estimate_link_counts(
    entries: Int[np.ndarray, "cells"],
    places: Int[np.ndarray, "cells"],
    words: Int[np.ndarray, "entries"],
    iterations: int,
) -> Float[np.ndarray, "entries"]:
    """The expected number of times that two words translate each other, by EM from uniform probabilities.

    This is IBM Model 1 (Brown et al. 1993, 4.1). An entry is a source word and a target word; a cell is an occurrence
    of both in one pair. A count divided by the sum of the counts of its source word is t(target word | source word).

    Args:
        entries: for each cell, the index of its entry.
        places: for each cell, the position of its target word in the whole text, from 0.
        words: for each entry, the index of its source word.
        iterations: number of iterations, at least 1.
    """
    if not len(entries):  # NumPy would count no words in integers
        return np.zeros(len(words))
    probability = np.ones(len(words))
    for _ in range(iterations):
        likelihood = probability[entries]
        counts = np.bincount(entries, likelihood / np.bincount(places, likelihood)[places], minlength=len(words))
        probability = counts / np.bincount(words, counts)[words]
    return counts


@dataclass(frozen=True)
class LexicalModel:
    """A lexical translation model, t(target word | source word): IBM Model 1 (Brown et al. 1993, 4.1).

    Args:
        probabilities: by source word, or `NULL`, and target word; 0 for words that were never in one pair.
    """

    probabilities: Mapping[tuple[str, str], float]

    @classmethod
    def fit(
        cls, pairs: Sequence[tuple[Sequence[str], Sequence[str]]], iterations: int = NUM_ITERATIONS
    ) -> "LexicalModel":
        """The model of `pairs`, words of source and of target, by EM from uniform probabilities.

        No iteration lowers the likelihood of the pairs. Memory: about 200 bytes for each co-occurring pair of words.
        """
        table: dict[tuple[str, str], int] = {}
        entries, places = [], []
        num_targets = 0
        for source_words, target_words in pairs:
            for target_word in target_words:
                for source_word in (NULL, *source_words):
                    entries.append(table.setdefault((source_word, target_word), len(table)))
                    places.append(num_targets)
                num_targets += 1
        numbers: dict[str, int] = {}
        source = np.array([numbers.setdefault(word, len(numbers)) for word, _ in table], dtype=np.int64)
        cells = np.array(entries, dtype=np.int64), np.array(places, dtype=np.int64)
        counts = estimate_link_counts(*cells, source, iterations)
        probability = counts / np.bincount(source, counts)[source]
        return cls(dict(zip(table, probability.tolist(), strict=True)))

    def make_table(
        self, source_words: Sequence[str], target_words: Sequence[str]
    ) -> Float[np.ndarray, "source_words target_words"]:
        """t(target word | source word) of every source word (one per row) and every target word."""
        rows = [[self.probabilities.get((source, target), 0.0) for target in target_words] for source in source_words]
        return np.array(rows, dtype=np.float64).reshape(len(source_words), len(target_words))
