"""What a model and another program make of the same sentences, measured side by side."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from transduce.config import SearchConfig
from transduce.errors import ParityError
from transduce.interop.runtime import Runtime
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, NativeEngine, score_ids

Ids = list[list[int]]
Scores = list[list[float]]

_SEED = 1  # of the tokens that stand in for others: the same in every proof


@dataclass(frozen=True)
class Measurement:
    """Rows of ids end with `</s>`; scores are natural log-probabilities of tokens.

    Args:
        sources: ids of the texts.
        greedy: the model's own greedy translations.
        their_greedy: those of the other program.
        scores: by the model, of every token of its greedy translations and then of these with some tokens changed.
        their_scores: of the same tokens by the other program.
        targets: the translations that were scored, in this order.
        gaps: where greedy translations differ, by number of the sentence: how much less probable than its own the
            model finds the first token that is another, in nats.
    """

    sources: Ids
    greedy: Ids
    their_greedy: Ids
    targets: Ids
    scores: Scores
    their_scores: Scores
    gaps: dict[int, float]

    @cached_property
    def differences(self) -> Scores:
        """Between the two log-probabilities of each token."""
        rows = zip(self.scores, self.their_scores, strict=True)
        return [[abs(one - other) for one, other in zip(ours, theirs, strict=True)] for ours, theirs in rows]

    @property
    def num_tokens(self) -> int:
        """How many log-probabilities were compared."""
        return sum(map(len, self.differences))

    @property
    def mean(self) -> float:
        """Of all differences."""
        return math.fsum(map(math.fsum, self.differences)) / self.num_tokens

    def worst(self) -> tuple[int, int]:
        """Row and place of the largest difference."""
        row = max(range(len(self.differences)), key=lambda row: max(self.differences[row]))
        return row, max(range(len(self.differences[row])), key=self.differences[row].__getitem__)


def measure(decoder: ForcedDecoder, runtime: Runtime, texts: Sequence[str]) -> Measurement:
    """Greedy search and forced decoding by both, the model itself in float32 and on one thread.

    Raises:
        ParityError: the other program gives another number of scores than there are tokens, or one that is no number.
    """
    tokenizer, model = decoder.tokenizer, decoder.model
    sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(texts)]
    limits = [min(len(source) + decoder.search.max_extra_length, model.longest) for source in sources]
    with _one_thread():
        greedy = _greedy(decoder, sources)
        # Where there is no more room, we end a translation, and others break it off.
        their_greedy = [
            row if len(row) < limit else [*row[: limit - 1], tokenizer.end_id]
            for row, limit in zip(runtime.greedy(sources, limits), limits, strict=True)
        ]
        targets = [*greedy, *_changed(greedy, tokenizer)]
        scores = _scores(decoder, [*sources, *sources], targets)
        their_scores = runtime.forced_scores([*sources, *sources], targets)
        gaps = {}
        for index, (ours, theirs) in enumerate(zip(greedy, their_greedy, strict=True)):
            if ours != theirs:
                gaps[index] = _gap(decoder, sources[index], ours, theirs)
    for row, (target, found) in enumerate(zip(targets, their_scores, strict=True)):
        if len(found) != len(target) or not all(map(math.isfinite, found)):
            raise ParityError(
                f"{runtime.name} gives {found} as the log-probabilities of the {len(target)} tokens "
                f"{tokenizer.pieces(target)}, a translation of {texts[row % len(texts)]!r}"
            )
    return Measurement(sources, greedy, their_greedy, targets, scores, their_scores, gaps)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within, PyTorch computes on one thread: with several, it adds up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _greedy(decoder: ForcedDecoder, sources: Ids) -> Ids:
    engine = NativeEngine(decoder.model, decoder.tokenizer.end_id, "float32")
    lengths = {name: getattr(decoder.search, name) for name in ("max_extra_length", "batch_tokens")}
    return [best.ids for (best,) in engine.search(sources, SearchConfig(beam=1, **lengths))]


def _scores(decoder: ForcedDecoder, sources: Ids, targets: Ids) -> Scores:
    return [found.token_scores for found in score_ids(decoder, sources, targets)]


def _changed(targets: Ids, tokenizer: Tokenizer) -> Ids:
    """The same, but about every third token is any other that a target can have."""
    chance = np.random.default_rng(_SEED)
    spelled = tokenizer.encode_targets(tokenizer.pieces(range(2, tokenizer.pad_id)))
    others = sorted({index for row in spelled for index in row})
    return [
        [*(int(chance.choice(others)) if chance.random() < 1 / 3 else index for index in target[:-1]), target[-1]]
        for target in targets
    ]


def _gap(decoder: ForcedDecoder, source: list[int], ours: list[int], theirs: list[int]) -> float:
    """How much more probable the model finds its own token where two translations part; inf if one just breaks off."""
    num_same = next((place for place, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), None)
    if num_same is None:
        return math.inf
    rows = [ours[: num_same + 1], theirs[: num_same + 1]]
    own, other = (row[-1] for row in _scores(decoder, [source, source], rows))
    return own - other
