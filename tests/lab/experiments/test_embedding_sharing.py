"""Verdicts on parameters, loss and BLEU of models with one embedding matrix and with two."""

from collections.abc import Callable

import pytest

from transduce.config import TransformerConfig
from transduce.lab import Laboratory, Measurement
from transduce.lab.experiments.embedding_sharing import EXPERIMENT, ONE, TWO, VARIANTS
from transduce.lab.laboratory import SETTINGS


def test_both_variants_are_trained(planned: Laboratory) -> None:
    assert [trial.settings for trial in EXPERIMENT.plan(planned)] == [{"variant": ONE}, {"variant": TWO}]


def count_parameters(variant: str) -> float:
    settings = {**SETTINGS, **VARIANTS[variant], "model.vocabulary": SETTINGS["text.vocabulary"]}
    own = {name.removeprefix("model."): value for name, value in settings.items() if name.startswith("model.")}
    return TransformerConfig.model_validate(own).num_parameters


@pytest.mark.parametrize(
    ("loss", "bleu", "verdicts"),
    [
        ([0.501, 0.502, 0.5], [70.0, 70.2, 70.1], ["supported", "supported", "supported"]),
        ([0.6, 0.61, 0.6], [60.0, 60.5, 61.0], ["supported", "not supported", "not supported"]),
        ([0.4, 0.6, 0.5], [60.0, 80.0, 70.0], ["supported", "not decided", "not decided"]),
    ],
)
def test_verdicts(
    make_up: Callable[..., list[Measurement]],
    judge: Callable[..., list[str]],
    loss: list[float],
    bleu: list[float],
    verdicts: list[str],
) -> None:
    one = make_up({"variant": ONE}, loss=loss, bleu=bleu, parameters=3 * [count_parameters(ONE)])
    two = make_up(
        {"variant": TWO}, loss=[0.5, 0.5, 0.5], bleu=[70.0, 70.0, 70.0], parameters=3 * [count_parameters(TWO)]
    )
    assert judge(EXPERIMENT, one + two) == verdicts
    assert judge(EXPERIMENT, one) == 3 * ["not decided"]


def test_wrong_number_of_parameters_is_noticed(
    make_up: Callable[..., list[Measurement]], judge: Callable[..., list[str]]
) -> None:
    results = make_up({"variant": ONE}, parameters=[100.0]) + make_up({"variant": TWO}, parameters=[101.0])
    assert judge(EXPERIMENT, results)[0] == "not supported"


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("embedding-sharing")
