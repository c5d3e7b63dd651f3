"""Selection of the attention head that aligns words best, by gold alignments or by a lexical model."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from transduce.errors import CorpusError
from transduce.model import cross_attention_weights
from transduce.text import read_lines
from transduce.translation.confidence.alignment import AlignmentHead, Words, divide_pairs, sum_by_words
from transduce.translation.confidence.scoring import ForcedDecoder, Pair

Positions = tuple[int, int]
"""Number of a source word and of a target word, from 0."""


@dataclass(frozen=True)
class GoldAlignment:
    """A word alignment made by people (Och & Ney 2003): sure links, and possible ones, which include the sure ones."""

    sure: frozenset[Positions]
    possible: frozenset[Positions]


def read_gold_alignments(path: Path, num_pairs: int) -> list[GoldAlignment]:
    """Read one alignment a line in Pharaoh's format: "0-0 2-1" are sure links, "2?1" and "2p1" possible.

    Raises:
        CorpusError: the file cannot be read, has another number of lines than the text, or a link is written otherwise.
    """
    lines = list(read_lines(path))  # to its end: a wrong link leaves no file open
    alignments = [_parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
    if len(alignments) != num_pairs:
        raise CorpusError(
            f"{path} has {len(alignments)} lines and its text has {num_pairs} pairs: there must be one line for each"
        )
    return alignments


def _parse_line(line: str, place: str) -> GoldAlignment:
    sure, possible = set(), set()
    for link in line.split():
        parts = re.fullmatch(r"(\d{1,6})([-?p])(\d{1,6})", link, flags=re.ASCII)
        if parts is None:
            raise CorpusError(
                f"{place}: {link!r} must be a sure link, as in 0-0 (source word, target word, from 0), "
                f"or a possible one, as in 2?1"
            )
        source, kind, target = parts.groups()
        possible.add((int(source), int(target)))
        if kind == "-":
            sure.add((int(source), int(target)))
    return GoldAlignment(frozenset(sure), frozenset(possible))


NUM_ITERATIONS = 10
"""Iterations of EM; further ones only fit rare words ever closer to whatever stands beside them."""

NULL = ""
"""A word that every source has, for target words that translate nothing."""


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


NUM_PAIRS = 1000
"""Most pairs that heads are measured on."""

Gain = Float[np.ndarray, "_ _"]
"""The gain of each possible link of a pair: [source words, target words], which differ from pair to pair."""

LEAST_PROBABILITY = 1e-3
"""The least probability of a link: degrees of wrongness say nothing, and would outweigh right links."""


def choose_head(qualities: Mapping[AlignmentHead, float]) -> AlignmentHead:
    """The best of the heads that `measure_heads` has measured; of equals the first."""
    return max(qualities, key=lambda head: qualities[head])


def measure_heads(
    decoder: ForcedDecoder, pairs: Iterable[Pair], gold: Sequence[GoldAlignment] | None = None
) -> dict[AlignmentHead, float]:
    """The quality of the word alignment of each head of the decoder, and of the mean of each layer, at either offset.

    Higher is better. With `gold` it is 1 - alignment error rate (Och & Ney 2003). Without, it is the mean over all
    links of log t(target word | source word) + log t(source word | target word), in nats, by IBM Model 1 fitted on the
    very same pairs (Brown et al. 1993). Of the pairs, on which the model was not trained, the first 1,000 count.

    Raises:
        CorpusError: no pair has words on both sides, or `gold` has another length or a link with a word that is not
            there.
        UserError: a side is longer than the learned positions of the model; names the line.
    """
    measured = list(islice(pairs, NUM_PAIRS))
    if gold is not None and len(gold[:NUM_PAIRS]) != len(measured):
        raise CorpusError(f"{len(measured)} pairs and {len(gold)} gold alignments: there must be one for each")
    sources, targets = divide_pairs(decoder.tokenizer, measured)
    if gold is None:
        gains, num_sure = _make_lexical_gains(sources, targets), 0
    else:
        gains, num_sure = _make_gold_gains(sources, targets, gold), sum(len(one.sure) for one in gold[:NUM_PAIRS])
    num_links = sum(gain.shape[1] for gain in gains if gain.size)
    if not num_links:
        raise CorpusError(
            f"none of {len(measured)} pairs has words on both sides: choose a head on others, or give one"
        )
    sums = _sum_gains(decoder, sources, targets, gains)
    num_heads = decoder.model.config.num_heads
    return {
        AlignmentHead(layer, None if head == num_heads else head, offset): float(total) / (num_links + num_sure)
        for (layer, offset, head), total in np.ndenumerate(sums)
    }


def _sum_gains(
    decoder: ForcedDecoder, sources: Sequence[Words], targets: Sequence[Words], gains: Sequence[Gain]
) -> Float[np.ndarray, "layers 2 candidates"]:
    """The sum of the gains of all links, for each layer, offset, and head or mean of heads."""
    config = decoder.model.config
    sums = np.zeros((config.num_decoder_layers, 2, config.num_heads + 1))
    source_ids = [decoder.tokenizer.as_source(words.ids) for words in sources]
    target_ids = [decoder.tokenizer.as_target(words.ids) for words in targets]
    with decoder.batches(source_ids, target_ids) as batches:
        for indices, batch in batches:
            sides = [sources[index] for index in indices], [targets[index] for index in indices]
            layers = cross_attention_weights(
                decoder.model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask
            )
            for layer, weights in enumerate(layers):
                candidates = torch.cat([weights, weights.mean(dim=1, keepdim=True)], dim=1)
                for offset in (0, 1):
                    linked = sum_by_words(candidates, *sides, offset).argmax(dim=-1).cpu().numpy()
                    for index, row in zip(indices, linked, strict=True):
                        sums[layer, offset] += _sum_gain(gains[index], row)
    return sums


def _sum_gain(gain: Gain, linked: Int[np.ndarray, "candidates words"]) -> Float[np.ndarray, " candidates"]:
    """The gain of one pair by candidate; `linked` has the source word of each target word, and of padding."""
    num_words = gain.shape[1] if gain.size else 0
    sums: np.ndarray = gain[linked[:, :num_words], np.arange(num_words)].sum(axis=1)
    return sums


def _make_gold_gains(sources: Sequence[Words], targets: Sequence[Words], gold: Sequence[GoldAlignment]) -> list[Gain]:
    """1 for a possible link, 2 for a sure one."""
    gains = []
    for line, (source, target, expected) in enumerate(zip(sources, targets, gold, strict=False), start=1):
        gain = np.zeros((len(source.words), len(target.words)))
        for link in (*expected.possible, *expected.sure):
            if link[0] >= gain.shape[0] or link[1] >= gain.shape[1]:
                raise CorpusError(
                    f"gold alignment, line {line}: {link[0]}-{link[1]} must be a source and a target word, from 0, "
                    f"of a pair with {gain.shape[0]} and {gain.shape[1]} words"
                )
            gain[link] += 1
        gains.append(gain)
    return gains


def _make_lexical_gains(sources: Sequence[Words], targets: Sequence[Words]) -> list[Gain]:
    """Logarithms of t in both directions.

    Either alone can be had cheaply: t(source word | target word) is high for any frequent source word, and t(target
    word | source word) for any rare one.
    """
    pairs = [
        ([*map(_normalize_word, source.words)], [*map(_normalize_word, target.words)])
        for source, target in zip(sources, targets, strict=True)
    ]
    forward = LexicalModel.fit(pairs)
    backward = LexicalModel.fit([(target, source) for source, target in pairs])
    return [
        _take_logarithms(forward.table(source, target)) + _take_logarithms(backward.table(target, source).T)
        for source, target in pairs
    ]


def _take_logarithms(probabilities: Gain) -> Gain:
    logarithms: np.ndarray = np.log(np.maximum(probabilities, LEAST_PROBABILITY))
    return logarithms


def _normalize_word(word: str) -> str:
    """The word without case and punctuation around it, unless it is only punctuation: a thousand pairs are few."""
    folded = word.casefold()
    return re.sub(r"^\W+|\W+$", "", folded) or folded
