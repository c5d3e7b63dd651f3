"""Sampling: hypotheses drawn at random from the model's distribution."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.errors import ConfigError, NotANumberError
from transduce.kernels.token_selection import draw_nucleus_tokens, draw_tokens
from transduce.search.beam import StateT, StepFunction
from transduce.search.hypothesis import Hypothesis
from transduce.search.task import Sampling, SearchTask, compact_batch

_FLOAT32 = torch.finfo(torch.float32)


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

    A hypothesis ends at its maximum length. Its scores are those of the model, not of the distribution drawn from.

    Args:
        step: computes the log-probabilities of the next tokens.
        state: the state of `step` before the first token, with one hypothesis for each sentence; from the second step
            on, each sample is a sentence of its own.
        task: the sentences, without constraints.
        num_samples: number of hypotheses drawn for each sentence.
        seeds: for each sentence, the seed of its random numbers, which depend only on it and on the number of the
            sample.
        sampling: the distribution that tokens are drawn from.
        alpha: exponent of the length penalty in the scores, see `length_penalty`.
        device: device of the tensors that `step` is given.

    Raises:
        ConfigError: `num_samples` is below 1, or the task has constraints.
        NotANumberError: a log-probability is NaN.
    """
    if num_samples < 1:
        raise ConfigError(f"num_samples = {num_samples} must be at least 1")
    if task.constraints is not None:
        raise ConfigError("sampling does not support constraints: use beam search")
    if not task.max_lengths:
        return []
    generators = [generator for seed in seeds for generator in np.random.default_rng(seed).spawn(num_samples)]
    limits = torch.tensor(task.max_lengths, device=device).repeat_interleave(num_samples)
    samples = torch.arange(len(limits), device=device)  # the sentences in the batch, some of which may be done
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
        drawn = _draw_tokens(allowed, [generators[sample] for sample in samples.tolist()], sampling)
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


def _draw_tokens(
    log_probs: Float[Tensor, "rows vocabulary"], generators: Sequence[np.random.Generator], sampling: Sampling
) -> Int[Tensor, " rows"]:
    """A token of each row, drawn with the row's own generator; -1 where no token is possible."""
    best = log_probs.amax(dim=1, keepdim=True)
    if best.isnan().any():
        raise NotANumberError
    # Beyond the range of float32, a temperature would be 0 or infinite, and 0 / 0 and inf / inf are NaN.
    temperature = min(max(sampling.temperature, _FLOAT32.tiny), _FLOAT32.max)
    probabilities = ((log_probs - best) / temperature).exp_()  # relative to the best
    if sampling.top_k:
        most_probable = probabilities.topk(min(sampling.top_k, probabilities.size(1)), dim=1)
        # Keep probabilities at their token ids, because random numbers are assigned by id; the order of topk can
        # depend on rounding.
        probabilities = torch.zeros_like(probabilities).scatter_(1, most_probable.indices, most_probable.values)
    if sampling.top_p < 1:
        drawn = draw_nucleus_tokens(probabilities, generators, sampling.top_p)
    else:
        drawn = draw_tokens(probabilities, generators)
    return drawn.masked_fill(best.squeeze(1).isneginf(), -1)


def _make_hypotheses(
    steps: Sequence[tuple[Tensor, Tensor, Tensor]], num_samples: int, end_id: int, alpha: float
) -> list[list[Hypothesis]]:
    ids = torch.full((len(steps[0][0]), len(steps)), end_id, device="cpu")
    scores = torch.zeros(ids.shape, dtype=torch.float32, device="cpu")
    for place, (samples, last_ids, last_scores) in enumerate(steps):
        rows = samples.cpu()
        ids[rows, place], scores[rows, place] = last_ids.cpu(), last_scores.cpu()
    lengths = ((ids != end_id).sum(dim=1) + 1).tolist()
    found = [
        Hypothesis.from_tokens(sample[:length], sample_scores[:length], alpha)
        for sample, sample_scores, length in zip(ids.tolist(), scores.tolist(), lengths, strict=True)
    ]
    return [found[first : first + num_samples] for first in range(0, len(found), num_samples)]
