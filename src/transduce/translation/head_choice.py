"""Which head of the decoder aligns best: measured, since nothing in training says what a head is for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float, Int

from transduce.errors import CorpusError
from transduce.model import cross_attention_weights
from transduce.translation.alignment import AlignmentHead
from transduce.translation.forced_decoding import ForcedDecoder, Pair
from transduce.translation.gold_alignment import GoldAlignment
from transduce.translation.lexical_model import LexicalModel
from transduce.translation.words import Words, divide_pairs, summed_by_words

NUM_PAIRS = 1000
"""Most pairs that heads are measured on."""

Gain = Float[np.ndarray, "_ _"]
"""What each link of a pair is worth: [source words, target words]; every pair has other numbers of them."""

LEAST_PROBABILITY = 1e-3
"""What any link counts for: how wrong a wrong one is says nothing, and would outweigh what is right."""


def choose_head(qualities: Mapping[AlignmentHead, float]) -> AlignmentHead:
    """The best of the heads that `measure_heads` has measured; of equals the first."""
    return max(qualities, key=lambda head: qualities[head])


def measure_heads(
    decoder: ForcedDecoder, pairs: Iterable[Pair], gold: Sequence[GoldAlignment] | None = None
) -> dict[AlignmentHead, float]:
    """How well each head of the decoder, and the mean of each layer, aligns words, read at either offset.

    Higher is better. With `gold` it is 1 - alignment error rate (Och & Ney 2003). Without, it is the mean over all
    links of log t(target word | source word) + log t(source word | target word), in nats, by IBM Model 1 fitted on the
    very same pairs (Brown et al. 1993).

    Args:
        decoder: the model.
        pairs: source and target text that it was not trained on; the first 1,000 count.
        gold: an alignment for each pair.

    Raises:
        CorpusError: no pair has words on both sides, or `gold` has another length or a link with a word that is not
            there.
        UserError: a side is longer than the learned positions of the model; names the line.
    """
    chosen = list(islice(pairs, NUM_PAIRS))
    if gold is not None and len(gold[:NUM_PAIRS]) != len(chosen):
        raise CorpusError(f"{len(chosen)} pairs and {len(gold)} gold alignments: there must be one for each")
    sources, targets = divide_pairs(decoder.tokenizer, chosen)
    if gold is None:
        gains, num_sure = _lexical_gains(sources, targets), 0
    else:
        gains, num_sure = _gold_gains(sources, targets, gold), sum(len(one.sure) for one in gold[:NUM_PAIRS])
    num_links = sum(gain.shape[1] for gain in gains if gain.size)
    if not num_links:
        raise CorpusError(f"none of {len(chosen)} pairs has words on both sides: choose a head on others, or give one")
    sums = _summed_gains(decoder, sources, targets, gains)
    num_heads = decoder.model.config.num_heads
    return {
        AlignmentHead(layer, None if head == num_heads else head, offset): float(total) / (num_links + num_sure)
        for (layer, offset, head), total in np.ndenumerate(sums)
    }


def _summed_gains(
    decoder: ForcedDecoder, sources: Sequence[Words], targets: Sequence[Words], gains: Sequence[Gain]
) -> Float[np.ndarray, "layers 2 candidates"]:
    """For each layer, either offset, and its heads and their mean: the sum of the gains of all its links."""
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
                    linked = summed_by_words(candidates, *sides, offset).argmax(dim=-1).cpu().numpy()
                    for index, row in zip(indices, linked, strict=True):
                        sums[layer, offset] += _summed(gains[index], row)
    return sums


def _summed(gain: Gain, linked: Int[np.ndarray, "candidates words"]) -> Float[np.ndarray, " candidates"]:
    """Of one pair: `linked` is the source word of each target word, and of padding behind them, by candidate."""
    num_words = gain.shape[1] if gain.size else 0
    sums: np.ndarray = gain[linked[:, :num_words], np.arange(num_words)].sum(axis=1)
    return sums


def _gold_gains(sources: Sequence[Words], targets: Sequence[Words], gold: Sequence[GoldAlignment]) -> list[Gain]:
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


def _lexical_gains(sources: Sequence[Words], targets: Sequence[Words]) -> list[Gain]:
    """Logarithms of t in both directions.

    Either alone can be had cheaply: t(source word | target word) is high for any frequent source word, and t(target
    word | source word) for any rare one.
    """
    pairs = [
        ([*map(_plain, source.words)], [*map(_plain, target.words)])
        for source, target in zip(sources, targets, strict=True)
    ]
    forward = LexicalModel.fit(pairs)
    backward = LexicalModel.fit([(target, source) for source, target in pairs])
    return [
        _logarithms(forward.table(source, target)) + _logarithms(backward.table(target, source).T)
        for source, target in pairs
    ]


def _logarithms(probabilities: Gain) -> Gain:
    logarithms: np.ndarray = np.log(np.maximum(probabilities, LEAST_PROBABILITY))
    return logarithms


def _plain(word: str) -> str:
    """Without case and punctuation around it, unless it is nothing but punctuation: a thousand pairs are few."""
    folded = word.casefold()
    return re.sub(r"^\W+|\W+$", "", folded) or folded
