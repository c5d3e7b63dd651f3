"""Why attention divides its scores by the square root of d_k (paper 3.2.1, and its fourth footnote)."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import judge_equal, judge_exactly, judge_larger
from transduce.lab.variants import plan_training, tabulate_variants
from transduce.pages import Series, draw_line_chart

WIDTHS = (4, 16, 64, 256, 1024)
"""Values of d_k for which scores are drawn at random."""

SMALL, LARGE = 8, 128
"""Values of d_k with which models are trained."""

SCORES = ("scaled_dot", "dot", "additive")

SIMILAR = 0.02
"""Difference of losses, in nats per token, up to which two models perform similarly."""

MAX_ERROR = 0.05
"""Part of d_k by which the measured variance may differ from it, and of sqrt(d_k), the standard deviation, by which the
mean may differ from 0."""

EXTREMELY_SMALL = 0.1
"""Part of the gradient with division below which a gradient counts as extremely small."""

NUM_QUERIES, NUM_KEYS = 4000, 32

VARIANCE = Claim(
    "3.2.1, footnote 4",
    "If the components of q and k are independent with mean 0 and variance 1, then q·k has mean 0 and variance d_k.",
)
GRADIENT = Claim(
    "3.2.1",
    "For large d_k the undivided products push the softmax into regions where its gradients are extremely small.",
)
SMALL_WIDTHS = Claim("3.2.1", "For small d_k, additive and dot-product attention perform similarly.")
LARGE_WIDTHS = Claim("3.2.1", "Additive attention outperforms dot-product attention without scaling for larger d_k.")
REPAIR = Claim("3.2.1", "Dividing by sqrt(d_k) counteracts this effect.")


def measure_softmax(d_k: int, seed: int) -> Mapping[str, float]:
    """Mean and variance of q·k, and size of the softmax's gradient, for random queries and keys of width `d_k`.

    The gradient is the Jacobian of the weights with respect to the scores, diag(p) - p pᵀ. Its trace is 1 - Σ p², the
    sum of its eigenvalues: 0 if one key has all the weight, 1 - 1/keys if all keys have the same.
    """
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(NUM_QUERIES, 1, d_k, generator=generator)
    keys = torch.randn(NUM_QUERIES, NUM_KEYS, d_k, generator=generator)
    products = (queries * keys).sum(dim=-1)

    def trace(scores: torch.Tensor) -> float:
        return float(1 - scores.softmax(dim=-1).square().sum(dim=-1).mean())

    return {
        "mean": float(products.mean()),
        "variance": float(products.var()),
        "scaled variance": float((products / math.sqrt(d_k)).var()),
        "gradient": trace(products),
        "scaled gradient": trace(products / math.sqrt(d_k)),
    }


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: random queries and keys of all widths; models with each score, with narrow and wide keys."""
    variants: dict[str, dict[str, Value]] = {
        _name(score, d_k): {"model.attention_score": score, "model.num_heads": 1, "model.d_k": d_k, "model.d_v": 64}
        for d_k in (SMALL, LARGE)
        for score in SCORES
    }
    random = [Trial({"d_k": d_k}, partial(measure_softmax, d_k), cost=0.01) for d_k in WIDTHS]
    return [*random, *plan_training(laboratory, variants, reserve=5)]


def _name(score: str, d_k: int) -> str:
    return f"{score}, d_k = {d_k}"


def conclude(results: Results) -> Conclusion:
    """Verdicts on variance and gradient from random vectors, and on quality from the trained models."""
    losses = {
        (score, d_k): results.by_seed("loss", variant=_name(score, d_k)) for d_k in (SMALL, LARGE) for score in SCORES
    }
    return Conclusion(
        [
            *_judge_random_vectors(results),
            judge_equal(
                SMALL_WIDTHS,
                losses["dot", SMALL],
                losses["additive", SMALL],
                f"loss with undivided products minus loss with additive scores, d_k = {SMALL}, in nats per token",
                tolerance=SIMILAR,
            ),
            judge_larger(
                LARGE_WIDTHS,
                losses["dot", LARGE],
                losses["additive", LARGE],
                f"loss with undivided products minus loss with additive scores, d_k = {LARGE}, in nats per token",
            ),
            judge_larger(
                REPAIR,
                losses["dot", LARGE],
                losses["scaled_dot", LARGE],
                f"loss with undivided products minus loss with divided ones, d_k = {LARGE}, in nats per token",
            ),
        ],
        charts=[_draw_variance(results), _draw_gradient(results)],
        tables=[tabulate_variants(results)],
    )


def _judge_random_vectors(results: Results) -> list[ClaimResult]:
    means, variances, gradients, divided = (
        dict(results.curve("d_k", quantity)) for quantity in ("mean", "variance", "gradient", "scaled gradient")
    )
    if len(variances) < len(WIDTHS):
        return [ClaimResult(claim, "not measured", "not decided") for claim in (VARIANCE, GRADIENT)]
    error = max(abs(variance / d_k - 1) for d_k, variance in variances.items())
    shift = max((abs(mean) / math.sqrt(d_k) for d_k, mean in means.items()), default=math.nan)
    is_mean_known = len(means) == len(WIDTHS)  # not of an older version, which did not measure it
    first, last = WIDTHS[0], WIDTHS[-1]
    return [
        judge_exactly(
            VARIANCE,
            f"for d_k from {first} to {last} the variance is d_k within {error:.1%}, and the mean 0 within {shift:.1%} "
            "of sqrt(d_k)",
            holds=max(error, shift) < MAX_ERROR if is_mean_known else None,
        ),
        judge_exactly(
            GRADIENT,
            f"the trace of the softmax's Jacobian falls from {gradients[first]:.2f} at d_k = {first} to "
            f"{gradients[last]:.3f} at {last}; with division it is {divided[last]:.2f} there",
            holds=gradients[last] < EXTREMELY_SMALL * divided[last],
        ),
    ]


def _draw_variance(results: Results) -> Chart:
    series = [
        Series("measured", results.curve("d_k", "variance")),
        Series("theory: d_k", [(float(d_k), float(d_k)) for d_k in WIDTHS]),
        Series("after division", results.curve("d_k", "scaled variance")),
    ]
    chart = draw_line_chart("Variance of q·k", series, "d_k", "", log=True, log_x=True)
    return Chart("Variance of q·k over d_k", chart)


def _draw_gradient(results: Results) -> Chart:
    series = [
        Series("undivided", results.curve("d_k", "gradient")),
        Series("divided by sqrt(d_k)", results.curve("d_k", "scaled gradient")),
    ]
    chart = draw_line_chart("Gradient of the softmax", series, "d_k", "trace of the Jacobian", log_x=True)
    return Chart("Gradient of the softmax over d_k", chart)


EXPERIMENT = Experiment(
    title="Why scores are divided by the square root of d_k",
    claims=[VARIANCE, GRADIENT, SMALL_WIDTHS, LARGE_WIDTHS, REPAIR],
    method=(
        f"Queries and keys are drawn at random from the normal distribution, {NUM_QUERIES:,} queries with {NUM_KEYS} "
        "keys each; mean and variance of their products and the gradient of the softmax over them are measured. Then "
        "models that differ in nothing but the score are trained with one head, for the same number of updates, with "
        f"narrow keys (d_k = {SMALL}) and wide ones (d_k = {LARGE}), and their loss on held-out text is compared."
    ),
    plan=plan,
    conclude=conclude,
)
