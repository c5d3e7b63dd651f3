"""Initial token embeddings from the training text: tokens that co-occur in the same pairs get similar vectors.

With random embeddings, source and target tokens are unrelated, and a small model learns to write its target language
long before it uses the source. Co-occurrence counts of tokens in the same pairs indicate translations, and take seconds
to compute. Their effect is measured in docs/experiments.md.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from transduce.data import TokenStore, sample_pairs
from transduce.kernels.device import use_one_thread
from transduce.kernels.memory import give_back_freed_memory
from transduce.model import EncoderDecoder, OutputProjection, TokenEmbedding
from transduce.training.distributed import SINGLE_RANK, Ranks

MAX_PAIRS = 50_000
"""Maximum number of training pairs that are counted, evenly spread over the text."""

MAX_COUNTS = 2 * 10**8
"""Maximum number of co-occurrences that are counted; fewer pairs are counted if they are long."""

MAX_TOKENS = 4_096
"""Maximum number of token ids whose co-occurrence is counted, the most frequent ones; 200 MB of memory are needed."""

COOCCURRENCE_SHARE = 0.9
"""Length of the part of an initial vector that comes from co-occurrence; that of the whole vector is about 1. The rest
is random, so that tokens that co-occur with the same others differ."""

POWER_ITERATIONS = 4
"""Power iterations of the randomised singular value decomposition (Halko et al. 2011)."""

MIN_INFORMATION = 1e-3
"""Largest mutual information of a token, in nats, up to which it has none: a token that is in every pair, as `</s>` is,
co-occurs with no other more often than by chance, and its vector would be rounding noise."""


@torch.no_grad()
def initialize_embeddings(model: EncoderDecoder, store: TokenStore, seed: int, ranks: Ranks = SINGLE_RANK) -> None:
    """Replace the random initial embeddings of `model` by those of co-occurrence in the training text `store`.

    The result depends on the model's embeddings, the text and the seed, and not on the number of threads; on another
    processor, rounding differs. All ranks get the vectors of the first. Tokens that are not counted keep their vectors.
    """
    weights = {
        id(part.weight): part.weight
        for part in model.modules()
        if isinstance(part, TokenEmbedding | OutputProjection)  # which share one matrix unless they are untied
    }
    first = next(iter(weights.values()))
    vectors = compute_cooccurrence_vectors(store, first.size(0), first.size(1), seed)
    ranks.barrier()  # a slower machine takes longer
    vectors = ranks.broadcast(vectors).to(first)
    is_counted = vectors.norm(dim=1) > 0
    for weight in weights.values():
        random = weight[is_counted]
        weight[is_counted] = COOCCURRENCE_SHARE * vectors[is_counted] + math.sqrt(1 - COOCCURRENCE_SHARE**2) * random
    give_back_freed_memory()


def compute_cooccurrence_vectors(
    store: TokenStore, vocabulary: int, d_model: int, seed: int
) -> Float[Tensor, "vocabulary d_model"]:
    """A vector of length 1 for each token; those of tokens that often co-occur in the same pairs are similar.

    Latent semantic analysis (Deerwester et al. 1990) of both languages together (Dumais et al. 1997): the positive
    pointwise mutual information of two tokens in a pair, whichever side each is on, and of its singular value
    decomposition the vectors times the root of their values (Levy et al. 2015). The first component, which reflects
    token frequency, is left out. Zero for tokens that do not occur, are not among the `MAX_TOKENS` most frequent, or
    co-occur with no other more often than by chance.
    """
    costs = np.square(store.lengths.sum(axis=1, dtype=np.int64))
    sample = sample_pairs(costs, MAX_PAIRS, MAX_COUNTS)
    pairs = [np.unique(np.concatenate(store.pair(index))) for index in sample.tolist()]
    frequency = np.bincount(np.concatenate(pairs), minlength=vocabulary)
    chosen = np.argsort(-frequency, kind="stable")[:MAX_TOKENS]
    chosen = chosen[frequency[chosen] > 0]
    information = count_cooccurrence(pairs, chosen, vocabulary)
    share = (frequency[chosen] / math.sqrt(len(pairs))).astype(np.float32)
    # In place, row after row: the matrix may take 67 MB.
    information /= share
    information /= share[:, None]
    np.log(np.maximum(information, 1.0, out=information), out=information)
    is_informative = torch.from_numpy(information.max(axis=1, initial=0.0) > MIN_INFORMATION)
    rank = min(d_model + 1, len(chosen))
    with torch.random.fork_rng(devices=[]), use_one_thread():
        # Other numbers than those that the model's initial values are drawn from.
        torch.manual_seed(int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]))
        left, values, _ = torch.svd_lowrank(
            torch.from_numpy(information), min(rank + 10, len(chosen)), POWER_ITERATIONS
        )
        # Any rotation keeps the angles between tokens; a random one gives all components the same part in them.
        rotation, _ = torch.linalg.qr(torch.randn(d_model, d_model))
        components = (left[:, 1:rank] * values[1:rank].sqrt()) @ rotation[: rank - 1]
    vectors = torch.zeros(vocabulary, d_model)
    vectors[chosen] = F.normalize(components, dim=1) * is_informative[:, None]
    return vectors


def count_cooccurrence(
    pairs: Sequence[Integer[np.ndarray, "_"]], chosen: Integer[np.ndarray, "chosen"], vocabulary: int
) -> Float[np.ndarray, "chosen chosen"]:
    """For every two of the `chosen` tokens, the number of pairs that have both; on the diagonal, that have the one.

    `pairs` has the different tokens of each pair. Rows and columns are in the order of `chosen`.
    """
    row_of_token = np.full(vocabulary, -1)
    row_of_token[chosen] = np.arange(len(chosen))
    counts = np.zeros((len(chosen), len(chosen)), np.float32)
    for tokens in pairs:
        rows = row_of_token[tokens]
        rows = rows[rows >= 0]
        counts[np.ix_(rows, rows)] += 1
    return counts
