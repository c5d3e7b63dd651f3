"""Checks of what a model learns: its loss with the right source and with another, and where its attention goes."""

import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.data import Batch
from transduce.model import Transformer, cross_attention_weights
from transduce.text import Tokenizer
from transduce.training.diagnosis.history import RunHistory, relative_step
from transduce.training.diagnosis.initial_checks import LARGEST_STEP, find_unrelated_pairs, is_foreign
from transduce.training.reporting.metrics import Line
from transduce.training.updater import autocast

Precision = Literal["float32", "bfloat16"]

MOST_PAIRS = 64
MOST_TOKENS = 1000
"""Of either side of the sample, so that a measurement takes less than an update."""

TOKENS_AT_A_TIME = 256
"""Tokens whose logits are held at a time: 38 MB for the paper's vocabulary."""

ATTENTION_PAIRS = 8
"""Pairs of the sample whose attention is measured."""


@dataclass(frozen=True)
class SourceUse:
    """Figures of one measurement of the model, on a small sample of the validation text, without dropout."""

    loss: float
    """Cross-entropy with the right sources, in nats a target token."""
    shuffled_loss: float
    """Cross-entropy with the source of another pair, of about the same length."""
    gain_error: float
    """Standard error of the difference of the two, by how it differs from pair to pair."""
    attention_entropy: float
    """Entropy of the attention to the source over that of uniform attention, from 0 to 1; the mean of all positions,
    heads and layers."""
    sharpest_entropy: float
    """The same for the head where it is lowest."""
    num_pairs: int
    """Of the sample."""


class SourceProbe:
    """Measures the use of the source on a small sample of the validation text, which is always the same.

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
        """Measure the model, whose mode and weights stay as they are."""
        batch = self.batch.to(next(model.parameters()).device)
        was_training = model.training
        model.eval()
        with autocast(model, self.precision):
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

    It is the mean over all target positions whose source has more than one token; 1 where there is none.
    """
    lengths = batch.source_mask.sum(dim=1).cpu()
    counted = batch.target_mask.cpu() & (lengths > 1)[:, None]
    if not counted.any():
        return torch.ones(1)
    most = lengths.clamp(min=2).log()[:, None, None]
    layers = cross_attention_weights(model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    entropies = [torch.special.entr(weights.float().cpu()).sum(dim=-1) / most for weights in layers]
    return torch.cat([entropy.transpose(1, 2)[counted].mean(dim=0) for entropy in entropies])


NUM_MEASUREMENTS = 4
"""Measurements in a row that have to agree."""

FEWEST_UPDATES = 400
"""Before which no check finds that a model has not learned something: in healthy runs on small corpora the loss stays
at that of a unigram model, and attention nearly uniform, for up to 350 updates. A longer warm-up is waited for, too, up
to a tenth of the run."""

AT_UNIGRAM = 0.25
"""Nats below the unigram loss from which a model has learned more than how frequent tokens are. After 400 updates, the
slowest healthy run was 0.7 below, and runs with dropout 0.9 were less than 0.1 below."""

LEARNED = 0.5
"""Nats below the unigram loss from which a model could have learned from the source, too."""

NO_INFLUENCE = 0.002
"""Nats a token that the right source is worth at most if the model takes no notice of it. In healthy runs it was worth
more, for better or worse, as soon as the loss was well below the unigram loss."""

UNIFORM = 0.99
"""Entropy of attention, as a share of that of uniform attention, above which a head counts as uniform. In
healthy runs, the sharpest head was below after 350 updates at the latest, and at 0.4 to 0.9 after 500."""

SHARP = 0.95
"""Entropy below which a head no longer counts as uniform."""

FEWEST_PAIRS = 8
"""Pairs of a sample that suffices to find that a model ignores the source."""

SURE = 3.0
"""Standard errors from which the gain by the right source is significant."""

LONG = 1500
"""Updates after which a model should have learned something from the source, however slowly it began: in healthy runs
on news text the gain was significant after 800."""

RISE = 0.3
"""Nats from which a loss counts as rising: that of the sample varies by at most 0.1 in healthy runs."""

FALLING = 0.1
"""Nats from which a loss counts as falling over `NUM_MEASUREMENTS` measurements."""

STRONG_DROPOUT = 0.4
"""More than any published model of this kind was trained with."""


def find_unigram_loss(run: RunHistory) -> str | None:
    """Find a loss that is no better than that of a model which knows only how frequent each token is."""
    unigram = run.text.get("unigram_loss")
    if unigram is None or is_foreign(run) or _is_early(run):
        return None
    lowest = min(_lowest_loss(run.source_uses[-NUM_MEASUREMENTS:]), recent_loss(run.training))
    if lowest < unigram - AT_UNIGRAM:
        return None
    return (
        f"after {run.source_uses[-1]['update']:,} updates the loss ({lowest:.2f}) is no better than that of a model "
        f"that knows nothing but how frequent each token is ({unigram:.2f} nats a token): {_cause_of_no_learning(run)}"
    )


def find_end_of_unigram_loss(run: RunHistory) -> str | None:
    """Find the end of `find_unigram_loss`."""
    lowest, unigram = _lowest_loss(run.source_uses[-2:]), run.text.get("unigram_loss", 0.0)
    return f"the loss ({lowest:.2f}) is now below that of a unigram model" if lowest < unigram - LEARNED else None


def find_ignored_source(run: RunHistory) -> str | None:
    """Find a model that has learned what targets look like, but for which the source makes no difference."""
    if is_foreign(run) or find_unrelated_pairs(run) is not None or _is_early(run) or not _has_learned(run):
        return None
    if run.source_uses[-1]["num_pairs"] < FEWEST_PAIRS:
        return None
    recent = run.source_uses[-NUM_MEASUREMENTS:]
    longer = run.source_uses[-2 * NUM_MEASUREMENTS :]
    has_no_influence = all(abs(_gain(look)) + 2 * look["gain_error"] < NO_INFLUENCE for look in recent)
    is_no_help = run.source_uses[-1]["update"] >= LONG and not any(_uses_source(look) for look in longer)
    if not has_no_influence and not is_no_help:
        return None
    look = recent[-1]
    return (
        f"the model ignores the source: after {look['update']:,} updates its loss is {look['loss']:.3f} with the right "
        f"source and {look['shuffled_loss']:.3f} with that of another pair, and its attention to the source has "
        f"{look['attention_entropy']:.0%} of the entropy of uniform attention. It learns to write the target language, "
        f"and not to translate. {_cause_of_ignorance(run)}"
    )


def find_end_of_ignored_source(run: RunHistory) -> str | None:
    """Find the end of `find_ignored_source`."""
    if len(run.source_uses) < 2 or not all(_uses_source(look) for look in run.source_uses[-2:]):
        return None
    return (
        f"the model now uses the source: the right one lowers the loss by {_gain(run.source_uses[-1]):.3f} nats a token"
    )


def find_uniform_attention(run: RunHistory) -> str | None:
    """Find attention to the source that is uniform in all heads, though the model has begun to learn."""
    if is_foreign(run) or find_unrelated_pairs(run) is not None or _is_early(run) or not _has_learned(run):
        return None
    sharpest = min(look["sharpest_entropy"] for look in run.source_uses[-NUM_MEASUREMENTS:])
    if sharpest < UNIFORM or find_ignored_source(run) is not None:
        return None
    return (
        f"attention to the source is uniform in all heads (even the sharpest has {sharpest:.1%} of the entropy of "
        f"uniform attention): the model sees the source at best as a bag of words, in no order. "
        f"{_cause_of_ignorance(run)}"
    )


def find_end_of_uniform_attention(run: RunHistory) -> str | None:
    """Find the end of `find_uniform_attention`."""
    sharpest = max(look["sharpest_entropy"] for look in run.source_uses[-2:])
    if sharpest >= SHARP:
        return None
    return f"attention to the source is no longer uniform: the sharpest head has {sharpest:.0%} of its entropy"


def find_rising_loss(run: RunHistory) -> str | None:
    """Find a loss that was lower before, on training text, too."""
    if len(run.source_uses) <= NUM_MEASUREMENTS or len(run.training) <= NUM_MEASUREMENTS:
        return None
    before, now = _lowest_loss(run.source_uses[:-2]), _lowest_loss(run.source_uses[-2:])
    earlier = [recent_loss(run.training[:end]) for end in range(NUM_MEASUREMENTS, len(run.training) - 1)]
    if now < before + RISE or recent_loss(run.training) < min(earlier, default=float("inf")) + RISE:
        return None
    return (
        f"the loss rises: from {before:.2f} at its lowest to {now:.2f} after {run.source_uses[-1]['update']:,} "
        f"updates, on training text, too. The most likely cause is the learning rate: {_lower_rate(run)}"
    )


def find_end_of_rising_loss(run: RunHistory) -> str | None:
    """Find the end of `find_rising_loss`."""
    now = _lowest_loss(run.source_uses[-1:])
    return f"the loss has come down again, to {now:.2f}" if now < _lowest_loss(run.source_uses[:-1]) + FALLING else None


def _is_early(run: RunHistory) -> bool:
    """Whether it is too early to find that a model has not learned something."""
    training = run.config.training
    fewest = max(FEWEST_UPDATES, min(training.warmup, training.updates // 10))
    return len(run.source_uses) < NUM_MEASUREMENTS or run.source_uses[-1]["update"] < fewest


def _has_learned(run: RunHistory) -> bool:
    unigram = run.text.get("unigram_loss")
    return (
        unigram is not None and min(_lowest_loss(run.source_uses[-2:]), recent_loss(run.training)) < unigram - LEARNED
    )


def _lowest_loss(source_uses: Sequence[Line]) -> float:
    return min((float(look["loss"]) for look in source_uses), default=float("inf"))


def recent_loss(training: Sequence[Line]) -> float:
    """Mean cross-entropy of the latest lines of training: that of one batch depends on which pairs it has."""
    recent = [float(line["cross_entropy"]) for line in training[-NUM_MEASUREMENTS:]]
    return statistics.fmean(recent) if recent else float("inf")


def _gain(look: Line) -> float:
    """Gain by the right source, in nats a token."""
    return float(look["shuffled_loss"] - look["loss"])


def _uses_source(look: Line) -> bool:
    return _gain(look) > SURE * float(look["gain_error"])


def _cause_of_no_learning(run: RunHistory) -> str:
    model = run.config.model
    if model.dropout >= STRONG_DROPOUT:
        return f"the most likely cause is model.dropout = {model.dropout:g}: set it to 0.1, or at most 0.3"
    falls = run.source_uses[-NUM_MEASUREMENTS]["loss"] - run.source_uses[-1]["loss"] > FALLING
    if falls and relative_step(run.config) < LARGEST_STEP:
        return "it still falls, but slowly: raise training.learning_rate, or shorten training.warmup"
    post = ', or model.norm_order = "pre"' if model.norm_order == "post" else ""
    return f"the most likely cause is the learning rate (now {training_rate(run):.2g}): {_lower_rate(run)}{post}"


def _cause_of_ignorance(run: RunHistory) -> str:
    model = run.config.model
    if model.dropout >= STRONG_DROPOUT:
        return f"The most likely cause is model.dropout = {model.dropout:g}: set it to 0.1, or at most 0.3"
    if relative_step(run.config) >= LARGEST_STEP:
        return f"The most likely cause is the learning rate: {_lower_rate(run)}"
    if model.norm_order == "post":
        return (
            'The most likely cause is model.norm_order = "post", with which small networks may never get beyond this: '
            'set it to "pre", or try a lower model.dropout or another training.learning_rate'
        )
    return (
        "The most likely causes are pairs that are no translations of each other, too strong dropout (model.dropout) "
        "and a rate that does not suit (training.learning_rate); in changed code, attention to the source whose "
        "weights get no gradient"
    )


def _lower_rate(run: RunHistory) -> str:
    rate = run.config.training.learning_rate
    if rate is None:
        return "raise training.warmup, which lowers its peak"
    return f"lower training.learning_rate = {rate:g} to a third, or to a tenth"


def training_rate(run: RunHistory) -> float:
    """The learning rate of the latest line of training."""
    return float(run.training[-1]["learning_rate"]) if run.training else 0.0
