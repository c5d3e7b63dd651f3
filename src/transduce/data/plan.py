"""Which pairs share a batch, and the order of the batches: one plan an epoch."""

import numpy as np
from jaxtyping import Int


def longest_sides(lengths: Int[np.ndarray, "pairs 2"]) -> Int[np.ndarray, "pairs"]:
    """Tokens of the longer side of each pair."""
    longer: np.ndarray = np.maximum(lengths[:, 0], lengths[:, 1])  # lengths.max(axis=1) takes twenty times as long
    return longer


def plan_batches(
    lengths: Int[np.ndarray, "pairs 2"],
    batch_tokens: int,
    seed: int,
    epoch: int,
    pairs: Int[np.ndarray, "seen"] | None = None,
) -> list[Int[np.ndarray, "_"]]:
    """Pairs of like length together (paper 5.1), the batches in random order.

    A pure function of its arguments, so that every process and every resumed run has the same plan. At ten million
    pairs it takes some seconds; with lengths of two bytes, and these included, 28 bytes of memory a pair.

    Args:
        lengths: Tokens of the source and of the target of every pair, `</s>` included.
        batch_tokens: Most tokens on either side of a batch, padding included; a pair that is longer than that is
            a batch of its own.
        seed: The seed of the run.
        epoch: The number of the epoch, from 0.
        pairs: Indices of the pairs, each as often as the epoch has it; every pair once unless given.

    Returns:
        The indices of the pairs of each batch.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    order = random.permutation(np.arange(len(lengths), dtype=np.int32) if pairs is None else pairs)
    longest = longest_sides(lengths)
    # Pairs of the same longest side go from short source to short target, or back, in turns: where one length ends
    # and the next begins, both sides change little. Sorting is stable, so the shuffle decides between equals.
    turning = lengths[:, 0] - lengths[:, 1]
    np.negative(turning, out=turning, where=longest % 2 == 0)
    for key in (turning, longest):
        order = order[np.argsort(key[order], kind="stable")]
    batches = _cut(order, longest[order], batch_tokens, int(batch_tokens * random.random()))
    return [batches[index] for index in random.permutation(len(batches))]


def _cut(
    order: Int[np.ndarray, "pairs"], longest: Int[np.ndarray, "pairs"], batch_tokens: int, first_tokens: int
) -> list[Int[np.ndarray, "_"]]:
    """Each batch in turn takes as many pairs as fit; `longest` ascends, so its last pair decides the width.

    The first one takes `first_tokens` only: with another number in every epoch, the borders between all batches
    move, and pairs that shared a batch part again even in a corpus of few batches.
    """
    batches = []
    start = 0
    budget = first_tokens
    while start < len(order):
        candidates = longest[start : start + max(1, budget // int(longest[start]))]
        size = candidates * np.arange(1, len(candidates) + 1)
        num_rows = max(1, int(np.searchsorted(size, budget, side="right")))
        batches.append(order[start : start + num_rows])
        start += num_rows
        budget = batch_tokens
    return batches
