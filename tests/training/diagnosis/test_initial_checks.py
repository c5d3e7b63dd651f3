from typing import Any

import pytest

from transduce.config import RunConfig, load_run_config
from transduce.config.presets import PRESETS
from transduce.training.diagnosis import History, TextFigures
from transduce.training.diagnosis.history import peak_rate
from transduce.training.diagnosis.initial_checks import (
    foreign_validation,
    high_rate,
    strong_dropout,
    swapped_validation,
    unrelated_pairs,
)

HEALTHY = {
    "unigram_loss": 6.0,
    "num_blocks": 6,
    "unrelated_blocks": 0,
    "first_unrelated": 0,
    "pair_association": 2.6,
    "source_similarity": 1.0,
    "target_similarity": 0.9,
    "swapped_similarity": 0.3,
}


def run_with(**figures: Any) -> History:
    assert HEALTHY.keys() == TextFigures.__dataclass_fields__.keys()
    return History(RunConfig(), [{"kind": "data", "update": 0, "text": {**HEALTHY, **figures}}])


def test_healthy_text_and_runs_of_earlier_versions_are_not_suspected() -> None:
    for run in (run_with(), History(RunConfig(), [{"kind": "data", "update": 0}]), History(RunConfig(), [])):
        for check in (unrelated_pairs, swapped_validation, foreign_validation):
            assert check(run) is None


def test_pairs_that_do_not_belong_together_are_named_with_their_place() -> None:
    assert "in 6 of 6 stretches of the training text, words" in str(unrelated_pairs(run_with(unrelated_blocks=6)))
    found = unrelated_pairs(run_with(unrelated_blocks=2, first_unrelated=4000))
    assert "in 2 of 6 stretches of the training text, first after pair 4,000 of those kept" in str(found)


def test_swapped_sides_are_not_called_another_language() -> None:
    swapped = run_with(source_similarity=0.3, target_similarity=0.28, swapped_similarity=0.95)
    assert "the other way round" in str(swapped_validation(swapped))
    assert foreign_validation(swapped) is None


@pytest.mark.parametrize(("source", "target"), [(0.2, 0.9), (0.9, 0.2), (0.2, 0.1)])
def test_the_side_in_another_language_is_named(source: float, target: float) -> None:
    found = str(foreign_validation(run_with(source_similarity=source, target_similarity=target)))
    assert ("data.validation_source" in found) == (source < 0.5)
    assert ("data.validation_target" in found) == (target < 0.5)
    assert swapped_validation(run_with(source_similarity=source, target_similarity=target)) is None


def test_two_sides_in_one_language_are_not_swapped() -> None:
    assert swapped_validation(run_with(swapped_similarity=0.99)) is None


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_has_a_high_rate_and_ten_times_the_rate_of_each_is_one(preset: str) -> None:
    config, _ = load_run_config(None, arguments={"preset": preset})
    assert high_rate(History(config, [])) is None
    change = (
        {"training.learning_rate": 10 * config.training.learning_rate}
        if config.training.learning_rate is not None
        else {"training.warmup": config.training.warmup // 100}
    )
    ill, _ = load_run_config(None, arguments={"preset": preset, **change})
    assert peak_rate(ill) == pytest.approx(10 * peak_rate(config))
    assert next(iter(change)) in str(high_rate(History(ill, [])))


def test_the_proposed_rate_is_not_high() -> None:
    ill, _ = load_run_config(None, arguments={"preset": "tiny", "training.learning_rate": 0.05})
    assert "set it to about 0.002" in str(high_rate(History(ill, [])))


@pytest.mark.parametrize(("dropout", "is_named"), [(0.0, False), (0.3, False), (0.5, False), (0.6, True), (0.9, True)])
def test_strong_dropout_is_named(dropout: float, is_named: bool) -> None:
    config, _ = load_run_config(None, arguments={"model.dropout": dropout})
    assert (f"model.dropout = {dropout}" in str(strong_dropout(History(config, [])))) == is_named
