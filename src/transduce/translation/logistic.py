"""Probabilities from log-probabilities: a logistic fit, and how far such probabilities can be believed."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from transduce.bundle import LogisticFit

NUM_BINS = 10
"""Bins of equal width for the expected calibration error."""

RAREST = 1e-4
"""A probability nearer than this to 0 or 1 counts as so far from it, so that no log-odds are infinite."""


def probabilities(fit: LogisticFit, token_scores: Sequence[Sequence[float]]) -> Float[np.ndarray, " items"]:
    """What `fit` makes of words or sentences whose tokens have these log-probabilities (nats); none is empty."""
    return _predicted(np.array([fit.intercept, fit.minimum, fit.mean]), _features(token_scores))


def fit_logistic(token_scores: Sequence[Sequence[float]], targets: Sequence[float] | Sequence[bool]) -> LogisticFit:
    """The fit of highest likelihood, by Newton's method (Platt 1999 fits classifiers' scores so).

    The features are log-odds, as in temperature scaling (Guo et al. 2017): for a word of one token, intercept 0 and
    weights that add up to 1 leave the model's own probability as it is. A penalty of half the sum of squared
    parameters, which hardly matters to hundreds of items, keeps them finite where all targets are the same. A weight
    that would be negative is left out, so that what is more probable to the model is never less probable to the fit.

    Args:
        token_scores: of each word or sentence, the log-probabilities of its tokens (nats); none is empty.
        targets: of each, what is to be predicted: 1 for right, 0 for wrong, or a share of what is right.
    """
    features, wanted = _features(token_scores), np.asarray(targets, dtype=np.float64)
    used = np.ones(features.shape[1], dtype=bool)
    while True:
        parameters = np.zeros(features.shape[1])
        parameters[used] = _newton(features[:, used], wanted)
        if (parameters[1:] >= 0).all():
            intercept, minimum, mean = map(float, parameters)
            return LogisticFit(intercept=intercept, minimum=minimum, mean=mean)
        used[1 + np.argmin(parameters[1:])] = False


def calibration_error(predicted: Float[np.ndarray, " items"], right: Bool[np.ndarray, " items"]) -> float:
    """Expected calibration error (Naeini et al. 2015; Guo et al. 2017), from 0 to 1.

    The distance of the mean probability from the share that is right, averaged over the items of ten bins.
    """
    bins = np.minimum((predicted * NUM_BINS).astype(int), NUM_BINS - 1)
    surplus = np.bincount(bins, weights=predicted - right, minlength=NUM_BINS)
    return float(np.abs(surplus).sum() / len(predicted))


def area_under_curve(predicted: Float[np.ndarray, " items"], right: Bool[np.ndarray, " items"]) -> float:
    """The probability that a right item has a higher probability than a wrong one, equal ones counting half.

    0.5 if all are right or all are wrong: nothing is told apart.
    """
    num_right = int(right.sum())
    num_wrong = len(right) - num_right
    if not num_right or not num_wrong:
        return 0.5
    _, groups, sizes = np.unique(predicted, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[groups]  # equal ones share the mean of their ranks
    return float((ranks[right].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))


def _features(token_scores: Sequence[Sequence[float]]) -> Float[np.ndarray, "items 3"]:
    """One for the intercept, and the log-odds of the lowest probability and of the geometric mean."""
    # Odds: a log-probability ends at 0, so that its fit could never come near to 1 where the model is nearly sure.
    scores = np.array([(min(of_item), sum(of_item) / len(of_item)) for of_item in token_scores], dtype=np.float64)
    scores = scores.reshape(-1, 2).clip(np.log(RAREST), np.log1p(-RAREST))
    return np.column_stack([np.ones(len(scores)), scores - np.log(-np.expm1(scores))])


def _predicted(
    parameters: Float[np.ndarray, " features"], features: Float[np.ndarray, "items features"]
) -> Float[np.ndarray, " items"]:
    logits: Float[np.ndarray, " items"] = features @ parameters
    found: Float[np.ndarray, " items"] = np.exp(-np.logaddexp(0.0, -logits))
    return found


def _newton(
    features: Float[np.ndarray, "items features"], targets: Float[np.ndarray, " items"]
) -> Float[np.ndarray, " features"]:
    def loss(parameters: Float[np.ndarray, " features"]) -> float:
        logits = features @ parameters
        return float((np.logaddexp(0.0, logits) - targets * logits).sum() + (parameters**2).sum() / 2)

    parameters = np.zeros(features.shape[1])
    for _ in range(100):  # some ten in practice
        predicted = _predicted(parameters, features)
        gradient = features.T @ (predicted - targets) + parameters
        curvature = (features * (predicted * (1 - predicted))[:, None]).T @ features + np.eye(len(parameters))
        step = np.linalg.solve(curvature, gradient)
        while loss(parameters - step) > loss(parameters) and np.abs(step).max() > 1e-9:
            step = step / 2  # far from the best, Newton's step may go too far
        parameters = parameters - step
        if np.abs(step).max() <= 1e-9:
            break
    return parameters
