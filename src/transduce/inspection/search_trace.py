"""The beam search of one sentence with everything that it looks at written down."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from transduce.search.constraints import Automaton
from transduce.search.interface import read_back
from transduce.search.sentence import Candidate, LiveHypothesis, SentenceSearch


@dataclass(frozen=True)
class TracedToken:
    """A continuation that was looked at; `parent` is the number of the one it continues, None at the beginning."""

    parent: int | None
    step: int
    token: int
    log_probability: float
    sum: float
    state: Literal["kept", "pruned", "finished"] = "pruned"


class TracedSearch(SentenceSearch):
    """A `SentenceSearch` that keeps every continuation it is given; what it decides, the search itself decides.

    Its `num_best` is its beam: it goes on until nothing can change any of its best `beam` hypotheses.
    """

    def __init__(self, limit: int, *, end_id: int, beam: int, alpha: float, automaton: Automaton | None = None) -> None:
        super().__init__(limit, end_id=end_id, beam=beam, alpha=alpha, num_best=beam, automaton=automaton)
        self.traced: list[TracedToken] = []
        self._of_live: list[int | None] = [None]

    def advance(self, scores: list[float], parents: list[int], ids: list[int]) -> None:
        """See `SentenceSearch`."""
        before = self.live
        super().advance(scores, parents, ids)
        self._record(before, zip(scores, parents, ids, strict=True))

    def take_up(self, candidates: Iterable[Candidate], first_of_bank: frozenset[int] | None = None) -> None:
        """See `SentenceSearch`."""
        before, given = self.live, list(candidates)
        super().take_up(given, first_of_bank)
        self._record(before, ((one.score, one.parent, one.id) for one in given))

    def _record(self, before: Sequence[LiveHypothesis], continuations: Iterable[tuple[float, int, int]]) -> None:
        """Writes down what was looked at, and what became of it."""
        numbers: dict[tuple[int, int], int] = {}
        for score, place, token in continuations:
            # What only fills up the beam has the sum -inf.
            if score > -inf and (not before or before[place].sum > -inf):
                parent = self._of_live[place]
                total = score + (0.0 if parent is None else self.traced[parent].sum)
                numbers[place, token] = len(self.traced)
                self.traced.append(TracedToken(parent, self.length, token, score, total))
        finished = {tuple(hypothesis.ids) for hypothesis in self.finished}
        for (place, token), number in numbers.items():
            if token == self._end_id and (*read_back(before[place].last if before else None)[0], token) in finished:
                self.traced[number] = replace(self.traced[number], state="finished")
        self._of_live = [
            numbers[live.parent, live.last.id] if live.last is not None and live.sum > -inf else None
            for live in self.live
        ]
        for kept in self._of_live:
            if kept is not None:
                self.traced[kept] = replace(self.traced[kept], state="kept")

    def path(self, ids: Sequence[int]) -> list[int | None]:
        """For each token of a hypothesis its number in the trace; None from where it was not looked at."""
        numbers = {(one.parent, one.token): number for number, one in enumerate(self.traced)}
        found: list[int | None] = []
        for token in ids:
            known = not found or found[-1] is not None
            found.append(numbers.get((found[-1] if found else None, token)) if known else None)
        return found
