"""The beam search of one sentence: hypotheses that go on, and hypotheses that are finished."""

from collections.abc import Iterable
from math import inf, isnan
from operator import attrgetter
from typing import NamedTuple

from transduce.errors import TransduceError
from transduce.search.constraints import Automaton, Progress
from transduce.search.interface import Hypothesis, Token, length_penalty, read_back

_NOTHING = Progress(0, (), ())


class LiveHypothesis(NamedTuple):
    """A hypothesis that goes on; one with the sum -inf only fills the beam.

    `parent` is its place among the hypotheses of the step before, `sum` its rank, `progress` that of its constraints.
    """

    sum: float
    parent: int
    last: Token | None
    progress: Progress = _NOTHING


_FIRST = LiveHypothesis(0.0, 0, None)
_NOT_NUMBERS = "the model's probabilities are not numbers (NaN): its weights are damaged, or diverged"
_by_sum = attrgetter("sum")


class Candidate(NamedTuple):
    """A continuation that may be kept: `rank` orders candidates, `score` is its true log-probability."""

    rank: float
    sum: float
    score: float
    parent: int
    id: int


class SentenceSearch:
    """The hypotheses of one sentence that go on, and those that are finished, both best first.

    The search ends by one of two conditions. The first defines the search: `beam` hypotheses are finished, though
    others might become better. The second only saves time: a bound on the scores of those that go on proves that none
    can change the best `num_best` that the first condition, or the limit, would leave.
    """

    def __init__(
        self, limit: int, *, end_id: int, beam: int, alpha: float, num_best: int, automaton: Automaton | None = None
    ) -> None:
        self.is_done = False
        self.finished: list[Hypothesis] = []
        self.live: list[LiveHypothesis] = []
        self.length = 0  # tokens of those that go on
        self.automaton = automaton
        self._limit, self._end_id, self._beam, self._alpha, self._num_best = limit, end_id, beam, alpha, num_best
        self._greatest_penalty = length_penalty(limit, alpha)
        self._filler = LiveHypothesis(-inf, 0, Token(end_id, -inf, None))  # needs a valid id

    @property
    def is_at_limit(self) -> bool:
        """Whether the next token has to be the end."""
        return self.length + 1 == self._limit

    def relative_sums(self) -> list[float]:
        """The sum of each hypothesis minus the best: enough for ranking, and small enough for float32."""
        best = self.live[0].sum if self.live else -inf
        if best == -inf:
            return [0.0] * max(1, len(self.live))
        return [live.sum - best for live in self.live]

    def last_ids(self) -> list[int]:
        """The last id of each hypothesis that goes on."""
        return [self._end_id if live.last is None else live.last.id for live in self.live]

    def advance(self, scores: list[float], parents: list[int], ids: list[int]) -> None:
        """Finish or keep the best 2 * beam continuations, given best first.

        Raises:
            TransduceError: a log-probability is NaN.
        """
        self.length += 1
        before, live, beam = self.live or [_FIRST], list[LiveHypothesis](), self._beam
        if isnan(scores[0]):  # NaN is above all numbers
            raise TransduceError(_NOT_NUMBERS)
        for rank, (score, parent, token) in enumerate(zip(scores, parents, ids, strict=True)):
            so_far, _, last, _ = before[parent]
            total = so_far + score
            if total == -inf:
                break
            if token != self._end_id:
                live.append(LiveHypothesis(total, parent, Token(token, score, last)))
                if len(live) == beam:
                    break
            elif rank < beam:
                self._finish(Token(token, score, last))
        self.live = live
        self._finish_step(before)

    def take_up(self, candidates: Iterable[Candidate], first_of_bank: frozenset[int] | None = None) -> None:
        """Finish or keep candidates, given in the order in which they are taken.

        Those that end are finished if they are among the first `beam`, or if their places are in `first_of_bank`.
        """
        self.length += 1
        before, self.live = self.live or [_FIRST], []
        for place, candidate in enumerate(candidates):
            if isnan(candidate.score):
                raise TransduceError(_NOT_NUMBERS)
            if candidate.sum == -inf:
                continue
            token = Token(candidate.id, candidate.score, before[candidate.parent].last)
            if candidate.id == self._end_id:
                if place < self._beam if first_of_bank is None else place in first_of_bank:
                    self._finish(token)
            elif len(self.live) < self._beam:
                self.live.append(
                    LiveHypothesis(candidate.sum, candidate.parent, token, self._advance_progress(before, candidate))
                )
        self._finish_step(before)

    def _finish_step(self, before: list[LiveHypothesis]) -> None:
        if not self.live and not self.finished:  # every way is forbidden
            self._finish(Token(self._end_id, -inf, before[0].last))
        self.live.sort(key=_by_sum, reverse=True)  # the device ranked sums in float32
        self.is_done = self._is_finished()
        if len(self.live) < self._beam:
            self.live += [self._filler] * (self._beam - len(self.live))

    def _advance_progress(self, before: list[LiveHypothesis], candidate: Candidate) -> Progress:
        if self.automaton is None:
            return _NOTHING
        return self.automaton.advance(self.progress(before[candidate.parent]), candidate.id)

    def progress(self, live: LiveHypothesis) -> Progress:
        """The progress of a hypothesis with its constraints."""
        if live.last is None and self.automaton is not None:
            return self.automaton.start()
        return live.progress

    def _finish(self, last: Token) -> None:
        self.finished.append(Hypothesis.from_tokens(*read_back(last), self._alpha))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)

    def _is_finished(self) -> bool:
        """Whether `beam` hypotheses are finished, or none that goes on can change the result.

        For the second: log-probabilities are at most 0, so no continuation scores more than the sum so far over the
        largest penalty; a sum with penalised repetitions says nothing about the score.
        """
        if not self.live or len(self.finished) >= self._beam:
            return True
        if len(self.finished) < self._num_best:
            return False
        if self.automaton is not None and self.automaton.logits_processor.repetition_penalty != 1.0:
            return False
        bound = self.live[0].sum / self._greatest_penalty
        return self.finished[self._num_best - 1].score >= bound
