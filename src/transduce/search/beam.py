"""Beam search with a length penalty (paper section 6.1; Wu et al. 2016, section 7), of a sentence and of a batch."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import inf, isnan
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.errors import NotANumberError
from transduce.kernels.token_selection import find_best_continuations
from transduce.search.constraints import Automaton, ConstraintProgress, LogitsProcessor
from transduce.search.hypothesis import Hypothesis, LinkedToken, backtrack, length_penalty
from transduce.search.task import Constraints, SearchTask, check_settings, compact_batch

_SelfT = TypeVar("_SelfT")  # used instead of Self, which cannot be checked at run time in a single method

_NOTHING = ConstraintProgress(0, (), ())


@runtime_checkable
class SearchState(Protocol):
    """The state of a step function for each sentence and each of its hypotheses, for instance a key-value cache."""

    def select(  # noqa: PYI019 - see above
        self: _SelfT, sentences: Int[Tensor, "kept"] | None, parents: Int[Tensor, "kept width"]
    ) -> _SelfT:
        """The state whose sentence i is sentence `sentences[i]` of this one (None: all of them, as they are).

        Sentences may be left out or repeated. Hypothesis j of sentence i continues hypothesis `parents[i, j]` of that
        sentence. The returned state replaces this one, which must not be used afterwards.
        """
        ...


StateT = TypeVar("StateT", bound=SearchState)

LastIds = Int[Tensor, "sentences width"]
LogProbs = Float[Tensor, "sentences width vocabulary"]


@runtime_checkable
class StepFunction(Protocol[StateT]):
    """One step of decoding: from the last id of each hypothesis and the state to the next log-probabilities."""

    def __call__(self, last_ids: LastIds, state: StateT) -> tuple[LogProbs, StateT]:
        """Log-probabilities of the next id (-inf: forbidden), and the state that includes `last_ids`.

        The search may write into the log-probabilities.
        """
        ...


class LiveHypothesis(NamedTuple):
    """A hypothesis that is not finished; one with the sum -inf is padding that fills the beam.

    `sum` is the log-probability by which hypotheses are ranked, `parent` the index of the hypothesis of the previous
    step that this one continues, and `progress` how far it has satisfied the constraints.
    """

    sum: float
    parent: int
    last: LinkedToken | None
    progress: ConstraintProgress = _NOTHING


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


CandidateFields = tuple[float, float, int, int]
"""The fields of a `Candidate`: creating a named tuple takes longer than its use."""


class SentenceSearch:
    """Live and finished hypotheses of one sentence, both best first.

    The search stops when (1) `beam` hypotheses are finished, and no live one would have a better score than those of
    the best `num_best` if it ended here; or when (2) no live hypothesis can enter the best `num_best`, by an upper
    bound on its score. (2) saves time and never changes the result.
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
        self._filler = LiveHypothesis(-inf, 0, LinkedToken(end_id, -inf, None))  # needs a valid id

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

    def advance(self, candidates: Iterable[CandidateFields], finishing: frozenset[int] | None = None) -> None:
        """Finish or keep candidates, given best first, as `Candidate` or as plain tuples.

        A candidate that ends with the end symbol is finished if it is among the first `beam`, or, if `finishing` is
        given, if its index is in `finishing`. Of the others, the first `beam` become the live hypotheses.

        Raises:
            NotANumberError: a log-probability is NaN.
        """
        self.length += 1
        before, live = self.live, list[LiveHypothesis]()
        beam, end_id, automaton = self._beam, self._end_id, self.automaton  # the hot loop
        for index, (total, score, parent, token) in enumerate(candidates):
            if isnan(score):
                raise NotANumberError
            if total == -inf:
                continue
            _, _, last, progress = before[parent]
            if token == end_id:
                if index < beam if finishing is None else index in finishing:
                    self._finish(LinkedToken(token, score, last))
            elif len(live) < beam:
                if automaton is not None:
                    progress = automaton.advance(progress, token)
                live.append(LiveHypothesis(total, parent, LinkedToken(token, score, last), progress))
            elif finishing is None:  # further candidates are beyond the first `beam`
                break
        if not live and not self.finished:  # every continuation is forbidden
            self._finish(LinkedToken(end_id, -inf, before[0].last))
        live.sort(key=_by_sum, reverse=True)  # the device ranked sums in float32
        self.live = live
        self.is_done = self._is_finished()
        self.live += [self._filler] * (beam - len(live))

    def _finish(self, last: LinkedToken) -> None:
        self.finished.append(Hypothesis.from_tokens(*backtrack(last), self._alpha))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[2 * self._beam :]

    def _is_finished(self) -> bool:
        """Whether `beam` hypotheses are finished and none that is live is ahead of them, or none can change the result.

        A nearly certain model has one good hypothesis and several bad ones that end early; the search therefore goes on
        until the good one has ended.

        Log-probabilities are at most 0, so the score of a continuation is at most the sum so far divided by the largest
        length penalty. With a repetition penalty, sums are not log-probabilities, and cannot be compared with scores.
        """
        if not self.live:
            return True
        has_scores = self.automaton is None or self.automaton.logits_processor.repetition_penalty == 1.0
        if len(self.finished) >= self._beam:
            worst = self.finished[min(self._num_best, self._beam) - 1].score
            return not has_scores or worst >= self.live[0].sum / length_penalty(self.length, self._alpha)
        if len(self.finished) < self._num_best or not has_scores:
            return False
        bound = self.live[0].sum / self._greatest_penalty
        return self.finished[self._num_best - 1].score >= bound


@torch.no_grad()
def beam_search(
    step: StepFunction[StateT],
    state: StateT,
    task: SearchTask,
    *,
    beam: int,
    alpha: float,
    num_best: int = 1,
    logits_processor: LogitsProcessor | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Up to `num_best` hypotheses for each sentence, best first; fewer only if the search finds no more.

    `num_best` may exceed `beam`: the search keeps up to 2 * `beam` finished hypotheses.

    Each step considers the best 2 * `beam` continuations of a sentence: those among the first `beam` that end with the
    end symbol are finished, and the best `beam` of the others are continued. A sentence is done when `beam` hypotheses
    are finished and no live one has a better score so far than the best `num_best` of them, or when no live one can
    enter its best `num_best`. With a beam of 1 this is greedy search.

    If every continuation of a sentence is forbidden, it gets one hypothesis, whose last log-probability is -inf.

    With constraints, or a `logits_processor` that does more than forbid repeated n-grams, candidates are the best
    continuations of every hypothesis and those that continue a required phrase. The beam is divided among groups of
    hypotheses with equally many required tokens (Post & Vilar 2018). Without these,
    `kernels.native.decoding.run_beam_search` returns the same hypotheses for a compiled network.

    Args:
        step: computes the log-probabilities of the next tokens.
        state: the state of `step` before the first token, with one hypothesis for each sentence; from the second step
            on, states have `beam` hypotheses.
        task: the sentences, and what is asked of their hypotheses.
        beam: hypotheses of each sentence that are continued.
        alpha: exponent of the length penalty, see `length_penalty`.
        num_best: maximum number of hypotheses that are returned for each sentence.
        logits_processor: changes log-probabilities before hypotheses are ranked. Default: no change.
        device: device of the tensors that `step` is given.

    Raises:
        ConfigError: `beam` or `num_best` is below 1, or `alpha` is negative.
        NotANumberError: a log-probability is NaN.
    """
    check_settings(beam, num_best, alpha)
    searches = [
        SentenceSearch(limit, end_id=task.end_id, beam=beam, alpha=alpha, num_best=num_best, automaton=automaton)
        for limit, automaton in zip(task.max_lengths, _make_automata(task, logits_processor), strict=True)
    ]
    search_sentences(step, state, searches, task, beam=beam, device=device)
    return [sentence.finished[:num_best] for sentence in searches]


@torch.no_grad()
def search_sentences(
    step: StepFunction[StateT],
    state: StateT,
    searches: Sequence[SentenceSearch],
    task: SearchTask,
    *,
    beam: int,
    device: torch.device | str = "cpu",
) -> None:
    """Advance the searches of all sentences of `task` until each is done: the loop of `beam_search`."""
    in_batch = list(searches)  # some may be done: the batch has certain sizes only
    last_ids = torch.full((len(in_batch), 1), task.start_id, device=device)
    num_steps = 0
    while in_batch:
        num_steps += 1
        log_probs, state = step(last_ids, state)
        if num_steps < task.min_length:
            too_short = [index for index, sentence in enumerate(in_batch) if not sentence.is_at_limit]
            log_probs[torch.tensor(too_short, dtype=torch.int64, device=device), :, task.end_id] = -torch.inf
        automaton = in_batch[0].automaton
        if automaton is None:
            _advance(log_probs, in_batch, task.end_id, beam)
        elif task.constraints is None and automaton.logits_processor.only_forbids:
            _forbid_tokens(log_probs, dict(_iterate_rows(in_batch)), in_batch, task.end_id)
            _advance(log_probs, in_batch, task.end_id, beam)
        else:
            _advance_constrained(log_probs, in_batch, task.end_id, beam)

        if all(sentence.is_done for sentence in in_batch):
            break
        kept = compact_batch([sentence.is_done for sentence in in_batch])
        leaving = None
        if len(kept) < len(in_batch):
            in_batch = [in_batch[index] for index in kept]
            leaving = torch.tensor(kept, device=device)
        parents = [[live.parent for live in sentence.live] for sentence in in_batch]
        if leaving is not None or any(row != list(range(last_ids.shape[1])) for row in parents):
            state = state.select(leaving, torch.tensor(parents, device=device))
        last_ids = torch.tensor([sentence.last_ids() for sentence in in_batch], device=device)


def _make_automata(task: SearchTask, logits_processor: LogitsProcessor | None) -> list[Automaton | None]:
    if task.constraints is None and logits_processor is None:
        return [None] * len(task.max_lengths)
    all_constraints = task.constraints or [Constraints()] * len(task.max_lengths)
    return [Automaton(one, logits_processor or LogitsProcessor(), task.end_id) for one in all_constraints]


def _advance(log_probs: Tensor, searches: list[SentenceSearch], end_id: int, beam: int) -> None:
    at_limit = [number for number, sentence in enumerate(searches) if sentence.is_at_limit]
    if at_limit:  # allow only the end symbol, without renormalising: its log-probability stays true
        index = torch.tensor(at_limit, device=log_probs.device)
        of_end = log_probs[index, :, end_id]
        log_probs[index] = -torch.inf
        log_probs[index, :, end_id] = of_end
    so_far = [sentence.compute_relative_scores() for sentence in searches]
    sums = torch.tensor(so_far, dtype=torch.float32, device=log_probs.device)
    found = find_best_continuations(log_probs, sums, 2 * beam).copy_to_host()
    for sentence, *continuations in zip(searches, *(part.tolist() for part in found), strict=True):
        if not sentence.is_done:
            sentence.advance_by_best(*continuations)


Row = tuple[int, int]
"""The index of a sentence in the batch, and of a hypothesis in the sentence."""


def _advance_constrained(log_probs: Tensor, searches: list[SentenceSearch], end_id: int, beam: int) -> None:
    """Extend the hypotheses of every sentence that is not done by one token, as its automaton allows."""
    rows = dict(_iterate_rows(searches))
    processor = next(iter(rows.values()))[0].logits_processor  # the same for all sentences
    penalised = {row: processor.find_penalized_tokens(live.last) for row, (_, live) in rows.items()}
    _forbid_tokens(log_probs, rows, searches, end_id)
    factor = processor.repetition_penalty
    _modify_at(log_probs, penalised, lambda values: values * factor)

    width, vocabulary = log_probs.shape[1:]
    each = log_probs.view(-1, 1, vocabulary)
    sums = torch.zeros(len(each), 1, dtype=torch.float32, device=log_probs.device)
    found = find_best_continuations(each, sums, 2 * beam).copy_to_host()
    own = list(zip(found.scores.tolist(), found.ids.tolist(), strict=True))
    advancing = {row: automaton.find_advancing_tokens(live.progress) for row, (automaton, live) in rows.items()}
    advancing_scores = _gather_scores(log_probs, advancing)
    pools: dict[int, list[tuple[float, Candidate]]] = defaultdict(list)  # candidates with their ranks
    for row, (_, live) in rows.items():
        index, parent = row
        best_scores, best_ids = own[index * width + parent]
        # Filler entries (-inf) come last and may share an id with real ones: reversed, real scores overwrite them.
        scores = dict(zip(best_ids[::-1], best_scores[::-1], strict=True))
        scores.update(zip(advancing[row], advancing_scores[row], strict=True))
        in_order = sorted(scores.items(), key=lambda item: -item[1])
        for rank, (token, score) in enumerate(in_order):
            true_score = score / factor if token in penalised[row] else score
            candidate = Candidate(live.sum + score, true_score, parent, token)
            pools[index].append((candidate.sum - rank * processor.diversity, candidate))
    for index, pool in pools.items():
        sentence = searches[index]
        ranked = [candidate for _, candidate in sorted(pool, key=lambda one: -one[0])]
        if sentence.automaton is not None and sentence.automaton.required:
            sentence.advance(*_interleave_banks(ranked, sentence.live, sentence.automaton, end_id, beam))
        else:
            sentence.advance(ranked[: 2 * beam])


def _iterate_rows(searches: list[SentenceSearch]) -> Iterator[tuple[Row, tuple[Automaton, LiveHypothesis]]]:
    """Each hypothesis of the sentences that are not done, with the automaton of its sentence."""
    for index, sentence in enumerate(searches):
        if not sentence.is_done and sentence.automaton is not None:
            for parent, live in enumerate(sentence.live):
                if live.sum > -torch.inf:
                    yield (index, parent), (sentence.automaton, live)


def _forbid_tokens(
    log_probs: Tensor, rows: dict[Row, tuple[Automaton, LiveHypothesis]], searches: list[SentenceSearch], end_id: int
) -> None:
    """Set tokens that must not come next to -inf, without renormalising: other log-probabilities stay true."""
    forbidden = {row: automaton.find_forbidden(live.progress, live.last) for row, (automaton, live) in rows.items()}
    _modify_at(log_probs, forbidden, lambda values: torch.full_like(values, -torch.inf))
    _forbid_word_continuations(log_probs, rows)
    only: dict[Row, list[int]] = {}
    for row, (automaton, live) in rows.items():
        token = end_id if searches[row[0]].is_at_limit else automaton.find_forced_token(live.progress)
        if token is not None:
            only[row] = [token]
    if only:
        kept = _gather_scores(log_probs, only)
        sentences, hypotheses = (torch.tensor(part, device=log_probs.device) for part in zip(*only, strict=True))
        log_probs[sentences, hypotheses] = -torch.inf
        index = (sentences, hypotheses, torch.tensor([token for (token,) in only.values()], device=log_probs.device))
        log_probs[index] = log_probs.new_tensor([score for (score,) in kept.values()])


def _forbid_word_continuations(log_probs: Tensor, rows: dict[Row, tuple[Automaton, LiveHypothesis]]) -> None:
    """Set tokens that continue the last word of a required phrase to -inf: thousands of ids, the same in each row."""
    ending: dict[frozenset[int], list[Row]] = defaultdict(list)
    for row, (automaton, live) in rows.items():
        for continuing in automaton.find_continuing(live.progress):
            ending[continuing].append(row)
    for continuing, those in ending.items():
        sentences, hypotheses = torch.tensor(those, device=log_probs.device).unbind(1)
        log_probs[sentences[:, None], hypotheses[:, None], _as_tensor(continuing).to(log_probs.device)] = -torch.inf


@lru_cache(maxsize=8)
def _as_tensor(ids: frozenset[int]) -> Tensor:
    return torch.tensor(sorted(ids), device="cpu")


def _index(ids: dict[Row, list[int]] | dict[Row, set[int]], device: torch.device) -> tuple[Tensor, ...] | None:
    triples = [(*row, token) for row, tokens in ids.items() for token in tokens]
    if not triples:
        return None
    return tuple(torch.tensor(part, device=device) for part in zip(*triples, strict=True))


def _modify_at(log_probs: Tensor, ids: dict[Row, set[int]], change: Callable[[Tensor], Tensor]) -> None:
    index = _index(ids, log_probs.device)
    if index is not None:
        log_probs[index] = change(log_probs[index])


def _gather_scores(log_probs: Tensor, ids: dict[Row, list[int]]) -> dict[Row, list[float]]:
    index = _index(ids, log_probs.device)
    values = iter([] if index is None else log_probs[index].float().tolist())
    return {row: [next(values) for _ in tokens] for row, tokens in ids.items()}


def _interleave_banks(
    pool: list[Candidate], live: list[LiveHypothesis], automaton: Automaton, end_id: int, beam: int
) -> tuple[list[Candidate], frozenset[int]]:
    """The candidates in the order in which the beam takes them, and the indices of those that are finished.

    Candidates with the same number of required tokens form a bank. The banks take turns, starting with that of the most
    tokens, and each contributes its next best candidate. Otherwise, hypotheses without required tokens would displace
    those that have some, whose probabilities are lower.
    """
    banks: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in pool:
        if candidate.sum != -torch.inf:  # NaN is detected later
            progress = live[candidate.parent].progress
            after = progress if candidate.id == end_id else automaton.advance(progress, candidate.id)
            banks[automaton.count_met(after)].append(candidate)
    in_turn = [banks[met] for met in sorted(banks, reverse=True)]
    taken = [
        (rank, candidate)
        for rank in range(max(map(len, in_turn), default=0))
        for candidates in in_turn
        for candidate in candidates[rank : rank + 1]
    ]
    finished = frozenset(
        index for index, (rank, candidate) in enumerate(taken) if candidate.id == end_id and rank < beam
    )
    return [candidate for _, candidate in taken], finished
