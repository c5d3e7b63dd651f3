"""A step function made of tables: random log-probabilities that depend on everything before."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
import torch
from torch import Tensor

END = 1


@dataclass(frozen=True)
class Prefixes:
    """The state: what each row has read so far, so that a wrong reorder leads to wrong log-probabilities."""

    rows: list[tuple[int, ...]]  # the seed of the sentence, the start symbol, the ids

    def reorder(self, index: Tensor) -> Self:
        chosen = index.tolist()
        assert chosen, "a state without rows is never needed"
        assert chosen != list(range(len(self.rows))), "a reorder that changes nothing is wasted"
        return type(self)([self.rows[row] for row in chosen])


@dataclass
class PrefixTable:
    """`round_to` makes many log-probabilities equal; `forbidden` is the share of continuations that are -inf."""

    vocabulary: int
    round_to: float = 0.0
    forbidden: float = 0.0
    spread: float = 2.0
    dtype: torch.dtype = torch.float32
    prefixes_seen: list[list[tuple[int, ...]]] = field(default_factory=list)
    known: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def start(self, seeds: list[int]) -> Prefixes:
        self.prefixes_seen = []
        return Prefixes([(seed,) for seed in seeds])

    @property
    def rows_seen(self) -> list[int]:
        return [len(rows) for rows in self.prefixes_seen]

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
        assert len(last_ids) == len(state.rows)
        assert all(0 <= last <= self.vocabulary for last in last_ids.tolist())
        rows = [(*row, last) for row, last in zip(state.rows, last_ids.tolist(), strict=True)]
        self.prefixes_seen.append(rows)
        return torch.stack([self.log_probs(row) for row in rows]), Prefixes(rows)

    def run(self, search: Callable[..., Any], seeds: list[int], lengths: list[int], **settings: Any) -> Any:
        start_id = self.vocabulary  # no token, as the start symbol is none
        max_lengths = torch.tensor(lengths, dtype=torch.int64)
        return search(self.step, self.start(seeds), start_id=start_id, end_id=END, max_lengths=max_lengths, **settings)

    def forced(self, seed: int, ids: list[int], limit: int) -> list[float]:
        """The log-probabilities of `ids`; of ids that the search may not choose, none."""
        assert ids[-1] == END
        assert END not in ids[:-1]
        assert len(ids) <= limit
        return [self.log_probs((seed, self.vocabulary, *ids[:place]))[token].item() for place, token in enumerate(ids)]


@pytest.fixture
def prefix_table() -> type[PrefixTable]:
    return PrefixTable
