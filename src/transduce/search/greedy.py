"""Greedy search: always the most probable next token."""

import torch
from jaxtyping import Int
from torch import Tensor

from transduce.search.hypothesis import Hypothesis
from transduce.search.limit import allow_only_end, check_numbers, read_limits
from transduce.search.step import StateT, StepFunction
from transduce.search.transfer import to_host


@torch.no_grad()
def greedy_search(
    step: StepFunction[StateT],
    state: StateT,
    *,
    start_id: int,
    end_id: int,
    max_lengths: Int[Tensor, "batch"],
    alpha: float = 0.0,
) -> list[Hypothesis]:
    """One hypothesis for each sentence; of equally probable tokens the one with the lower id.

    `state` has one row for each sentence; a sentence that has ended leaves it. Where every token is forbidden, the
    hypothesis ends with the log-probability -inf. Everything runs on the device of `max_lengths`, in which the end
    symbol counts; `alpha` only scores what was found.

    Raises:
        ConfigError: a maximum length is below 1.
    """
    limits = read_limits(max_lengths)
    device = max_lengths.device
    ids: list[list[int]] = [[] for _ in limits]
    token_scores: list[list[float]] = [[] for _ in limits]
    live = list(range(len(limits)))
    last_ids = torch.full((len(live),), start_id, device=device)
    while live:
        log_probs, state = step(last_ids, state)
        at_limit = [row for row, sentence in enumerate(live) if len(ids[sentence]) + 1 == limits[sentence]]
        best_scores, best_ids = allow_only_end(log_probs, at_limit, end_id).max(dim=1)
        best_ids = best_ids.masked_fill(best_scores == -torch.inf, end_id)
        host_scores, host_ids = to_host(best_scores, best_ids)
        check_numbers(host_scores)
        for sentence, token_score, token in zip(live, host_scores.tolist(), host_ids.tolist(), strict=True):
            ids[sentence].append(token)
            token_scores[sentence].append(token_score)
        going_on = [row for row, sentence in enumerate(live) if ids[sentence][-1] != end_id]
        if going_on and len(going_on) < len(live):
            index = torch.tensor(going_on, device=device)
            state, best_ids = state.reorder(index), best_ids[index]
        live, last_ids = [live[row] for row in going_on], best_ids
    return [Hypothesis.from_tokens(*tokens, alpha) for tokens in zip(ids, token_scores, strict=True)]
