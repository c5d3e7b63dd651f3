"""A step function made of tables: random log-probabilities that depend on everything before."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
import torch
from torch import Tensor

from transduce.search import SearchTask

END = 1


@dataclass(frozen=True)
class Prefixes:
    """The state: what each hypothesis has read so far, so that a wrong parent leads to wrong log-probabilities."""

    sentences: list[list[tuple[int, ...]]]  # the seed of the sentence, the start symbol, the ids

    def select(self, sentences: Tensor | None, parents: Tensor) -> Self:
        assert len(parents), "a state without sentences is never needed"
        if sentences is None:
            kept = self.sentences
            same = torch.arange(len(kept[0])).expand(len(kept), -1)
            assert not torch.equal(parents, same), "a selection that changes nothing is wasted"
        else:
            assert sentences.tolist() != list(range(len(self.sentences))), "nobody comes or goes"
            kept = [self.sentences[place] for place in sentences.tolist()]
        return type(self)([[rows[row] for row in chosen] for rows, chosen in zip(kept, parents.tolist(), strict=True)])


@dataclass
class PrefixTable:
    """`round_to` makes many log-probabilities equal; `forbidden` is the share of continuations that are -inf."""

    vocabulary: int
    round_to: float = 0.0
    forbidden: float = 0.0
    spread: float = 2.0
    dtype: torch.dtype = torch.float32
    prefixes_seen: list[list[list[tuple[int, ...]]]] = field(default_factory=list)  # in each step
    known: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def start(self, seeds: list[int]) -> Prefixes:
        self.prefixes_seen = []
        return Prefixes([[(seed,)] for seed in seeds])

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        if prefix not in self.known:
            generator = torch.Generator().manual_seed(zlib.crc32(repr(prefix).encode()))
            logits = torch.randn(self.vocabulary, generator=generator) * self.spread
            logits[torch.rand(self.vocabulary, generator=generator) < self.forbidden] = -torch.inf
            scores = logits.log_softmax(0) if (logits > -torch.inf).any() else logits
            if self.round_to:
                scores = (scores / self.round_to).round() * self.round_to
            self.known[prefix] = scores.to(self.dtype)
        return self.known[prefix]

    def step(self, last_ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        assert last_ids.shape == (len(state.sentences), len(state.sentences[0]))
        assert all(0 <= last <= self.vocabulary for last in last_ids.flatten().tolist())
        grown = [
            [(*row, last) for row, last in zip(rows, lasts, strict=True)]
            for rows, lasts in zip(state.sentences, last_ids.tolist(), strict=True)
        ]
        self.prefixes_seen.append(grown)
        return torch.stack([torch.stack([self.log_probs(row) for row in rows]) for rows in grown]), Prefixes(grown)

    def run(self, search: Callable[..., Any], seeds: list[int], lengths: list[int], **settings: Any) -> Any:
        start_id = self.vocabulary  # no token, as the start symbol is none
        of_task = {name: settings.pop(name) for name in ("min_length", "constraints") if name in settings}
        task = SearchTask(start_id, END, lengths, **of_task)
        return search(self.step, self.start(seeds), task, **settings)

    def forced(self, seed: int, ids: list[int], limit: int) -> list[float]:
        """The log-probabilities of `ids`; of ids that the search may not choose, none."""
        assert ids[-1] == END
        assert END not in ids[:-1]
        assert len(ids) <= limit
        return [self.log_probs((seed, self.vocabulary, *ids[:place]))[token].item() for place, token in enumerate(ids)]


@pytest.fixture
def prefix_table() -> type[PrefixTable]:
    return PrefixTable
