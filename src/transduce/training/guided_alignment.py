"""Guided alignment: one head of the attention to the source learns where each token of the target comes from.

An alignment model, which learns from the training text in seconds which tokens translate each other, says where that is
(Chen et al. 2016, "Guided alignment training for topic-aware neural machine translation"; Garg et al. 2019). From the
translation loss alone, a small model learns it only after many passes over its text. docs/experiments.md has what it
is worth.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.data import Batch, TokenStore, plan_batches, read_batches
from transduce.model import KeysAndValues, MultiHeadAttention, Transformer, attention_weights

MOST_TOKENS = 4_096
"""Maximum number of token ids that an alignment model knows, the most frequent ones; its two tables take 134 MB."""

MOST_PAIRS = 10_000
"""Maximum number of pairs from which an alignment model learns, evenly spread over the training text."""

NUM_ITERATIONS = 5
"""Iterations of expectation maximisation."""

BATCH_TOKENS = 1024
"""Tokens on either side of a batch in these iterations."""

MEASURED_SHARE = 8
"""One of so many batches decides `AlignmentModel.strength`."""

STRENGTHS = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
"""Values of which `AlignmentModel.strength` is one; 0 is no preference for the diagonal."""

FIRST_STRENGTH = 4.0

LEAST_COUNT = 1e-4
"""Count that is added to that of every two tokens, so that no probability is zero."""

TINY = 1e-9
"""What is added to a sum before it divides, as that of padding is zero."""


@dataclass(frozen=True)
class AlignmentModel:
    """Which tokens translate each other, and that what comes early in the source comes early in the target.

    IBM Model 2 (Brown et al. 1993) with the prior of Dyer et al. 2013, in both directions: the probability that target
    position j of n comes from source position i of m is in proportion to exp(-strength · |i/m - j/n|) times the
    probability that one token is translated as the other.
    """

    row: Int[Tensor, " vocabulary"]
    """Row and column of each token in the tables; those that are not known share the last, which is zero."""
    target_given_source: Float[Tensor, "known known"]
    """Row: token of the source. Column: token of the target."""
    source_given_target: Float[Tensor, "known known"]
    """Rows and columns as above."""
    strength: float

    def align(self, batch: Batch) -> tuple[Float[Tensor, "batch target source"], Float[Tensor, "batch target"]]:
        """For each position of the target, how probable each of the source is, and how certain that is, from 0 to 1.

        The probabilities are those of both directions, multiplied: of a token without a counterpart they are small
        before they are divided by their sum, and this sum's root is how certain they are.
        """
        by_source, by_target = self.posteriors(batch)
        both = by_source * by_target
        total = both.sum(dim=2, keepdim=True)
        return both / (total + TINY), total.squeeze(2).sqrt().clamp(max=1.0)

    def posteriors(
        self, batch: Batch
    ) -> tuple[Float[Tensor, "batch target source"], Float[Tensor, "batch target source"]]:
        """For each target position, which source position it comes from; and the other way round.

        Both are probabilities: the first sum to 1 over the source, the second over the target.
        """
        prior = _prior(batch, self.strength)
        place = self.places(batch)
        by_source, by_target = (
            table.take(place) * prior for table in (self.target_given_source, self.source_given_target)
        )
        return (
            by_source / (by_source.sum(dim=2, keepdim=True) + TINY),
            by_target / (by_target.sum(dim=1, keepdim=True) + TINY),
        )

    def places(self, batch: Batch) -> Int[Tensor, "batch target source"]:
        """For every two positions of a pair, the place of their tokens in a table, counted row by row."""
        sources, targets = self.row[batch.source_ids], self.row[batch.target_ids]
        return sources[:, None, :] * self.target_given_source.size(1) + targets[:, :, None]

    def to(self, device: torch.device) -> "AlignmentModel":
        """The same model in the memory of `device`."""
        tables = self.target_given_source.to(device), self.source_given_target.to(device)
        return AlignmentModel(self.row.to(device), *tables, self.strength)


def train_alignment_model(store: TokenStore, vocabulary: int) -> AlignmentModel:
    """Learn which tokens translate each other from the pairs of `store`, by expectation maximisation.

    A pure function of the pairs. Takes about 20 seconds for `MOST_PAIRS` of news.
    """
    pairs = np.arange(0, len(store), math.ceil(len(store) / MOST_PAIRS), dtype=np.int32)
    plan = plan_batches(store.lengths, BATCH_TOKENS, 0, 0, pairs)

    def read() -> Iterator[Batch]:
        return read_batches(store, plan, 0, vocabulary - 1)

    frequency = torch.zeros(vocabulary, dtype=torch.int64)
    for batch in read():
        for ids, mask in ((batch.source_ids, batch.source_mask), (batch.target_ids, batch.target_mask)):
            frequency += torch.bincount(ids[mask], minlength=vocabulary)
    known = torch.argsort(frequency, descending=True, stable=True)[: min(MOST_TOKENS, int((frequency > 0).sum()))]
    size = len(known) + 1
    row = torch.full((vocabulary,), size - 1)
    row[known] = torch.arange(len(known))
    model = AlignmentModel(row, torch.ones(size, size), torch.ones(size, size), FIRST_STRENGTH)
    for _ in range(NUM_ITERATIONS):
        model = _improve(model, read())
    return model


def _improve(model: AlignmentModel, batches: Iterator[Batch]) -> AlignmentModel:
    """One iteration of expectation maximisation."""
    counts = [torch.full_like(model.target_given_source, LEAST_COUNT) for _ in range(2)]
    likelihoods = torch.zeros(len(STRENGTHS), dtype=torch.float64)
    for number, batch in enumerate(batches):
        place = model.places(batch).flatten()
        posteriors = model.posteriors(batch)
        for count, posterior in zip(counts, posteriors, strict=True):
            count.view(-1).index_add_(0, place, posterior.flatten())
        if number % MEASURED_SHARE == 0:
            likelihoods += torch.stack([_log_prior(batch, posteriors[0], strength) for strength in STRENGTHS])
    for count in counts:
        count[-1] = 0.0
        count[:, -1] = 0.0
    forward, backward = counts
    return AlignmentModel(
        model.row,
        forward / (forward.sum(dim=1, keepdim=True) + TINY),
        backward / (backward.sum(dim=0, keepdim=True) + TINY),
        STRENGTHS[int(likelihoods.argmax())],
    )


def _distance(batch: Batch) -> Float[Tensor, "batch target source"]:
    """|i/m - j/n|, from the middle of each position."""

    def middles(mask: Tensor) -> Tensor:
        return (torch.arange(mask.size(1), device=mask.device) + 0.5) / mask.sum(dim=1, keepdim=True)

    return (middles(batch.source_mask)[:, None, :] - middles(batch.target_mask)[:, :, None]).abs()


def _prior(batch: Batch, strength: float) -> Float[Tensor, "batch target source"]:
    """exp(-strength · |i/m - j/n|), and zero where one of the two is padding."""
    is_real = batch.target_mask[:, :, None] & batch.source_mask[:, None, :]
    return torch.exp(-strength * _distance(batch)) * is_real


def _log_prior(batch: Batch, posterior: Float[Tensor, "batch target source"], strength: float) -> Float[Tensor, ""]:
    """The expected log-probability of the alignments under the prior of `strength`."""
    prior = _prior(batch, strength)
    total = prior.sum(dim=2, keepdim=True)
    return (posterior * ((prior + TINY) / (total + TINY)).log()).sum(dtype=torch.float64)


class AttentionGuide:
    """Observes one head of a decoder's attention to the source, that of the last layer but one (Garg et al. 2019).

    `attend` computes attention as the model does; `loss` is then that of the head.
    """

    def __init__(self, model: Transformer) -> None:
        layers = model.decoder.layers
        self._attention = layers[max(0, len(layers) - 2)].cross_attention
        self._weights: Tensor | None = None

    def attend(
        self, attention: MultiHeadAttention, queries: Tensor, keys_and_values: KeysAndValues, mask: Tensor
    ) -> Tensor:
        """`MultiHeadAttention.attend`; the weights of the head are kept."""
        if attention is self._attention:
            keys = keys_and_values.keys[:, :1]
            self._weights = attention_weights(attention.score, queries[:, :1].float(), keys.float(), mask).squeeze(1)
        return attention.attend(queries, keys_and_values, mask)

    def loss(self, batch: Batch, alignment: AlignmentModel) -> Float[Tensor, ""]:
        """Cross-entropy of the head's weights against the alignment, summed over the real target tokens, in nats.

        Each token counts by how certain its alignment is.
        """
        if self._weights is None:
            raise RuntimeError("the decoder has not attended to the source yet")
        weights, self._weights = self._weights, None
        with torch.no_grad():
            wanted, certainty = alignment.align(batch)
        cross_entropy = -(wanted * (weights + TINY).log()).sum(dim=2)
        return (cross_entropy * certainty * batch.target_mask).sum()
