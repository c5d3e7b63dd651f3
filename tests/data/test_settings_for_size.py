import re

import pytest

from transduce.config import PRESETS, UNLIMITED_UPDATES, load_run_config
from transduce.data.corpus_size import CorpusSize
from transduce.data.settings_for_size import (
    MEASURED_RUNS,
    choose_settings_for_size,
    describe_expected_quality,
    describe_expected_training,
    warn_of_few_pairs,
)


def news(num_pairs: int) -> CorpusSize:
    """A corpus of sentences as long as those of newspapers."""
    return CorpusSize(num_pairs, 150 * num_pairs)


@pytest.mark.parametrize(
    ("num_pairs", "preset"),
    [
        (0, "low-resource"),
        (200_000, "low-resource"),
        (200_001, "medium-resource"),
        (2_000_000, "medium-resource"),
        (2_000_001, "base"),
        (20_000_000, "base"),
        (20_000_001, "big"),
    ],
)
def test_a_larger_corpus_feeds_a_larger_model(num_pairs: int, preset: str) -> None:
    settings = choose_settings_for_size(news(num_pairs))
    assert settings["preset"] == preset
    assert preset in PRESETS
    config, origins = load_run_config(None, automatic=settings)
    assert config.preset == preset
    assert config.text.vocabulary == "fitted"
    assert origins["preset"] == "size of the corpus"


@pytest.mark.parametrize(
    ("num_characters", "time_limit", "dropout"),
    [
        (150_000, None, 0.4),
        (150_000, "1m", 0.4),
        (400_000, None, 0.3),
        (400_000, "1m", 0.3),
        (900_000, None, 0.2),
        (900_000, "30m", 0.2),
        (900_000, "10m", 0.1),
        (4_500_000, None, 0.2),
        (4_500_000, "2h", 0.2),
        (4_500_000, "30m", 0.1),
        (15_000_000, None, 0.1),
    ],
)
def test_less_text_and_more_passes_ask_for_more_dropout(
    num_characters: int, time_limit: str | None, dropout: float
) -> None:
    assert choose_settings_for_size(CorpusSize(6_000, num_characters), time_limit)["model.dropout"] == dropout


def test_a_run_ends_by_epochs_or_by_its_time_and_never_by_a_fixed_number_of_updates() -> None:
    lengths = [
        choose_settings_for_size(news(num_pairs))["training.epochs"] for num_pairs in (2_000, 6_000, 30_000, 100_000)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert "training.updates" not in choose_settings_for_size(news(6_000))
    timed = choose_settings_for_size(news(6_000), "30m")
    assert timed["training.updates"] == UNLIMITED_UPDATES
    assert "training.epochs" not in timed


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_of_the_users_choice_keeps_its_own_settings(preset: str) -> None:
    config, _ = load_run_config(None, automatic=choose_settings_for_size(news(6_000), preset=preset))
    alone, _ = load_run_config(None, settings=[f"preset={preset}", "text.vocabulary=fitted"])
    if preset == "low-resource":
        assert config == load_run_config(None, automatic=choose_settings_for_size(news(6_000)))[0]
    elif preset == "medium-resource":
        assert config == alone.with_training(epochs=120.0)
    else:
        assert config == alone


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_trained_for_a_given_time(preset: str) -> None:
    settings = choose_settings_for_size(news(6_000), "30m", preset)
    config, _ = load_run_config(None, automatic=settings, arguments={"training.time_limit": "30m"})
    assert config.preset == preset
    assert config.training.schedule == "warmup_stable_decay"
    assert config.training.learning_rate is not None
    assert 5e-4 <= config.training.learning_rate <= 3e-3
    own = PRESETS[preset].get("training", {}).get("learning_rate")
    assert own in {None, config.training.learning_rate}


def test_a_larger_corpus_needs_less_dropout() -> None:
    rates = [
        choose_settings_for_size(news(num_pairs))["model.dropout"] for num_pairs in (2_000, 6_000, 30_000, 100_000)
    ]
    assert rates == sorted(rates, reverse=True)
    assert "model.dropout" not in choose_settings_for_size(news(1_000_000))


def test_little_time_asks_for_a_small_network() -> None:
    assert choose_settings_for_size(news(400_000), "30m")["preset"] == "low-resource"
    assert (
        choose_settings_for_size(news(400_000), "10h")["preset"]
        == choose_settings_for_size(news(400_000))["preset"]
        == "medium-resource"
    )


@pytest.mark.parametrize("num_pairs", [0, 1_000, 150_000, 1_000_000, 5_000_000, 50_000_000])
def test_every_corpus_can_be_trained_on_for_a_given_time(num_pairs: int) -> None:
    settings = choose_settings_for_size(news(num_pairs), "3h")
    config, _ = load_run_config(None, automatic=settings, arguments={"training.time_limit": "3h"})
    assert config.training.time_limit_seconds == 3 * 3600
    assert config.training.schedule == "warmup_stable_decay"


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (CorpusSize(29_000, 2_000_000), "low-resource and passes 60 times over the pairs: about 56 min on two"),
        (CorpusSize(100_000, 15_000_000), "passes 30 times over the pairs: about 3 h 28 min on two"),
        (CorpusSize(10, 100), "passes 200 times over the pairs: about 1 min on two"),
        (news(300_000), "medium-resource and passes 12 times over the pairs: within its first minute, it prints"),
        (news(5_000_000), "base: within its first minute"),
    ],
)
def test_the_training_of_a_corpus_is_foretold(size: CorpusSize, words: str) -> None:
    assert words in describe_expected_training(size)


def test_the_nearest_corpus_of_each_kind_is_named() -> None:
    said = describe_expected_quality(7_000)
    assert said is not None
    comparable = [run for run in MEASURED_RUNS if 7_000 / 3 <= run.num_pairs <= 3 * 7_000]
    assert 0 < len(comparable) < len(MEASURED_RUNS)
    for run in MEASURED_RUNS:
        assert (run.text in said) == any(other.text == run.text for other in comparable)
    for text in {run.text for run in comparable}:
        nearest = min((run for run in comparable if run.text == text), key=lambda run: abs(run.num_pairs - 7_000))
        assert f"{text}, {nearest.num_pairs:,} pairs" in said
        assert f"BLEU {nearest.bleu:g}, chrF {nearest.chrf:g}" in said
        assert said.count(text) == 1


@pytest.mark.parametrize("num_pairs", [2_500, 7_000, 12_000, 30_000])
def test_results_of_the_corpus_that_is_nearest_in_size_come_first(num_pairs: int) -> None:
    said = describe_expected_quality(num_pairs)
    assert said is not None
    sizes = [int(size.replace(",", "")) for size in re.findall(r"([\d,]+) pairs", said)]
    ratios = [max(size / num_pairs, num_pairs / size) for size in sizes]
    assert ratios == sorted(ratios)
    assert len(ratios) > 1


def test_nothing_is_said_of_sizes_that_were_not_measured() -> None:
    assert describe_expected_quality(0) is None
    assert describe_expected_quality(10_000_000) is None


def test_few_pairs_are_warned_of() -> None:
    assert str(warn_of_few_pairs(1)).startswith("warning: 1 training pair can teach a model no language")
    assert str(warn_of_few_pairs(999)).startswith("warning: 999 training pairs can")
    assert [warn_of_few_pairs(num_pairs) for num_pairs in (0, 1_000, 10**6)] == [None] * 3
