"""Measurements for the checks: of the text before the first update, and of the model's use of the source."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, chain

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor
from torch.nn import functional as F

from transduce.data import Batch, PreparedData
from transduce.doctor.pairing.association import (
    MIN_PAIRS,
    MIN_RELATED_ASSOCIATION,
    STRETCH,
    make_presence_matrix,
    measure_association,
)
from transduce.model import EncoderDecoder, Transformer, cross_attention_weights
from transduce.text import Tokenizer
from transduce.training.optimization.updater import autocast
from transduce.translation.engines.networks import evaluation_mode

MAX_BLOCKS = 20
"""Maximum number of blocks of `STRETCH` neighbouring training pairs that are measured."""

COUNTED_TOKENS = 200
"""Number of the most frequent tokens of each side whose co-occurrence is counted."""

MIN_OVERLAP = 0.1
"""Overlap of the trigrams of a part of a text with those of the rest, up to which the text counts as too small to be
compared with another."""

MAX_COMPARED_CORPORA = 8
"""Maximum number of training corpora that the validation text is compared with, one after the other."""

MAX_SENTENCES = 500
"""Sentences of the validation text that are compared with the training text."""


@dataclass(frozen=True)
class RunTextFigures:
    """Figures of training and validation text, before the first update."""

    unigram_loss: float
    """Unigram entropy of the training targets, in nats per token: the loss of a model that knows only token
    frequencies."""
    num_blocks: int
    """Blocks of neighbouring training pairs, spread over the training text, whose association was measured."""
    unrelated_blocks: int
    """Number of blocks whose sources and targets are unrelated."""
    first_unrelated: int
    """Number of training pairs before the first unrelated block; 0 if there is no such block."""
    pair_association: float | None
    """Median of the blocks by `measure_pair_association`, about 1 if source and target are unrelated; None if there are
    too few pairs."""
    source_similarity: float
    """`measure_similarity` of the sources of validation and training, from 0 to about 1; as the next two, that to the
    training corpus that it is highest of."""
    target_similarity: float
    """`measure_similarity` of the targets of validation and training."""
    swapped_similarity: float
    """The lower `measure_similarity` of validation sources and training targets, and of validation targets and training
    sources."""


def measure_text(prepared: PreparedData) -> RunTextFigures:
    """Measure a run's text, in at most `MAX_BLOCKS` blocks of it; takes some seconds at most.

    The pairs of a block are unrelated if `measure_pair_association` of them is below `MIN_RELATED_ASSOCIATION`, where
    that of translations is 2 or more, or below `measure_neighbour_association`.
    """
    blocks = _choose_blocks(len(prepared.train))
    pairs = [[prepared.train.pair(index) for index in block] for block in blocks]
    sources, targets = ([[pair[side].tolist() for pair in block] for block in pairs] for side in (0, 1))
    is_measured = len(blocks[0]) >= MIN_PAIRS
    found = [measure_pair_association(*sides) for sides in zip(sources, targets, strict=True)] if is_measured else []
    unrelated = [
        block.start
        for block, association, *sides in zip(blocks, found, sources, targets, strict=False)
        if association < MIN_RELATED_ASSOCIATION or association < measure_neighbour_association(*sides)
    ]
    return RunTextFigures(
        unigram_loss=compute_entropy(Counter(token for block in targets for sentence in block for token in sentence)),
        num_blocks=len(found),
        unrelated_blocks=len(unrelated),
        first_unrelated=min(unrelated, default=0),
        pair_association=float(np.median(found)) if found else None,
        **_measure_similarities(prepared),
    )


def _measure_similarities(prepared: PreparedData) -> dict[str, float]:
    """The similarities of `RunTextFigures`: each the highest to all training text or to one of its corpora.

    Corpora may differ in language or kind of text, and validation text may be like one of them alone. It is compared
    with the `MAX_COMPARED_CORPORA` largest ones. 1 where no text is large enough for a comparison.
    """
    validation = [list(side[:MAX_SENTENCES]) for side in zip(*prepared.validation, strict=True)]
    sizes = [corpus.cleaning["kept"] for corpus in prepared.corpora]
    parts = [range(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]
    largest = sorted(parts, key=len, reverse=True)[:MAX_COMPARED_CORPORA]
    found: dict[str, list[float]] = {"source_similarity": [], "target_similarity": [], "swapped_similarity": []}
    for part in {range(len(prepared.train)), *largest}:
        sources, targets = _decode_some(prepared, part)
        compared = {
            "source_similarity": [(validation[0], sources)],
            "target_similarity": [(validation[1], targets)],
            "swapped_similarity": [(validation[0], targets), (validation[1], sources)],
        }
        for name, texts in compared.items():
            values = [value for one in texts if (value := measure_similarity(*one)) is not None]
            if len(values) == len(texts):
                found[name].append(min(values))
    return {name: max(values, default=1.0) for name, values in found.items()}


def _decode_some(prepared: PreparedData, part: range) -> tuple[list[str], list[str]]:
    """Sources and targets of two or three blocks of neighbouring training pairs of a part of the text."""
    blocks = _choose_blocks(len(part))
    some = blocks[:: max(1, len(blocks) // 2)]
    pairs = [prepared.train.pair(part[index]) for block in some for index in block]
    decode = prepared.tokenizer.decode
    return [decode(source.tolist()) for source, _ in pairs], [decode(target.tolist()) for _, target in pairs]


def _choose_blocks(num_pairs: int) -> list[range]:
    """Blocks of `STRETCH` neighbouring pairs, spread evenly; one block of all pairs where there are fewer."""
    if num_pairs <= STRETCH:
        return [range(num_pairs)]
    starts = np.linspace(0, num_pairs - STRETCH, min(MAX_BLOCKS, num_pairs // STRETCH)).astype(int)
    return [range(start, start + STRETCH) for start in starts]


def compute_entropy(counts: Mapping[int, int]) -> float:
    """Entropy of the distribution of these counts, in nats."""
    total = sum(counts.values())
    return -sum(count / total * math.log(count / total) for count in counts.values())


def measure_pair_association(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> float:
    """How much more often tokens of source and target co-occur in these pairs than by chance.

    It is the `measure_association` of their `COUNTED_TOKENS` most frequent tokens: about 1 for unrelated pairs.
    """
    return measure_association(_find_presence(sources), _find_presence(targets))


def measure_neighbour_association(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> float:
    """`measure_pair_association` of each source with the target before or after its own, whichever is higher.

    Where neighbouring lines share a topic, pairs that are one line apart are related, but less than translations.
    """
    return max(measure_pair_association(sources[1:], targets[:-1]), measure_pair_association(sources[:-1], targets[1:]))


def _find_presence(sentences: Sequence[Sequence[int]]) -> Float32[np.ndarray, "sentences tokens"]:
    tokens = np.fromiter(chain.from_iterable(sentences), np.int64)
    return make_presence_matrix(tokens, np.cumsum([0, *map(len, sentences)]), COUNTED_TOKENS)


def measure_similarity(texts: Sequence[str], others: Sequence[str]) -> float | None:
    """Similarity of the character trigrams of `texts` to those of `others`; about 1 for text of the same kind.

    The overlap of the two distributions, divided by the overlap of equally many sentences of `others` with the rest of
    `others`, as few sentences never contain all trigrams of a language. None if `others` are too few to tell.
    """
    step = max(2, len(others) // max(1, len(texts)))
    held_out, rest = others[::step], [text for index, text in enumerate(others) if index % step]
    known = count_trigrams(rest)
    expected = _compute_overlap(count_trigrams(held_out), known)
    return _compute_overlap(count_trigrams(texts), known) / expected if expected > MIN_OVERLAP else None


def count_trigrams(texts: Sequence[str]) -> Counter[str]:
    """Counts of all character trigrams, with a space at both ends of a text."""
    counts: Counter[str] = Counter()
    for text in texts:
        spaced = f" {text} "
        counts.update(spaced[start : start + 3] for start in range(len(spaced) - 2))
    return counts


def _compute_overlap(counts: Counter[str], others: Counter[str]) -> float:
    """Overlap of two distributions: 1 if they are the same, 0 if no trigram is in both."""
    total, other_total = counts.total(), others.total()
    if not total or not other_total:
        return 0.0
    return sum(min(count / total, others[key] / other_total) for key, count in counts.items())


MAX_PAIRS = 64
"""Maximum number of pairs of the sample on which the use of the source is measured."""

MAX_TOKENS = 1000
"""Maximum number of tokens on either side of the sample, so that a measurement takes less than an update."""

TOKENS_AT_A_TIME = 256
"""Tokens whose logits are held at a time: 38 MB for the paper's vocabulary."""

ATTENTION_PAIRS = 8
"""Pairs of the sample whose attention is measured."""


@dataclass(frozen=True)
class SourceUse:
    """Figures of one measurement of the model, on a small sample of the validation text, without dropout."""

    loss: float
    """Cross-entropy with the right sources, in nats per target token."""
    shuffled_loss: float
    """Cross-entropy with the source of another pair, of about the same length."""
    gain_error: float
    """Standard error of the difference of the two, from its variation between pairs."""
    attention_entropy: float | None
    """Entropy of the attention to the source over that of uniform attention, from 0 to 1; the mean of all positions,
    heads and layers. None unless the model is a Transformer."""
    sharpest_entropy: float | None
    """`attention_entropy` of the head where it is lowest."""
    num_pairs: int
    """Number of pairs in the sample."""


class SourceProbe:
    """Measures whether a model uses the source: its loss with the right sources, and with those of other pairs.

    The sample, a few of `pairs` (the validation text), is the same in every measurement.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, dtype: torch.dtype) -> None:
        step = max(1, len(pairs) // MAX_PAIRS)
        source_texts, target_texts = zip(*pairs[::step][:MAX_PAIRS], strict=True)
        sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(source_texts)]
        targets = [tokenizer.as_target(ids) for ids in tokenizer.encode_targets(target_texts)]
        both = list(zip(sources, targets, strict=True))
        ends = accumulate(max(map(len, pair)) for pair in both)
        chosen = [pair for pair, end in zip(both, ends, strict=True) if end <= MAX_TOKENS] or both[:1]
        # In the order of their lengths, so that the source of the next pair differs in its words and not its length.
        chosen.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
        sources, targets = map(list, zip(*chosen, strict=True))
        self.batch = Batch.from_ids(sources, targets, tokenizer.pad_id)
        self.dtype = dtype

    @torch.inference_mode()
    def measure(self, model: EncoderDecoder) -> SourceUse:
        """Measure the model; its mode and weights are unchanged."""
        batch = self.batch.to(next(model.parameters()).device)
        heads = None
        with evaluation_mode([model]):
            with autocast(model, self.dtype):
                memory = model.encode(batch.source_ids, batch.source_mask)
                right = _compute_pair_losses(model, batch, memory, batch.source_mask)
                shuffled = _compute_pair_losses(model, batch, memory.roll(1, dims=0), batch.source_mask.roll(1, dims=0))
            if isinstance(model, Transformer):
                few = slice(None, None, -(-len(batch.source_ids) // ATTENTION_PAIRS))
                heads = measure_attention_entropies(model, Batch(*(side[few] for side in astuple(batch))))
        lengths = batch.target_mask.sum(dim=1).cpu().double()
        gains, num_tokens = shuffled - right, lengths.sum()
        gain = gains.sum() / num_tokens
        # The standard error of a ratio of sums over pairs, as tokens of one sentence are not independent of each other.
        error = (gains - gain * lengths).square().sum().sqrt() / num_tokens
        loss, shuffled_loss = (losses.sum() / num_tokens for losses in (right, shuffled))
        return SourceUse(
            loss=float(loss),
            shuffled_loss=float(shuffled_loss),
            gain_error=float(error),
            attention_entropy=None if heads is None else float(heads.mean()),
            sharpest_entropy=None if heads is None else float(heads.min()),
            num_pairs=len(lengths),
        )


def _compute_pair_losses(model: EncoderDecoder, batch: Batch, memory: Tensor, source_mask: Tensor) -> Tensor:
    """Cross-entropy of each pair's target, in nats."""
    hidden = model.decode_hidden(batch.target_ids, batch.target_mask, memory, source_mask)
    states, right_ids = (torch.split(side[batch.target_mask], TOKENS_AT_A_TIME) for side in (hidden, batch.target_ids))
    parts = zip(states, right_ids, strict=True)
    losses = [F.cross_entropy(model.projection(some.float()), right, reduction="none") for some, right in parts]
    pairs = batch.target_mask.nonzero()[:, 0].cpu()
    return torch.zeros(len(batch.target_ids), dtype=torch.float64).index_add(0, pairs, torch.cat(losses).cpu().double())


def measure_attention_entropies(model: Transformer, batch: Batch) -> Tensor:
    """For each head of each layer, the entropy of its attention to the source, divided by that of uniform attention.

    Means over all target positions whose source has more than one token, of shape [layers * heads]; a single 1 if there
    is no such position.
    """
    lengths = batch.source_mask.sum(dim=1).cpu()
    counted = batch.target_mask.cpu() & (lengths > 1)[:, None]
    if not counted.any():
        return torch.ones(1)
    max_entropy = lengths.clamp(min=2).log()[:, None, None]
    layers = cross_attention_weights(model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    entropies = [torch.special.entr(weights.float().cpu()).sum(dim=-1) / max_entropy for weights in layers]
    return torch.cat([compute_entropy.transpose(1, 2)[counted].mean(dim=0) for compute_entropy in entropies])
