"""Beam search with a length penalty (paper section 6.1; Wu et al. 2016, section 7)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.errors import ConfigError
from transduce.search.constrained import advance_constrained
from transduce.search.constraints import Automaton, Constraints, Habits
from transduce.search.continuations import best_continuations
from transduce.search.hypothesis import Hypothesis
from transduce.search.sentence import SentenceSearch
from transduce.search.step import StateT, StepFunction
from transduce.search.task import SearchTask

_FULL = 16
"""A batch has 1, 2, 4, 8 or a multiple of so many sentences once some are done: leaving costs a copy of the state, and
every new size a new kernel."""


@torch.no_grad()
def beam_search(
    step: StepFunction[StateT],
    state: StateT,
    task: SearchTask,
    *,
    beam: int,
    alpha: float,
    num_best: int = 1,
    habits: Habits | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Up to `num_best` hypotheses for each sentence, best first; fewer only where the search finds no more.

    In each step the best 2 * `beam` continuations of a sentence are looked at: those among the first `beam` that end
    are finished, and the best `beam` that do not end go on. A sentence is done when `beam` hypotheses are finished, or
    when none that goes on can come among its best `num_best` any more. With a beam of 1 this is greedy search.

    `state` has one hypothesis for each sentence at first and `beam` of them from the second step on. A sentence in
    which every way is forbidden gets one hypothesis, whose last log-probability is -inf.

    With constraints or `habits` every hypothesis brings in its own best continuations, and those that further what is
    required; where something is, hypotheses that have come equally far share the beam out (Post & Vilar 2018).

    Raises:
        ConfigError: `beam` is below 1, `num_best` is not from 1 to `beam`, or `alpha` is negative.
        TransduceError: a log-probability is NaN.
    """
    _check(beam, num_best, alpha)
    searches = [
        SentenceSearch(limit, end_id=task.end_id, beam=beam, alpha=alpha, num_best=num_best, automaton=automaton)
        for limit, automaton in zip(task.max_lengths, _automata(task, habits), strict=True)
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
    """Takes the searches of all sentences of `task` further until each is done: the loop of `beam_search`.

    Raises:
        TransduceError: a log-probability is NaN.
    """
    places = list(searches)  # the sentences of the batch, some of them perhaps done
    last_ids = torch.full((len(places), 1), task.start_id, device=device)
    num_steps = 0
    while places:
        num_steps += 1
        log_probs, state = step(last_ids, state)
        if num_steps < task.min_length:
            too_short = [place for place, sentence in enumerate(places) if not sentence.is_at_limit]
            log_probs[torch.tensor(too_short, dtype=torch.int64, device=device), :, task.end_id] = -torch.inf
        if places[0].automaton is None:
            _advance(log_probs, places, task.end_id, beam)
        else:
            advance_constrained(log_probs, places, task.end_id, beam)

        if all(sentence.is_done for sentence in places):
            break
        kept = _kept(places)
        leaving = None
        if len(kept) < len(places):
            places = [places[place] for place in kept]
            leaving = torch.tensor(kept, device=device)
        parents = [[live.parent for live in sentence.live] for sentence in places]
        if leaving is not None or any(row != list(range(last_ids.shape[1])) for row in parents):
            state = state.select(leaving, torch.tensor(parents, device=device))
        last_ids = torch.tensor([sentence.last_ids() for sentence in places], device=device)


def _kept(places: list[SentenceSearch]) -> list[int]:
    """The places of sentences that stay: those that are not done, and others up to a size that batches have."""
    num_live = sum(not sentence.is_done for sentence in places)
    size = -(-num_live // _FULL) * _FULL if num_live > _FULL // 2 else 1 << (num_live - 1).bit_length()
    if size >= len(places):
        return list(range(len(places)))
    spare = size - num_live
    kept = []
    for place, sentence in enumerate(places):
        if sentence.is_done and spare == 0:
            continue
        spare -= sentence.is_done
        kept.append(place)
    return kept


def _check(beam: int, num_best: int, alpha: float) -> None:
    if beam < 1:
        raise ConfigError(f"beam = {beam} must be at least 1 (1 is greedy search)")
    if not 1 <= num_best <= beam:
        raise ConfigError(f"num_best = {num_best} must be from 1 to beam = {beam}: ask for fewer or widen the beam")
    if alpha < 0:
        raise ConfigError(f"alpha = {alpha} must not be negative: 0 is no length penalty, the paper uses 0.6")


def _automata(task: SearchTask, habits: Habits | None) -> list[Automaton | None]:
    """What follows the constraints of each sentence; nothing if there are neither constraints nor habits."""
    if task.constraints is None and habits is None:
        return [None] * len(task.max_lengths)
    asked = task.constraints or [Constraints()] * len(task.max_lengths)
    return [Automaton(constraints, habits or Habits(), task.end_id) for constraints in asked]


def _advance(log_probs: Tensor, places: list[SentenceSearch], end_id: int, beam: int) -> None:
    """Takes every sentence that is not done one token further."""
    at_limit = [place for place, sentence in enumerate(places) if sentence.is_at_limit]
    if at_limit:  # nothing but the end, without renormalising: its log-probability stays true
        index = torch.tensor(at_limit, device=log_probs.device)
        of_end = log_probs[index, :, end_id]
        log_probs[index] = -torch.inf
        log_probs[index, :, end_id] = of_end
    sums = torch.tensor([sentence.relative_sums() for sentence in places], device=log_probs.device)
    found = best_continuations(log_probs, sums, 2 * beam).to_host()
    for sentence, *continuations in zip(places, *(part.tolist() for part in found), strict=True):
        if not sentence.is_done:
            sentence.advance(*continuations)
