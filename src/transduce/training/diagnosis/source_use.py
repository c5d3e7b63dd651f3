"""Whether a model uses the source: its loss with the right source beside that with another, and where it looks."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.data import Batch
from transduce.model import Transformer, memory_attention_weights
from transduce.text import Tokenizer
from transduce.training.precision import computing_in

Precision = Literal["float32", "bfloat16"]

MOST_PAIRS = 64
MOST_TOKENS = 1000
"""Of either side of the sample: what is computed costs less than an update."""

TOKENS_AT_A_TIME = 256
"""Whose logits are held at a time: 38 MB for the paper's vocabulary."""

ATTENTION_PAIRS = 8
"""Pairs of the sample whose attention is looked at."""


@dataclass(frozen=True)
class SourceUse:
    """Figures of one look at the model, of a small sample of the validation text, without dropout.

    Args:
        loss: cross-entropy with the right sources, in nats a target token.
        shuffled_loss: the same with the source of another pair, of about the same length.
        gain_error: standard error of the difference of the two, by how it differs from pair to pair.
        attention_entropy: entropy of the attention to the source over that of uniform attention, from 0 to 1; the mean
            of all positions, heads and layers.
        sharpest_entropy: the same of the head that has the lowest.
        num_pairs: of the sample.
    """

    loss: float
    shuffled_loss: float
    gain_error: float
    attention_entropy: float
    sharpest_entropy: float
    num_pairs: int


class SourceProbe:
    """A small sample of the validation text, on which the use of the source is measured; the same every time.

    Args:
        pairs: the validation text.
        tokenizer: of the model.
        precision: of the computation; that of training.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, precision: Precision) -> None:
        step = max(1, len(pairs) // MOST_PAIRS)
        source_texts, target_texts = zip(*pairs[::step][:MOST_PAIRS], strict=True)
        sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(source_texts)]
        targets = [tokenizer.as_target(ids) for ids in tokenizer.encode_targets(target_texts)]
        both = list(zip(sources, targets, strict=True))
        ends = accumulate(max(map(len, pair)) for pair in both)
        chosen = [pair for pair, end in zip(both, ends, strict=True) if end <= MOST_TOKENS] or both[:1]
        # In the order of their lengths, so that the source of the next pair differs in its words and not its length.
        chosen.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
        sources, targets = map(list, zip(*chosen, strict=True))
        self.batch = Batch.from_ids(sources, targets, tokenizer.pad_id)
        self.precision = precision

    @torch.inference_mode()
    def measure(self, model: Transformer) -> SourceUse:
        """The figures for the model as it is; its mode and weights are left alone."""
        batch = self.batch.to(next(model.parameters()).device)
        was_training = model.training
        model.eval()
        with computing_in(model, self.precision):
            memory = model.encode(batch.source_ids, batch.source_mask)
            right = _losses(model, batch, memory, batch.source_mask)
            shuffled = _losses(model, batch, memory.roll(1, dims=0), batch.source_mask.roll(1, dims=0))
        few = slice(None, None, -(-len(batch.source_ids) // ATTENTION_PAIRS))
        heads = attention_entropies(model, Batch(*(side[few] for side in astuple(batch))))
        model.train(was_training)
        lengths = batch.target_mask.sum(dim=1).cpu().double()
        gains, num_tokens = shuffled - right, lengths.sum()
        gain = gains.sum() / num_tokens
        # Of a ratio of sums over pairs: tokens of one sentence are not independent of each other.
        error = (gains - gain * lengths).square().sum().sqrt() / num_tokens
        loss, shuffled_loss = (losses.sum() / num_tokens for losses in (right, shuffled))
        return SourceUse(
            loss=float(loss),
            shuffled_loss=float(shuffled_loss),
            gain_error=float(error),
            attention_entropy=float(heads.mean()),
            sharpest_entropy=float(heads.min()),
            num_pairs=len(lengths),
        )


def _losses(model: Transformer, batch: Batch, memory: Tensor, source_mask: Tensor) -> Tensor:
    """Cross-entropy of each pair's target, in nats."""
    hidden = model.decode_hidden(batch.target_ids, batch.target_mask, memory, source_mask)
    states, right_ids = (torch.split(side[batch.target_mask], TOKENS_AT_A_TIME) for side in (hidden, batch.target_ids))
    parts = zip(states, right_ids, strict=True)
    losses = [F.cross_entropy(model.projection(some.float()), right, reduction="none") for some, right in parts]
    pairs = batch.target_mask.nonzero()[:, 0].cpu()
    return torch.zeros(len(batch.target_ids), dtype=torch.float64).index_add(0, pairs, torch.cat(losses).cpu().double())


def attention_entropies(model: Transformer, batch: Batch) -> Tensor:
    """Entropy of the attention to the source, of every layer and head, over that of uniform attention.

    The mean over all positions of the target whose source has more than one token; 1 where there is none.
    """
    lengths = batch.source_mask.sum(dim=1).cpu()
    counted = batch.target_mask.cpu() & (lengths > 1)[:, None]
    if not counted.any():
        return torch.ones(1)
    most = lengths.clamp(min=2).log()[:, None, None]
    layers = memory_attention_weights(model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    entropies = [torch.special.entr(weights.float().cpu()).sum(dim=-1) / most for weights in layers]
    return torch.cat([entropy.transpose(1, 2)[counted].mean(dim=0) for entropy in entropies])
