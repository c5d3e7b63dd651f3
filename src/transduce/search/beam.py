"""Beam search with a length penalty (paper section 6.1; Wu et al. 2016, section 7)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.errors import ConfigError
from transduce.kernels.continuations import best_continuations
from transduce.search.constrained import advance_constrained
from transduce.search.constraints import Automaton, Constraints, Habits
from transduce.search.hypothesis import Hypothesis
from transduce.search.leaving import staying
from transduce.search.sentence import SentenceSearch
from transduce.search.step import StateT, StepFunction
from transduce.search.task import SearchTask


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

    More than `beam` are found now and then, and are not looked for: those that end in the last step.

    In each step the best 2 * `beam` continuations of a sentence are looked at: those among the first `beam` that end
    are finished, and the best `beam` that do not end go on. A sentence is done when `beam` hypotheses are finished, or
    when none that goes on can come among its best `num_best` any more. With a beam of 1 this is greedy search.

    `state` has one hypothesis for each sentence at first and `beam` of them from the second step on. A sentence in
    which every way is forbidden gets one hypothesis, whose last log-probability is -inf.

    With constraints or `habits` every hypothesis brings in its own best continuations, and those that further what is
    required; where something is, hypotheses that have come equally far share the beam out (Post & Vilar 2018).

    Raises:
        ConfigError: `beam` or `num_best` is below 1, or `alpha` is negative.
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
        kept = staying([sentence.is_done for sentence in places])
        leaving = None
        if len(kept) < len(places):
            places = [places[place] for place in kept]
            leaving = torch.tensor(kept, device=device)
        parents = [[live.parent for live in sentence.live] for sentence in places]
        if leaving is not None or any(row != list(range(last_ids.shape[1])) for row in parents):
            state = state.select(leaving, torch.tensor(parents, device=device))
        last_ids = torch.tensor([sentence.last_ids() for sentence in places], device=device)


def _check(beam: int, num_best: int, alpha: float) -> None:
    if beam < 1:
        raise ConfigError(f"beam = {beam} must be at least 1 (1 is greedy search)")
    if num_best < 1:
        raise ConfigError(f"num_best = {num_best} must be at least 1")
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
