"""Sampling: hypotheses drawn at random, as probable as the model finds them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transduce.errors import ConfigError, TransduceError
from transduce.search.hypothesis import Hypothesis
from transduce.search.step import StateT, StepFunction
from transduce.search.task import SearchTask


@dataclass(frozen=True)
class Sampling:
    """What tokens are drawn from: softmax(log-probabilities / `temperature`), the improbable ones left out.

    Args:
        temperature: 1 is the model's own distribution, less is bolder.
        top_k: only so many of the most probable tokens (Fan et al. 2018); 0: all.
        top_p: of those, only the fewest whose probabilities add up to this (Holtzman et al. 2020).

    Raises:
        ConfigError: `temperature` is not above 0, `top_k` negative, or `top_p` not in (0, 1].
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ConfigError(f"temperature = {self.temperature} must be above 0: 1 is the model's own, less is bolder")
        if self.top_k < 0:
            raise ConfigError(f"top_k = {self.top_k} must not be negative: 0 is no limit")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p = {self.top_p} must be above 0 and at most 1, which is no limit")


@torch.no_grad()
def sample_search(
    step: StepFunction[StateT],
    state: StateT,
    task: SearchTask,
    *,
    num_samples: int,
    seeds: Sequence[int | Sequence[int]],
    sampling: Sampling,
    alpha: float = 0.0,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """`num_samples` hypotheses for each sentence, in the order in which they were drawn; some may be the same.

    Numbers drawn for a sentence depend on its seed alone, not on its batch. A hypothesis at its maximum length ends;
    its score and those of its tokens are of the model itself, not of what was drawn from. Constraints are not kept.

    Raises:
        ConfigError: `num_samples` is below 1, or the task has constraints.
        TransduceError: a log-probability is NaN.
    """
    if num_samples < 1:
        raise ConfigError(f"num_samples = {num_samples} must be at least 1")
    if task.constraints is not None:
        raise ConfigError("samples cannot be held to constraints: use beam search")
    end_id = task.end_id
    num_sentences = len(task.max_lengths)
    if not num_sentences:
        return []
    draws = [np.random.default_rng(seed) for seed in seeds]
    limits = torch.tensor(task.max_lengths, device=device)[:, None]
    last_ids = torch.full((num_sentences, 1), task.start_id, device=device)
    ids: list[Tensor] = []
    scores: list[Tensor] = []
    ended = torch.zeros(num_sentences, num_samples, dtype=torch.bool, device=device)
    while not ended.all():
        log_probs, state = step(last_ids, state)
        log_probs = log_probs.float()
        if not ids:
            log_probs = log_probs.expand(-1, num_samples, -1)
            state = state.select(None, torch.zeros(num_sentences, num_samples, dtype=torch.int64, device=device))
        allowed = log_probs.clone()
        if len(ids) + 1 < task.min_length:
            allowed[:, :, end_id] = -torch.inf
        # One draw a sample and step, whether it is needed or not, so that samples do not depend on each other.
        uniform = torch.tensor(np.stack([random.random(num_samples) for random in draws]), device=device)
        drawn = _drawn(allowed, uniform, sampling)
        must_end = ended | (limits == len(ids) + 1) | (drawn < 0)
        last_ids = drawn.masked_fill(must_end, end_id)
        ids.append(last_ids)
        scores.append(log_probs.gather(2, last_ids[:, :, None]).squeeze(2))
        ended = must_end | (last_ids == end_id)
    return _hypotheses(torch.stack(ids, dim=2), torch.stack(scores, dim=2), end_id, alpha)


def _drawn(log_probs: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """The token at which the distribution function reaches `uniform`; -1 where no token is possible.

    Raises:
        TransduceError: a log-probability is NaN.
    """
    if log_probs.isnan().any():
        raise TransduceError("the model's probabilities are not numbers (NaN): its weights are damaged")
    logits = log_probs / sampling.temperature
    tokens = None
    if sampling.top_p < 1:
        logits, tokens = logits.sort(dim=2, descending=True, stable=True)
        logits, tokens = (part[:, :, : sampling.top_k or None] for part in (logits, tokens))
    elif sampling.top_k:
        logits, tokens = logits.topk(min(sampling.top_k, logits.size(2)), dim=2)
    probabilities = logits.double().softmax(dim=2)
    if sampling.top_p < 1:
        before = probabilities.cumsum(dim=2) - probabilities
        probabilities = probabilities.masked_fill(before >= sampling.top_p, 0.0)
    reached = probabilities.cumsum(dim=2)
    # Never beyond the last token that is possible, however the sum is rounded.
    last = reached.argmax(dim=2)
    place = torch.minimum((reached <= uniform[:, :, None] * reached[:, :, -1:]).sum(dim=2), last)
    drawn = place if tokens is None else tokens.gather(2, place[:, :, None]).squeeze(2)
    return drawn.masked_fill(torch.isneginf(logits).all(dim=2), -1)


def _hypotheses(ids: Tensor, scores: Tensor, end_id: int, alpha: float) -> list[list[Hypothesis]]:
    found = []
    for sentence_ids, sentence_scores in zip(ids.tolist(), scores.tolist(), strict=True):
        lengths = [sample.index(end_id) + 1 for sample in sentence_ids]
        found.append(
            [
                Hypothesis.from_tokens(sample[:length], sample_scores[:length], alpha)
                for sample, sample_scores, length in zip(sentence_ids, sentence_scores, lengths, strict=True)
            ]
        )
    return found
