"""Sampling: hypotheses drawn at random, as probable as the model finds them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.errors import ConfigError, TransduceError
from transduce.search.interface import Hypothesis, SearchTask, StateT, StepFunction, compact_batch

_BLOCK = 64
"""Tokens of a block: first a block is drawn, then one of its tokens, so that few random numbers are enough."""

_LIKELIEST = 32
"""Tokens that are sorted first where only the most probable may be drawn: mostly they are enough."""


@dataclass(frozen=True)
class Sampling:
    """The distribution that tokens are drawn from: softmax(log-probabilities / `temperature`) without improbable ones.

    Args:
        temperature: 1 is the model's own distribution, less keeps nearer to the most probable.
        top_k: only so many of the most probable tokens (Fan et al. 2018); 0: all.
        top_p: of those, only the fewest most probable ones whose probabilities add up to this, and whatever is as
            probable as the last of them (Holtzman et al. 2020).

    Raises:
        ConfigError: `temperature` is not above 0 or not finite, `top_k` negative, or `top_p` not in (0, 1].
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ConfigError(
                f"temperature = {self.temperature} must be above 0 and finite: "
                "1 is the model's own, less keeps nearer to the most probable"
            )
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

    The random numbers depend on the sentence's seed and the number of the sample alone, not on what else is drawn. A
    hypothesis ends at its maximum length; its scores are those of the model, not of the distribution drawn from.

    `state` has one hypothesis for each sentence in the first step; then each sample is a sentence of its own.

    Raises:
        ConfigError: `num_samples` is below 1, or the task has constraints.
        TransduceError: a log-probability is NaN.
    """
    _check_task(num_samples, task)
    if not task.max_lengths:
        return []
    chance = [generator for seed in seeds for generator in np.random.default_rng(seed).spawn(num_samples)]
    limits = torch.tensor(task.max_lengths, device=device).repeat_interleave(num_samples)
    samples = torch.arange(len(limits), device=device)  # those in the batch, some of them perhaps done
    is_done = torch.zeros_like(samples, dtype=torch.bool)
    log_probs, state = step(torch.full((len(task.max_lengths), 1), task.start_id, device=device), state)
    if num_samples > 1:
        log_probs = log_probs.repeat_interleave(num_samples, dim=0)
        state = state.select(samples // num_samples, torch.zeros_like(samples)[:, None])
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    while True:
        log_probs = log_probs.squeeze(1).float()
        allowed = log_probs
        if len(steps) + 1 < task.min_length:
            allowed = log_probs.clone()
            allowed[:, task.end_id] = -torch.inf
        drawn = _draw_tokens(allowed, [chance[sample] for sample in samples.tolist()], sampling)
        must_end = is_done | (limits[samples] == len(steps) + 1) | (drawn < 0)
        last_ids = drawn.masked_fill(must_end, task.end_id)
        steps.append((samples, last_ids, log_probs.gather(1, last_ids[:, None]).squeeze(1)))
        is_done = last_ids == task.end_id
        done = is_done.tolist()
        if all(done):
            return _make_hypotheses(steps, num_samples, task.end_id, alpha)
        stay = compact_batch(done)
        if len(stay) < len(done):
            kept = torch.tensor(stay, device=device)
            samples, last_ids, is_done = samples[kept], last_ids[kept], is_done[kept]
            state = state.select(kept, torch.zeros_like(kept)[:, None])
        log_probs, state = step(last_ids[:, None], state)


def _check_task(num_samples: int, task: SearchTask) -> None:
    if num_samples < 1:
        raise ConfigError(f"num_samples = {num_samples} must be at least 1")
    if task.constraints is not None:
        raise ConfigError("samples cannot be held to constraints: use beam search")


def _draw_tokens(
    log_probs: Float[Tensor, "rows vocabulary"], chance: Sequence[np.random.Generator], sampling: Sampling
) -> Int[Tensor, " rows"]:
    """A token of each row, drawn with the row's own generator; -1 where no token is possible.

    Raises:
        TransduceError: a log-probability is NaN.
    """
    best = log_probs.amax(dim=1, keepdim=True)
    if best.isnan().any():
        raise TransduceError("the model's probabilities are not numbers (NaN): its weights are damaged")
    probabilities = ((log_probs - best) / sampling.temperature).exp_()  # relative to the best
    if sampling.top_k:
        most_probable = probabilities.topk(min(sampling.top_k, probabilities.size(1)), dim=1)
        # In their old places, as chance goes with these: their order is sometimes one of rounding.
        probabilities = torch.zeros_like(probabilities).scatter_(1, most_probable.indices, most_probable.values)
    drawn = _draw_places(probabilities, chance)
    if sampling.top_p < 1:
        # What is drawn is among the most probable in most rows, and only the others need to have them put in order. A
        # draw from all that counts where it may, and else one from the most probable, is one from the most probable.
        outside = _is_outside_nucleus(probabilities, drawn, sampling.top_p).nonzero().squeeze(1)
        if len(outside):
            nucleus = _keep_nucleus(probabilities[outside], sampling.top_p)
            drawn[outside] = _draw_places(nucleus, [chance[row] for row in outside.tolist()])
    return drawn.masked_fill(best.squeeze(1).isneginf(), -1)


def _draw_places(
    probabilities: Float[Tensor, "rows tokens"], chance: Sequence[np.random.Generator]
) -> Int[Tensor, " rows"]:
    """Draw a place of each row, whose numbers need not add up to 1: where w / p is least, for random waits w.

    This is the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014) without logarithms. First a block is drawn, then a
    place in it. Rounding of the probabilities changes the result only if two values of w / p are within it, and not, as
    with sums over the vocabulary, whenever an earlier probability changes.
    """
    in_blocks = F.pad(probabilities, (0, -probabilities.size(1) % _BLOCK)).view(len(probabilities), -1, _BLOCK)
    waits = _draw_waits(chance, in_blocks.size(1) + _BLOCK).to(probabilities.device)
    blocks = (in_blocks.sum(dim=2) / waits[:, :-_BLOCK]).argmax(dim=1)
    in_block = in_blocks[torch.arange(len(blocks), device=blocks.device), blocks]
    return blocks * _BLOCK + (in_block / waits[:, -_BLOCK:]).argmax(dim=1)


def _draw_waits(chance: Sequence[np.random.Generator], count: int) -> Float[Tensor, "rows {count}"]:
    """The next random numbers of each generator, from the exponential distribution."""
    waits = np.empty((len(chance), count))  # float64: in float32 small ones, which decide, would be coarse
    for generator, row in zip(chance, waits, strict=True):
        generator.standard_exponential(out=row)
    return torch.from_numpy(waits).float().clamp_(min=torch.finfo(torch.float32).tiny)


def _is_outside_nucleus(
    probabilities: Float[Tensor, "rows tokens"], drawn: Int[Tensor, " rows"], top_p: float
) -> Bool[Tensor, " rows"]:
    """Whether the tokens that are more probable than the drawn one reach `top_p` without it."""
    own = probabilities.gather(1, drawn[:, None])
    return probabilities.masked_fill(probabilities <= own, 0.0).sum(dim=1) >= top_p * probabilities.sum(dim=1)


def _keep_nucleus(
    probabilities: Float[Tensor, "rows tokens"], top_p: float, count: int = _LIKELIEST
) -> Float[Tensor, "rows tokens"]:
    """Set all but the most probable tokens to 0; `count` of them or, if need be, more are sorted."""
    count = min(count, probabilities.size(1))
    needed = top_p * probabilities.sum(dim=1, keepdim=True)
    likeliest = probabilities.topk(count, dim=1).values
    reached = likeliest.cumsum(dim=1)
    least = likeliest.masked_fill(reached - likeliest >= needed, torch.inf).amin(dim=1, keepdim=True)
    nucleus = probabilities.masked_fill(probabilities < least, 0.0)
    too_few = reached[:, -1] < needed.squeeze(1)
    if count < probabilities.size(1) and too_few.any():
        nucleus[too_few] = _keep_nucleus(probabilities[too_few], top_p, 8 * count)
    return nucleus


def _make_hypotheses(
    steps: Sequence[tuple[Tensor, Tensor, Tensor]], num_samples: int, end_id: int, alpha: float
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, made of the samples, tokens and scores of each step."""
    ids = torch.full((len(steps[0][0]), len(steps)), end_id)
    scores = torch.zeros(ids.shape)
    for place, (samples, last_ids, last_scores) in enumerate(steps):
        rows = samples.cpu()
        ids[rows, place], scores[rows, place] = last_ids.cpu(), last_scores.cpu()
    lengths = ((ids != end_id).sum(dim=1) + 1).tolist()
    found = [
        Hypothesis.from_tokens(sample[:length], sample_scores[:length], alpha)
        for sample, sample_scores, length in zip(ids.tolist(), scores.tolist(), lengths, strict=True)
    ]
    return [found[first : first + num_samples] for first in range(0, len(found), num_samples)]
