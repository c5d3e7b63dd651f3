import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.bundle import LogisticFit
from transduce.translation.logistic import (
    area_under_curve,
    calibration_error,
    fit_logistic,
    probabilities,
)

SCORES = st.lists(st.floats(-50, 0), min_size=1, max_size=4)
ITEMS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30)


def probability(fit: LogisticFit, token_scores: list[float]) -> float:
    (found,) = probabilities(fit, [token_scores])
    return float(found)


def drawn(fit: LogisticFit, count: int, seed: int = 0) -> tuple[list[list[float]], list[bool]]:
    """Items that are right as often as `fit` says."""
    random = np.random.default_rng(seed)
    scores = [list(-random.exponential(1.5, size=random.integers(1, 5))) for _ in range(count)]
    return scores, (random.random(count) < probabilities(fit, scores)).tolist()


def test_what_made_the_data_is_found_again() -> None:
    truth = LogisticFit(intercept=1.5, minimum=0.6, mean=0.3)
    scores, right = drawn(truth, 20_000)
    found = fit_logistic(scores, right)
    assert found.intercept == pytest.approx(truth.intercept, abs=0.1)
    assert np.abs(probabilities(found, scores) - probabilities(truth, scores)).max() < 0.03
    other_scores, other_right = drawn(truth, 20_000, seed=1)
    predicted = probabilities(found, other_scores)
    assert calibration_error(predicted, np.array(other_right)) < 0.02
    assert calibration_error(predicted**3, np.array(other_right)) > 0.1


def test_a_share_of_what_is_right_can_be_fitted_too() -> None:
    truth = LogisticFit(intercept=0.5, minimum=0.2, mean=0.4)
    scores, _ = drawn(truth, 2000)
    found = fit_logistic(scores, probabilities(truth, scores).tolist())
    assert probabilities(found, scores) == pytest.approx(probabilities(truth, scores), abs=0.01)


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=20))
def test_the_surer_the_model_the_surer_the_fit(items: list[tuple[list[float], bool]]) -> None:
    scores, right = [one for one, _ in items], [is_right for _, is_right in items]
    fit = fit_logistic(scores, right)
    assert np.isfinite([fit.intercept, fit.minimum, fit.mean]).all()
    assert probabilities(fit, scores).tolist() == pytest.approx([probability(fit, of_word) for of_word in scores])
    for of_word in scores:
        assert 0 <= probability(fit, of_word) <= probability(fit, [score / 2 for score in of_word]) <= 1


def test_where_all_are_right_nearly_nothing_is_in_doubt() -> None:
    scores, _ = drawn(LogisticFit(intercept=0.0, minimum=1.0, mean=0.0), 500)
    assert probabilities(fit_logistic(scores, [True] * 500), scores).mean() > 0.95
    assert probabilities(fit_logistic(scores, [False] * 500), scores).mean() < 0.05


@given(st.floats(-9, -1e-4))
def test_weights_that_add_up_to_one_leave_a_probability_as_it_is(score: float) -> None:
    fit = LogisticFit(intercept=0.0, minimum=0.25, mean=0.75)
    assert probability(fit, [score]) == pytest.approx(np.exp(score))


def test_certainty_and_impossibility_are_finite() -> None:
    fit = LogisticFit(intercept=0.0, minimum=1.0, mean=1.0)
    assert 0 < probability(fit, [-1e9]) < probability(fit, [0.0]) < 1


def test_what_runs_against_the_model_is_ignored() -> None:
    scores = [[-0.1], [-5.0]] * 100
    fit = fit_logistic(scores, [False, True] * 100)
    assert (fit.minimum, fit.mean) == (0.0, 0.0)
    assert probability(fit, [-3.0]) == pytest.approx(0.5)


@given(ITEMS)
def test_the_area_is_the_share_of_pairs_in_order(items: list[tuple[float, bool]]) -> None:
    predicted, right = np.array([one for one, _ in items]), np.array([is_right for _, is_right in items])
    pairs = [(one, other) for one in predicted[right] for other in predicted[~right]]
    expected = float(np.mean([(one > other) + (one == other) / 2 for one, other in pairs])) if pairs else 0.5
    assert area_under_curve(predicted, right) == pytest.approx(expected)


@given(ITEMS)
def test_the_calibration_error_is_what_its_definition_says(items: list[tuple[float, bool]]) -> None:
    predicted, right = np.array([one for one, _ in items]), np.array([is_right for _, is_right in items])
    expected = 0.0
    for low in range(10):
        inside = (predicted * 10 >= low) & ((predicted * 10 < low + 1) | (low == 9))
        if inside.any():
            expected += inside.mean() * abs(predicted[inside].mean() - right[inside].mean())
    found = calibration_error(predicted, right)
    assert found == pytest.approx(expected)
    assert 0 <= found <= 1


def test_perfect_probabilities_have_no_error() -> None:
    right = np.array([True, False, True, True])
    assert calibration_error(right.astype(float), right) == 0
    assert area_under_curve(right.astype(float), right) == 1
    assert calibration_error(1 - right.astype(float), right) == 1
