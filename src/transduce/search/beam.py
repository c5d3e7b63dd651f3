"""Beam search with a length penalty (paper section 6.1; Wu et al. 2016, section 7)."""

from bisect import insort

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.errors import ConfigError
from transduce.search.continuations import Continuations, best_continuations
from transduce.search.history import History
from transduce.search.hypothesis import Hypothesis, length_penalty
from transduce.search.limit import allow_only_end, check_numbers, read_limits
from transduce.search.step import StateT, StepFunction


@torch.no_grad()
def beam_search(
    step: StepFunction[StateT],
    state: StateT,
    *,
    start_id: int,
    end_id: int,
    max_lengths: Int[Tensor, "batch"],
    beam: int,
    alpha: float,
    num_best: int = 1,
) -> list[list[Hypothesis]]:
    """Up to `num_best` hypotheses for each sentence, best first; fewer only where the search finds no more.

    In each step the best 2 * `beam` continuations of a sentence are looked at: those among the first `beam` that end
    are finished, and the best `beam` that do not end go on. A sentence is done when `beam` hypotheses are finished, or
    when none that goes on can come among its best `num_best` any more. With a beam of 1 this is greedy search.

    `state` has one row for each sentence, and from the second step on up to `beam` rows for each one that is not done.
    Everything runs on the device of `max_lengths`, in which the end symbol counts. A sentence in which every way is
    forbidden gets one hypothesis, whose last log-probability is -inf.

    Raises:
        ConfigError: a maximum length or `beam` is below 1, `num_best` is not from 1 to `beam`, or `alpha` is negative.
    """
    _check(beam, num_best, alpha)
    device = max_lengths.device
    beams = _Beams(read_limits(max_lengths), end_id=end_id, beam=beam, alpha=alpha, num_best=num_best)
    last_ids = torch.full_like(max_lengths, start_id, dtype=torch.int64)
    while beams.sentences:
        log_probs, state = step(last_ids, state)
        log_probs = allow_only_end(log_probs, beams.rows_at_limit(), end_id)
        found = best_continuations(log_probs, beams.relative_sums().to(device), 2 * beam).to_host()
        check_numbers(found.scores)
        rows, ids = beams.advance(found)
        if len(rows) and not torch.equal(rows, torch.arange(len(last_ids))):
            state = state.reorder(rows.to(device))
        last_ids = ids.to(device)
    return beams.best()


def _check(beam: int, num_best: int, alpha: float) -> None:
    if beam < 1:
        raise ConfigError(f"beam = {beam} must be at least 1 (1 is greedy search)")
    if not 1 <= num_best <= beam:
        raise ConfigError(f"num_best = {num_best} must be from 1 to beam = {beam}: ask for fewer or widen the beam")
    if alpha < 0:
        raise ConfigError(f"alpha = {alpha} must not be negative: 0 is no length penalty, the paper uses 0.6")


class _Beams:
    """The hypotheses of a batch, on the host: those that go on and those that are finished.

    Each sentence that is not done has the same number of rows, its hypotheses, best first; a row with the sum -inf
    holds none and only fills up.
    """

    def __init__(self, limits: list[int], *, end_id: int, beam: int, alpha: float, num_best: int) -> None:
        self.sentences = list(range(len(limits)))  # those that are not done, as places in the batch
        self._sums = torch.zeros(len(limits), 1, dtype=torch.float64)  # of log-probabilities, for each row
        self._history = History()
        self._finished: list[list[Hypothesis]] = [[] for _ in limits]  # best first
        self._limits = limits
        self._end_id, self._beam, self._alpha, self._num_best = end_id, beam, alpha, num_best

    def rows_at_limit(self) -> list[int]:
        """The rows that have to end now."""
        length, width = len(self._history) + 1, self._sums.shape[1]
        return [
            place * width + row
            for place, sentence in enumerate(self.sentences)
            if self._limits[sentence] == length
            for row in range(width)
        ]

    def relative_sums(self) -> Float[Tensor, "sentences width"]:
        """What each row lacks to its sentence's best: all that ranking needs, and small enough for float32."""
        return (self._sums - self._sums[:, :1]).float()

    def advance(self, found: Continuations) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows"]]:
        """Finishes what ends and takes up what goes on: the row that each new row continues, and its last id."""
        sums = self._sums.flatten()[found.rows] + found.scores
        ends = found.ids == self._end_id
        ended = ends & (sums > -torch.inf)
        sums, order = sums.masked_fill(ends, -torch.inf).sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : self._beam], order[:, : self._beam]
        best_sums = sums[:, 0].tolist()
        self._finish(found, ended, best_sums)

        places = [place for place, best_sum in enumerate(best_sums) if not self._is_done(place, best_sum)]
        self.sentences, self._sums = [self.sentences[place] for place in places], sums[places]
        scores, rows, ids = (part.gather(1, order)[places].flatten() for part in found)
        ids = ids.masked_fill(self._sums.flatten() == -torch.inf, self._end_id)  # a row that fills up needs a valid id
        self._history.append(rows.tolist(), ids.tolist(), scores.tolist())
        return rows, ids

    def best(self) -> list[list[Hypothesis]]:
        """The best finished hypotheses of each sentence."""
        return [finished[: self._num_best] for finished in self._finished]

    def _finish(self, found: Continuations, ended: Bool[Tensor, "sentences count"], best_sums: list[float]) -> None:
        for place, rank in ended[:, : self._beam].nonzero().tolist():
            self._end(place, int(found.rows[place, rank]), float(found.scores[place, rank]))
        for place, best_sum in enumerate(best_sums):
            if best_sum == -torch.inf and not self._finished[self.sentences[place]]:  # every way is forbidden
                self._end(place, place * self._sums.shape[1], -torch.inf)

    def _end(self, place: int, row: int, end_score: float) -> None:
        hypothesis = self._history.end(row, self._end_id, end_score, self._alpha)
        insort(self._finished[self.sentences[place]], hypothesis, key=lambda finished: -finished.score)

    def _is_done(self, place: int, best_sum: float) -> bool:
        """Whether nothing that goes on can change the result.

        Log-probabilities are at most 0, so no continuation scores more than the sum so far over the largest penalty.
        """
        sentence = self.sentences[place]
        finished, bound = self._finished[sentence], best_sum / length_penalty(self._limits[sentence], self._alpha)
        return (
            best_sum == -torch.inf
            or len(finished) >= self._beam
            or (len(finished) >= self._num_best and finished[self._num_best - 1].score >= bound)
        )
