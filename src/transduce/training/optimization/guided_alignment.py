"""Guided alignment: one head of the encoder-decoder attention is trained to follow a word alignment.

An alignment model, learned from the training text in seconds, provides the alignment (Chen et al. 2016, "Guided
alignment training for topic-aware neural machine translation"; Garg et al. 2019). From the translation loss alone, a
small model learns it only after many passes over its text. Its effect is measured in docs/experiments.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.data import Batch, TokenStore, plan_batches, read_batches, sample_pairs
from transduce.kernels.device import use_one_thread
from transduce.model import KeysAndValues, MultiHeadAttention, Transformer, attention_weights

MAX_TOKENS = 4_096
"""Maximum number of (most frequent) token ids in an alignment model; its two tables take 134 MB, and
twice that while they are learned."""

MAX_PAIRS = 10_000
"""Maximum number of pairs from which an alignment model learns, evenly spread over the training text."""

MAX_CELLS = 10**7
"""Maximum number of cells, each a source and a target position of one pair, in all pairs together; fewer pairs are used
if they are long. An iteration takes about 150 ns per cell."""

NUM_ITERATIONS = 5
"""Iterations of expectation maximisation."""

BATCH_TOKENS = 1024
"""Tokens on either side of a batch in these iterations."""

DIAGONAL_TENSIONS = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
"""Values of which `AlignmentModel.diagonal_tension` is one; 0 is no preference for the diagonal."""

INITIAL_DIAGONAL_TENSION = 4.0
"""`AlignmentModel.diagonal_tension` before the first iteration."""

MEASURE_EVERY = 8
"""`AlignmentModel.diagonal_tension` is chosen by the likelihood of every so many-th batch."""

MIN_COUNT = 1e-4
"""Count that is added to that of every two tokens, so that no probability is zero."""

TINY = 1e-9
"""Added to a sum before dividing by it, as that of padding is zero."""


@dataclass(frozen=True)
class AlignmentModel:
    """Lexical translation probabilities, and a prior that prefers the diagonal.

    IBM Model 2 (Brown et al. 1993) with the prior of Dyer et al. 2013, in both directions: the probability that target
    position j of n comes from source position i of m is in proportion to exp(-t · |i/m - j/n|), with the diagonal
    tension t, times the probability that one token is translated as the other. Both tables have a row for each known
    token of the source and a column for each of the target; the last of either is zero and stands for all other
    tokens.
    """

    table_index: Int[Tensor, " vocabulary"]
    """The number of the row, and of the column, of each token."""
    target_given_source: Float[Tensor, "known known"]
    """The probability of the target's token, given the source's: rows sum to 1."""
    source_given_target: Float[Tensor, "known known"]
    """The probability of the source's token, given the target's: columns sum to 1."""
    diagonal_tension: float
    """How much a position close to the diagonal is preferred (t above; Dyer et al. 2013 call it so)."""

    def align(self, batch: Batch) -> tuple[Float[Tensor, "batch target source"], Float[Tensor, "batch target"]]:
        """For each target position, the probability of each source position, and the certainty of these, from 0 to 1.

        The probabilities are the normalised products of those of both directions: for a token without a counterpart the
        products are small, and the root of their sum is the certainty.
        """
        by_source, by_target = self.compute_posteriors(batch)
        both = by_source * by_target
        total = both.sum(dim=2, keepdim=True)
        return both / (total + TINY), total.squeeze(2).sqrt().clamp(max=1.0)

    def compute_posteriors(
        self, batch: Batch
    ) -> tuple[Float[Tensor, "batch target source"], Float[Tensor, "batch target source"]]:
        """For each target position, the probability of each source position; and vice versa.

        Both are probabilities: the first sum to 1 over the source, the second over the target, or to less for tokens
        that are not in the tables.
        """
        prior = _compute_prior(batch, self.diagonal_tension)
        cells = self.find_cells(batch)
        by_source = self.target_given_source.take(cells) * prior
        by_target = self.source_given_target.take(cells) * prior
        return (
            by_source / (by_source.sum(dim=2, keepdim=True) + TINY),
            by_target / (by_target.sum(dim=1, keepdim=True) + TINY),
        )

    def find_cells(self, batch: Batch) -> Int[Tensor, "batch target source"]:
        """For each target and source position, the index of their two tokens in a flattened table."""
        rows, columns = self.table_index[batch.source_ids], self.table_index[batch.target_ids]
        return rows[:, None, :] * self.target_given_source.size(1) + columns[:, :, None]

    def to(self, device: torch.device) -> "AlignmentModel":
        """The same model in the memory of `device`."""
        tables = self.target_given_source.to(device), self.source_given_target.to(device)
        return AlignmentModel(self.table_index.to(device), *tables, self.diagonal_tension)


def train_alignment_model(store: TokenStore, vocabulary: int) -> AlignmentModel:
    """Learn which tokens translate each other from the pairs of `store`, by expectation maximisation.

    The result depends on the pairs alone, and not on the number of threads. Takes up to about ten seconds.
    """
    costs = np.prod(store.lengths, axis=1, dtype=np.int64)
    plan = plan_batches(store.lengths, BATCH_TOKENS, 0, 0, sample_pairs(costs, MAX_PAIRS, MAX_CELLS))

    def read() -> Iterator[Batch]:
        return read_batches(store, plan, 0, vocabulary - 1)

    with use_one_thread():
        frequency = torch.zeros(vocabulary, dtype=torch.int64)
        for batch in read():
            for ids, mask in ((batch.source_ids, batch.source_mask), (batch.target_ids, batch.target_mask)):
                frequency += torch.bincount(ids[mask], minlength=vocabulary)
        known = torch.argsort(frequency, descending=True, stable=True)[: min(MAX_TOKENS, int((frequency > 0).sum()))]
        size = len(known) + 1
        table_index = torch.full((vocabulary,), size - 1)
        table_index[known] = torch.arange(len(known))
        model = AlignmentModel(table_index, torch.ones(size, size), torch.ones(size, size), INITIAL_DIAGONAL_TENSION)
        for _ in range(NUM_ITERATIONS):
            model = run_em_iteration(model, read())
    return model


def run_em_iteration(model: AlignmentModel, batches: Iterator[Batch]) -> AlignmentModel:
    """One iteration of expectation maximisation: count by the alignments of `model`, and make tables of the counts.

    The diagonal tension becomes the one of `DIAGONAL_TENSIONS` under which the alignments of targets to sources are
    most probable.
    """
    forward, backward = (torch.full_like(model.target_given_source, MIN_COUNT) for _ in range(2))
    likelihoods = torch.zeros(len(DIAGONAL_TENSIONS), dtype=torch.float64)
    for number, batch in enumerate(batches):
        cells = model.find_cells(batch).flatten()
        by_source, by_target = model.compute_posteriors(batch)
        forward.view(-1).index_add_(0, cells, by_source.flatten())
        backward.view(-1).index_add_(0, cells, by_target.flatten())
        if number % MEASURE_EVERY == 0:
            likelihoods += torch.stack([_compute_log_prior(batch, by_source, tension) for tension in DIAGONAL_TENSIONS])
    for counts in (forward, backward):
        counts[-1] = 0.0
        counts[:, -1] = 0.0
    forward /= forward.sum(dim=1, keepdim=True) + TINY
    backward /= backward.sum(dim=0, keepdim=True) + TINY
    return AlignmentModel(model.table_index, forward, backward, DIAGONAL_TENSIONS[int(likelihoods.argmax())])


def _compute_prior(batch: Batch, diagonal_tension: float) -> Float[Tensor, "batch target source"]:
    """exp(-t · |i/m - j/n|), from the middle of each position, and zero where one of the two is padding."""

    def middles(mask: Tensor) -> Tensor:
        # A batch without a loss has no target at all.
        return (torch.arange(mask.size(1), device=mask.device) + 0.5) / mask.sum(dim=1, keepdim=True).clamp(min=1)

    distances = (middles(batch.source_mask)[:, None, :] - middles(batch.target_mask)[:, :, None]).abs()
    is_real = batch.target_mask[:, :, None] & batch.source_mask[:, None, :]
    return torch.exp(-diagonal_tension * distances) * is_real


def _compute_log_prior(
    batch: Batch, posterior: Float[Tensor, "batch target source"], diagonal_tension: float
) -> Float[Tensor, ""]:
    """The log-probability of alignments under the prior of this `diagonal_tension`, expected over `posterior`."""
    prior = _compute_prior(batch, diagonal_tension)
    total = prior.sum(dim=2, keepdim=True)
    return (posterior * ((prior + TINY) / (total + TINY)).log()).sum(dtype=torch.float64)


def decode_with_guided_head(
    model: Transformer, batch: Batch, memory: Float[Tensor, "batch source d_model"]
) -> tuple[Float[Tensor, "batch target d_model"], Float[Tensor, "batch target source"]]:
    """What `Transformer.decode_hidden` returns, and the weights by which the guided head attends to the source.

    That is the first head of the last decoder layer but one: the layer in which heads of models that were not guided
    align best (Garg et al. 2019).
    """
    layers = model.decoder.layers
    guided = layers[max(0, len(layers) - 2)].cross_attention
    seen: list[Tensor] = []

    def attend(attention: MultiHeadAttention, queries: Tensor, of_memory: KeysAndValues, mask: Tensor) -> Tensor:
        if attention is guided:
            keys = of_memory.keys[:, :1].float()
            seen.append(attention_weights(attention.score, queries[:, :1].float(), keys, mask).squeeze(1))
        return attention.attend(queries, of_memory, mask)

    hidden = model.decode_hidden(batch.target_ids, batch.target_mask, memory, batch.source_mask, attend)
    return hidden, seen[0]


def compute_alignment_loss(
    weights: Float[Tensor, "batch target source"], batch: Batch, alignment: AlignmentModel
) -> Float[Tensor, ""]:
    """Cross-entropy of a head's weights against the alignment, summed over the real target tokens, in nats.

    Each token is weighted by the certainty of its alignment.
    """
    with torch.no_grad():
        aligned, certainty = alignment.align(batch)
    cross_entropy = -(aligned * (weights + TINY).log()).sum(dim=2)
    return (cross_entropy * certainty * batch.target_mask).sum()
