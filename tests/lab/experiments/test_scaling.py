"""What follows from random queries and keys."""

import math

import pytest

from transduce.lab import Measurement, Results
from transduce.lab.experiments.scaling import EXPERIMENT, NUM_KEYS, NUM_QUERIES, VARIANCE, WIDTHS, measure_softmax


def judge_variance(**quantities: float) -> str:
    """The verdict on mean and variance; quantities are those of d_k = 1."""
    powers = {"mean": 0.5, "variance": 1.0, "gradient": -1.0, "scaled gradient": 0.0}
    results = Results(
        Measurement({"d_k": d_k}, 1, {name: value * d_k ** powers[name] for name, value in quantities.items()}, 1.0)
        for d_k in WIDTHS
    )
    (claim_result,) = (one for one in EXPERIMENT.conclude(results).claim_results if one.claim == VARIANCE)
    return claim_result.verdict


GRADIENTS = {"gradient": 0.8, "scaled gradient": 0.9}


@pytest.mark.parametrize(
    ("quantities", "verdict"),
    [
        ({"mean": 0.01, "variance": 1.02}, "supported"),
        ({"mean": 0.01, "variance": 1.1}, "not supported"),
        ({"mean": -0.2, "variance": 1.02}, "not supported"),
        ({"variance": 1.02}, "not decided"),
    ],
)
def test_mean_and_variance_both_decide(quantities: dict[str, float], verdict: str) -> None:
    assert judge_variance(**quantities, **GRADIENTS) == verdict


def test_products_of_random_vectors_have_mean_0_and_variance_d_k() -> None:
    found = measure_softmax(16, seed=1)
    assert abs(found["mean"]) < 5 * math.sqrt(16 / (NUM_QUERIES * NUM_KEYS))
    assert found["variance"] == pytest.approx(16, rel=0.05)
    assert found["scaled variance"] == pytest.approx(1, rel=0.05)
