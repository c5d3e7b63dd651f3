"""Which word translates which, learned from a few pairs and nothing else: IBM Model 1 (Brown et al. 1993, 4.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NUM_ITERATIONS = 10
"""Of EM; further ones change little but rare words, which they fit ever closer to whatever stands beside them."""

NULL = ""
"""Stands in every source, for the target words that translate nothing."""


@dataclass(frozen=True)
class LexicalModel:
    """t(target word | source word), the only parameters of Model 1.

    Args:
        probabilities: by source word, or `NULL`, and target word; 0 for words that were never in one pair.
    """

    probabilities: Mapping[tuple[str, str], float]

    @classmethod
    def fit(
        cls, pairs: Sequence[tuple[Sequence[str], Sequence[str]]], iterations: int = NUM_ITERATIONS
    ) -> "LexicalModel":
        """The model of `pairs`, words of source and of target, by EM from even probabilities on.

        No iteration lowers the likelihood of the pairs. Memory: some 200 bytes for each pair of words that occurs.
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
        # From here on arrays: `entry` of the table and `place` in the text of each meeting of two words, and for each
        # entry its source word.
        entry, place = np.array(entries, dtype=np.int64), np.array(places, dtype=np.int64)
        numbers: dict[str, int] = {}
        source = np.array([numbers.setdefault(word, len(numbers)) for word, _ in table], dtype=np.int64)
        probability = np.ones(len(table))
        for _ in range(iterations):
            likelihood = probability[entry]
            share = likelihood / np.bincount(place, likelihood)[place]
            count = np.bincount(entry, share)
            probability = count / np.bincount(source, count)[source]
        return cls(dict(zip(table, probability.tolist(), strict=True)))

    def table(
        self, source_words: Sequence[str], target_words: Sequence[str]
    ) -> Float[np.ndarray, "source_words target_words"]:
        """t(target word | source word) of every source word, one a row, and every target word."""
        rows = [[self.probabilities.get((source, target), 0.0) for target in target_words] for source in source_words]
        return np.array(rows, dtype=np.float64).reshape(len(source_words), len(target_words))
