"""The probability of given translations under the model, by forced decoding."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.bundle import Bundle, find_bundle
from transduce.config import SearchConfig
from transduce.data import Batch
from transduce.errors import UserError
from transduce.kernels.batch_invariance import pad_to_row_multiple
from transduce.kernels.device import find_device
from transduce.model import EncoderDecoder
from transduce.search import Hypothesis
from transduce.text import Pair, Tokenizer
from transduce.translation.engines.engine import batch_by_length
from transduce.translation.engines.networks import evaluation_mode
from transduce.translation.options import DescribedFields, Token

MAX_LOGITS = 2**26
"""Maximum number of logits of a batch, padding included: 0.25 GB, and as much again for their softmax."""

MAX_TOKENS = 4096
"""Maximum number of tokens of a side, `</s>` included: attention over as many takes half a gigabyte in eight heads."""

_PAIRS_AT_A_TIME = 2048


@dataclass(frozen=True)
class ForcedDecoder:
    """A model that reads given translations instead of searching for its own, with its tokenizer and settings."""

    model: EncoderDecoder
    tokenizer: Tokenizer
    search: SearchConfig

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "ForcedDecoder":
        """The decoder of a bundle, or of a run folder's best bundle.

        Raises:
            BundleError: there is no bundle, or it is damaged.
            ConfigError: the device is not available.
        """
        return cls.from_bundle(Bundle.open(find_bundle(Path(path))), device=device)

    @classmethod
    def from_bundle(cls, bundle: Bundle, *, device: str = "auto") -> "ForcedDecoder":
        """The decoder of an open bundle."""
        model = bundle.load_model().to(find_device(device))
        return cls(model, bundle.load_tokenizer(), bundle.description.search)

    def fits(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> bool:
        """Whether the model reads both texts, given in ids without `</s>`, as a whole.

        Attention over thousands of positions would take gigabytes.
        """
        return max(len(source_ids), len(target_ids)) <= min(self.search.max_pieces, self.model.max_length - 1)

    def can_read(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> bool:
        """Whether these texts, in ids without `</s>`, can be given to the model, even if it usually reads less."""
        return self.find_problem(self.tokenizer.as_source(source_ids), self.tokenizer.as_target(target_ids)) is None

    def find_problem(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> str | None:
        """Why these texts, in ids with `</s>`, cannot be given to the model, even if it usually reads less."""
        for name, ids in (("source", source_ids), ("target", target_ids)):
            if len(ids) > self.model.max_length:
                return (
                    f"the {name} has {len(ids)} tokens, </s> included; this model has learned positions up to "
                    f"{self.model.max_length} (model.max_positions): split the pair or delete it"
                )
            if len(ids) > MAX_TOKENS:
                return (
                    f"the {name} has {len(ids)} tokens, </s> included, but may have at most {MAX_TOKENS}, as attention "
                    "takes memory by their square: split the pair or delete it"
                )
        return None

    @contextmanager
    def make_batches(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], first_line: int = 1
    ) -> Iterator[Iterator[tuple[list[int], Batch]]]:
        """Batches of pairs of similar length, on the model's device, each with the indices of its pairs.

        Within the context there is neither dropout nor gradient; afterwards the model returns to its former mode. Ids
        of both sides end with `</s>`. Errors call the first pair `first_line`.

        Raises:
            UserError: a side is longer than `MAX_TOKENS`, or than the learned positions of the model.
        """
        for line, sides in enumerate(zip(sources, targets, strict=True), start=first_line):
            problem = self.find_problem(*sides)
            if problem is not None:
                raise UserError(f"line {line}: {problem}")
        with evaluation_mode([self.model]), torch.inference_mode():
            yield self._iterate_batches(sources, targets)

    def _iterate_batches(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], Batch]]:
        device = next(self.model.parameters()).device
        max_tokens = min(self.search.batch_tokens, MAX_LOGITS // self.model.config.vocabulary)
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for indices in batch_by_length(lengths, max_tokens):
            ids = [sources[index] for index in indices], [targets[index] for index in indices]
            batch, limits = Batch.from_ids(*ids, self.tokenizer.pad_id), (self.tokenizer.pad_id, self.model.max_length)
            source = pad_to_row_multiple(batch.source_ids, batch.source_mask, *limits)
            target = pad_to_row_multiple(batch.target_ids, batch.target_mask, *limits)
            yield indices, Batch(*source, *target).to(device)


def number_blocks(pairs: Iterable[Pair]) -> Iterator[tuple[int, list[Pair]]]:
    """Blocks of a few thousand pairs, enough to form batches of similar length, with the number of the first line."""
    waiting, line = iter(pairs), 1
    while block := list(islice(waiting, _PAIRS_AT_A_TIME)):
        yield line, block
        line += len(block)


@dataclass(frozen=True)
class PairScore(DescribedFields):
    """The score of a target as the translation of its source."""

    score: float
    """Log-probability divided by the length penalty, as the score of a translation; 0 for a pair of blank texts."""

    log_probability: float
    """Log-probability of all tokens, in nats."""

    tokens: tuple[Token, ...]
    """Tokens of the translation, `</s>` at the end; none for a pair of blank texts, which are not scored."""

    is_long: bool = False
    """Whether the text has more pieces than the model reads at once, so that it would be translated in parts."""

    def as_json(self) -> dict[str, Any]:
        """Score and log-probability, of the target and of every token."""
        return {name: value for name, value in asdict(self).items() if name != "is_long"}


class Perplexity:
    """The perplexity of all pairs added: exp of the mean negative log-probability per token."""

    def __init__(self) -> None:
        self.num_pairs = 0
        self.num_tokens = 0
        self._log_probability = 0.0

    def add(self, score: PairScore) -> None:
        """Add one pair; a pair of blank lines has no token."""
        self.num_pairs += 1
        self.num_tokens += len(score.tokens)
        self._log_probability += score.log_probability

    @property
    def value(self) -> float:
        """The perplexity: at least 1, infinite beyond floating point; 1 without tokens."""
        mean = -self._log_probability / max(1, self.num_tokens)
        return math.exp(mean) if mean < 700 else math.inf


def score_stream(decoder: ForcedDecoder, pairs: Iterable[Pair]) -> Iterator[PairScore]:
    """The score of each pair of a stream, in order, holding only some thousand pairs at a time; see `score_pairs`.

    The pairs before one that is too long are scored.
    """
    for first_line, block in number_blocks(pairs):
        encoded = encode_pairs(decoder.tokenizer, block)
        first = next((place for place, pair in enumerate(encoded) if _find_problem(decoder, pair)), len(encoded))
        yield from score_encoded_pairs(decoder, encoded[:first], first_line)
        if first < len(encoded):
            raise UserError(f"line {first_line + first}: {_find_problem(decoder, encoded[first])}")


def score_pairs(decoder: ForcedDecoder, pairs: Sequence[Pair]) -> list[PairScore]:
    """The score of each pair of source and target text; the score of a pair does not depend on the others.

    If re-tokenising a translation yields the same tokens, its score equals the one reported by the search. A blank
    side is `</s>` alone.

    Raises:
        UserError: a side is longer than `MAX_TOKENS`, or than the learned positions of the model; says which, from 1.
    """
    return score_encoded_pairs(decoder, encode_pairs(decoder.tokenizer, pairs))


EncodedPair = tuple[list[int], list[int]]
"""Source and target text in token ids, without `</s>`; a blank side has none."""


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[EncodedPair]:
    """Each pair in token ids."""
    sources, targets = ([pair[side] if pair[side].strip() else "" for pair in pairs] for side in (0, 1))
    return list(zip(tokenizer.encode_all(sources), tokenizer.encode_targets(targets), strict=True))


def _find_problem(decoder: ForcedDecoder, pair: EncodedPair) -> str | None:
    return decoder.find_problem(decoder.tokenizer.as_source(pair[0]), decoder.tokenizer.as_target(pair[1]))


def score_encoded_pairs(decoder: ForcedDecoder, pairs: Sequence[EncodedPair], first_line: int = 1) -> list[PairScore]:
    """The score of each pair; see `score_pairs`. Errors call the first pair line `first_line`."""
    tokenizer = decoder.tokenizer
    sources = [tokenizer.as_source(source_ids) for source_ids, _ in pairs]
    targets = [tokenizer.as_target(target_ids) for _, target_ids in pairs]
    scores = []
    for pair, hypothesis in zip(pairs, score_ids(decoder, sources, targets, first_line), strict=True):
        if not any(pair):
            scores.append(PairScore(0.0, 0.0, ()))
            continue
        tokens = tuple(map(Token, tokenizer.pieces(hypothesis.ids), hypothesis.token_scores))
        is_long = len(pair[0]) > decoder.search.max_pieces
        scores.append(PairScore(hypothesis.score, math.fsum(hypothesis.token_scores), tokens, is_long))
    return scores


def score_ids(
    decoder: ForcedDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], first_line: int = 1
) -> list[Hypothesis]:
    """Each target as a hypothesis of a search; ids of both sides end with `</s>`. See `score_pairs`."""
    token_scores: list[list[float]] = [[] for _ in sources]
    with decoder.make_batches(sources, targets, first_line) as batches:
        for indices, batch in batches:
            found = _compute_log_probabilities(decoder.model, batch).cpu()
            for index, row in zip(indices, found, strict=True):
                token_scores[index] = row[: len(targets[index])].tolist()
    alpha = decoder.search.length_penalty
    return [Hypothesis.from_tokens(ids, scores, alpha) for ids, scores in zip(targets, token_scores, strict=True)]


def _compute_log_probabilities(model: EncoderDecoder, batch: Batch) -> Float[Tensor, "batch target"]:
    """The log-probability of every target token after those before it; undefined for padding."""
    logits = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    log_probabilities: Tensor = logits.float().log_softmax(dim=-1)
    return log_probabilities.gather(2, batch.target_ids[:, :, None]).squeeze(2)
