from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import load_run_config
from transduce.training.diagnosis.history import RunHistory
from transduce.training.diagnosis.output_checks import (
    commonest_share,
    find_end_of_exposure_bias,
    find_end_of_one_output,
    find_end_of_overfitting,
    find_end_of_repetition,
    find_exposure_bias,
    find_one_output,
    find_overfitting,
    find_repetition,
    repetition_share,
    token_f1,
)

sentences = st.lists(st.lists(st.integers(2, 9), max_size=6), min_size=1, max_size=4)


@given(sentences, st.randoms())
def test_the_order_of_tokens_does_not_matter(references: list[list[int]], random: Any) -> None:
    shuffled = [random.sample(reference, len(reference)) for reference in references]
    assert token_f1(shuffled, references) == 1.0
    assert token_f1([[1] for _ in references], references) == 0.0


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ([5, 6], [5, 7], 0.5),
        ([5, 5, 5, 5], [5, 7], 2 / 6),  # each token of the reference counts once
        ([], [5], 0.0),
        ([5], [5, 6, 7], 2 / 4),
    ],
)
def test_tokens_in_common(hypothesis: list[int], reference: list[int], expected: float) -> None:
    assert token_f1([hypothesis], [reference]) == pytest.approx(expected)
    assert token_f1([reference], [hypothesis]) == pytest.approx(expected)
    # Over all sentences, not the mean of each.
    assert token_f1([hypothesis, [8] * 10], [reference, [8] * 10]) > expected


@pytest.mark.parametrize(
    ("translations", "expected"),
    [
        (["x", "x", "x", "x"], 1.0),
        (["x", "y", "x", "z"], 0.5),
        (["w", "x", "y", "z"], 0.25),
    ],
)
def test_the_share_of_the_most_frequent_translation(translations: list[str], expected: float) -> None:
    assert commonest_share(["a", "b", "c", "d"], translations) == expected


def test_equal_sources_may_have_equal_translations() -> None:
    assert commonest_share(["a", "a", "a", "b"], ["x", "x", "x", "y"]) == 0.5
    assert commonest_share(["a"], ["x"]) == 0.0


def test_the_share_of_translations_that_repeat_themselves() -> None:
    sources = ["The article said that Iran is an exception."] * 2
    repeated = "A lokacin wani bangare na farko na farko na farko na farko na farko da aka samu."
    assert repetition_share(sources, [repeated, "Tana cewa Iran dai ta bambanta."]) == 0.5
    assert repetition_share([repeated], [repeated]) == 0.0


CONFIG, _ = load_run_config(None, arguments={"preset": "tiny", "training.updates": 1000})
Line = dict[str, Any]


def run_of(*validations: Line, training_loss: float = 2.0, every: int = 100) -> RunHistory:
    lines: list[Line] = []
    for number, figures in enumerate(validations, start=1):
        usual = {"loss": 4.0 / number, "accuracy": 0.5, "token_f1": 0.5, "is_best": False}
        lines.append({"kind": "training", "update": every * number, "cross_entropy": training_loss})
        lines.append({"kind": "validation", "update": every * number, **usual, **figures})
    return RunHistory(CONFIG, lines)


def line(accuracy: float, own: float) -> Line:
    return {"accuracy": accuracy, "token_f1": own}


AHEAD, HEALTHY, YOUNG = line(0.9, 0.3), line(0.9, 0.8), line(0.3, 0.0)


@pytest.mark.parametrize(
    ("validations", "is_said"),
    [
        ([], False),
        ([AHEAD], False),
        ([AHEAD, AHEAD], True),
        ([AHEAD, HEALTHY, AHEAD], False),
        ([AHEAD, HEALTHY, AHEAD, AHEAD], True),
        ([YOUNG, YOUNG, YOUNG], False),
        ([HEALTHY, HEALTHY], False),
    ],
)
def test_a_lead_of_the_accuracy_is_said_only_if_it_lasts(validations: list[Line], is_said: bool) -> None:
    assert (find_exposure_bias(run_of(*validations)) is not None) == is_said


def test_what_an_older_version_logged_is_not_judged() -> None:
    old = [{"kind": "validation", "update": update, "accuracy": 0.9, "loss": 1.0} for update in (1, 2, 3, 4)]
    for check in (find_exposure_bias, find_one_output, find_repetition, find_overfitting):
        assert check(RunHistory(CONFIG, old)) is None


def test_the_end_of_a_lead() -> None:
    assert find_end_of_exposure_bias(run_of(AHEAD, AHEAD)) is None
    assert find_end_of_exposure_bias(run_of(AHEAD, YOUNG)) is None
    assert "have 80%" in str(find_end_of_exposure_bias(run_of(AHEAD, HEALTHY)))


SAME, DIFFERENT = {"commonest_share": 0.9, "repetition_share": 0.6}, {"commonest_share": 0.02, "repetition_share": 0.03}


@pytest.mark.parametrize("check", [find_one_output, find_repetition])
def test_what_a_model_writes_is_judged_once_it_is_no_longer_young(check: Any) -> None:
    young = {**SAME, "accuracy": 0.2}
    assert check(run_of(SAME)) is None
    assert check(run_of(DIFFERENT, SAME)) is None
    assert check(run_of(DIFFERENT, DIFFERENT)) is None
    assert check(run_of(SAME, SAME)) is not None
    # The healthiest of news models write the same for everything after 200 updates, and repeat themselves at 1,000.
    assert check(run_of(young, young, young, young)) is None
    # In the second half of the run, still so if the loss goes on falling, but not once it stands still.
    assert check(run_of(*[young] * 8)) is None
    still = [{**young, "loss": 5.0}] * 8
    assert check(run_of(*still[:4])) is None
    assert check(run_of(*still)) is not None


def test_the_end_of_one_output_and_of_repetition() -> None:
    for check in (find_end_of_one_output, find_end_of_repetition):
        assert check(run_of(SAME, SAME)) is None
        assert check(run_of(SAME, DIFFERENT)) is not None


def test_overfitting_names_the_best_update_and_the_setting() -> None:
    losses = (3.0, 2.5, 2.4, 2.55, 2.6, 2.7)
    validations = [{"loss": loss, "is_best": number < 3} for number, loss in enumerate(losses)]
    found = str(find_overfitting(run_of(*validations, training_loss=1.2)))
    assert "lowest after update 300 (2.40) and is 2.70 now, on the training text it is 1.20" in found
    assert "model.dropout (now 0.3)" in found
    assert find_overfitting(run_of(*validations[:5], training_loss=1.2)) is None  # not for long enough
    assert find_overfitting(run_of(*validations, training_loss=2.8)) is None  # the loss rises everywhere
    better = [*validations[:-1], {"loss": 2.7, "is_best": True}]
    assert find_overfitting(run_of(*better, training_loss=1.2)) is None  # as BLEU may, while the loss rises
    assert find_end_of_overfitting(run_of(*validations)) is None
    assert find_end_of_overfitting(run_of(*better)) is not None
