"""Beam search of one sentence: which hypotheses go on, and which are finished. It loads no torch."""

from collections.abc import Iterable
from math import inf, isnan
from operator import attrgetter
from typing import NamedTuple

from transduce.errors import ConfigError, NotANumberError
from transduce.search.constraints import Automaton, ConstraintState
from transduce.search.interface import Hypothesis, Token, backtrack, length_penalty

_NOTHING = ConstraintState(0, (), ())


class LiveHypothesis(NamedTuple):
    """A hypothesis that is not finished; one with the sum -inf is padding that fills the beam.

    `sum` is the log-probability by which hypotheses are ranked, `parent` the index of the hypothesis of the previous
    step that this one continues, and `progress` the state of its constraints.
    """

    sum: float
    parent: int
    last: Token | None
    progress: ConstraintState = _NOTHING


_by_sum = attrgetter("sum")


class Candidate(NamedTuple):
    """A continuation that may be kept.

    `sum` is the log-probability of the hypothesis by which candidates are ranked; `score` is the true log-probability
    of the token.
    """

    sum: float
    score: float
    parent: int
    id: int


Continuation = tuple[float, float, int, int]
"""The fields of a `Candidate`: making a named tuple takes longer than what is done with it."""


class SentenceSearch:
    """Live and finished hypotheses of one sentence, both best first.

    The search stops when (1) `beam` hypotheses are finished, even if live ones might become better, or when (2) no live
    hypothesis can enter the best `num_best`, by an upper bound on its score. (2) saves time and never changes the
    result.
    """

    def __init__(
        self, limit: int, *, end_id: int, beam: int, alpha: float, num_best: int, automaton: Automaton | None = None
    ) -> None:
        self.is_done = False
        self.finished: list[Hypothesis] = []
        self.live = [LiveHypothesis(0.0, 0, None, _NOTHING if automaton is None else automaton.start())]
        self.length = 0  # tokens of each live hypothesis
        self.automaton = automaton
        self._limit, self._end_id, self._beam, self._alpha, self._num_best = limit, end_id, beam, alpha, num_best
        self._greatest_penalty = length_penalty(limit, alpha)
        self._filler = LiveHypothesis(-inf, 0, Token(end_id, -inf, None))  # needs a valid id

    @property
    def is_at_limit(self) -> bool:
        """Whether the next token must be the end symbol, because the maximum length is reached."""
        return self.length + 1 == self._limit

    def compute_relative_scores(self) -> list[float]:
        """The sum of each hypothesis minus the best: enough for ranking, and small enough for float32."""
        best = self.live[0].sum
        if best == -inf:
            return [0.0] * len(self.live)
        return [live.sum - best for live in self.live]

    def last_ids(self) -> list[int]:
        """The last id of each live hypothesis."""
        return [self._end_id if live.last is None else live.last.id for live in self.live]

    def advance_by_best(self, scores: list[float], parents: list[int], ids: list[int]) -> None:
        """Finish or keep the best 2 * beam continuations of all hypotheses, given best first; see `advance`."""
        before = [live.sum for live in self.live]
        self.advance(
            (before[parent] + score, score, parent, token)
            for score, parent, token in zip(scores, parents, ids, strict=True)
        )

    def advance(self, candidates: Iterable[Continuation], finishing: frozenset[int] | None = None) -> None:
        """Finish or keep candidates, given best first, as `Candidate` or as plain tuples.

        A candidate that ends with the end symbol is finished if it is among the first `beam`, or, if `finishing` is
        given, if its index is in `finishing`. Of the others, the first `beam` become the live hypotheses.

        Raises:
            NotANumberError: a log-probability is NaN.
        """
        self.length += 1
        before, live = self.live, list[LiveHypothesis]()
        beam, end_id, automaton = self._beam, self._end_id, self.automaton  # this loop is what Python does all the time
        for place, (total, score, parent, token) in enumerate(candidates):
            if isnan(score):
                raise NotANumberError
            if total == -inf:
                continue
            _, _, last, progress = before[parent]
            if token == end_id:
                if place < beam if finishing is None else place in finishing:
                    self._finish(Token(token, score, last))
            elif len(live) < beam:
                if automaton is not None:
                    progress = automaton.advance(progress, token)
                live.append(LiveHypothesis(total, parent, Token(token, score, last), progress))
            elif finishing is None:  # what follows is beyond the first `beam`
                break
        if not live and not self.finished:  # every way is forbidden
            self._finish(Token(end_id, -inf, before[0].last))
        live.sort(key=_by_sum, reverse=True)  # the device ranked sums in float32
        self.live = live
        self.is_done = self._is_finished()
        self.live += [self._filler] * (beam - len(live))

    def _finish(self, last: Token) -> None:
        self.finished.append(Hypothesis.from_tokens(*backtrack(last), self._alpha))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)

    def _is_finished(self) -> bool:
        """Whether `beam` hypotheses are finished, or no live one can change the result.

        Log-probabilities are at most 0, so the score of a continuation is at most the sum so far divided by the largest
        length penalty. With a repetition penalty, sums are not log-probabilities, and there is no such bound.
        """
        if not self.live or len(self.finished) >= self._beam:
            return True
        if len(self.finished) < self._num_best:
            return False
        if self.automaton is not None and self.automaton.logits_processor.repetition_penalty != 1.0:
            return False
        bound = self.live[0].sum / self._greatest_penalty
        return self.finished[self._num_best - 1].score >= bound


def check_settings(beam: int, num_best: int, alpha: float) -> None:
    """Check the settings of a beam search.

    Raises:
        ConfigError: `beam` or `num_best` is below 1, or `alpha` is negative.
    """
    if beam < 1:
        raise ConfigError(f"beam = {beam} must be at least 1 (1 is greedy search)")
    if num_best < 1:
        raise ConfigError(f"num_best = {num_best} must be at least 1")
    if alpha < 0:
        raise ConfigError(f"alpha = {alpha} must not be negative: 0 is no length penalty, the paper uses 0.6")
