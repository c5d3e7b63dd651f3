import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import RunConfig, load_run_config
from transduce.config.presets import PRESETS
from transduce.data import PreparedData
from transduce.training.diagnosis.history import RunHistory, peak_rate
from transduce.training.diagnosis.initial_checks import (
    UNRELATED,
    TextFigures,
    entropy,
    find_foreign_validation,
    find_high_rate,
    find_strong_dropout,
    find_swapped_validation,
    find_unrelated_pairs,
    measure_text,
    neighbours_association,
    pair_association,
    similarity,
)

SENTENCES = [
    [int(token) for token in np.random.default_rng(number).geometric(0.1, size=12).clip(max=60)]
    for number in range(400)
]
MEANINGS = np.random.default_rng(7).permutation(100)


def translated(sentence: list[int]) -> list[int]:
    return [int(MEANINGS[token]) for token in reversed(sentence)]


@given(st.dictionaries(st.integers(), st.integers(1, 50), min_size=1, max_size=20))
def test_entropy_is_highest_where_all_tokens_are_alike(counts: dict[int, int]) -> None:
    assert -1e-9 <= entropy(counts) <= math.log(len(counts)) + 1e-9
    assert entropy(dict.fromkeys(counts, 3)) == pytest.approx(math.log(len(counts)))


def test_translations_are_told_from_pairs_put_together_at_random() -> None:
    targets = [translated(sentence) for sentence in SENTENCES]
    assert pair_association(SENTENCES, targets) > 2 * UNRELATED
    for shift in (1, 2, 100):
        assert 0.9 < pair_association(SENTENCES, targets[shift:] + targets[:shift]) < 1.15


def test_the_order_of_pairs_and_the_names_of_tokens_do_not_matter() -> None:
    targets = [translated(sentence) for sentence in SENTENCES]
    renamed = [[token + 1000 for token in sentence] for sentence in reversed(targets)]
    found = pair_association(SENTENCES, targets)
    assert pair_association(SENTENCES[::-1], renamed) == pytest.approx(found, rel=1e-4)


def test_neighbours_that_share_a_topic_are_not_taken_for_translations() -> None:
    topics = np.random.default_rng(3).integers(100, 120, size=len(SENTENCES)).repeat(4)[: len(SENTENCES)].tolist()
    sources = [[*sentence, topic] for sentence, topic in zip(SENTENCES, topics, strict=True)]
    targets = [[*translated(sentence), topic] for sentence, topic in zip(SENTENCES, topics, strict=True)]
    assert pair_association(sources, targets) > neighbours_association(sources, targets) > UNRELATED
    for late in (targets[1:] + targets[:1], targets[-1:] + targets[:-1]):
        assert UNRELATED < pair_association(sources, late) < neighbours_association(sources, late)


@pytest.mark.parametrize("sentences", [[[1]] * 300, [[number] for number in range(300)]])
def test_text_that_says_nothing_is_not_judged(sentences: list[list[int]]) -> None:
    assert pair_association(sentences, sentences) == 1.0


ENGLISH = [f"the {colour} {animal} runs through the {place}" for colour in ("red", "black", "small") for animal in
           ("dog", "horse", "bird", "fox") for place in ("street", "forest", "garden")]  # fmt: skip
GERMAN = [f"der {colour} {animal} rennt durch {place}" for colour in ("rote", "schwarze", "kleine") for animal in
          ("Hund", "Hengst", "Vogel", "Fuchs") for place in ("die Straße", "den Wald", "den Garten")]  # fmt: skip


def test_a_language_is_like_itself_and_unlike_another() -> None:
    assert similarity(ENGLISH[::3], ENGLISH) == pytest.approx(1, abs=0.15)
    assert similarity(GERMAN[::3], GERMAN) == pytest.approx(1, abs=0.15)
    assert similarity(GERMAN[::3], ENGLISH) < 0.4
    assert similarity(ENGLISH[::3], GERMAN) < 0.4


@pytest.mark.parametrize("texts", [["x"], [""], ["日本"]])
def test_few_and_strange_texts_have_a_likeness(texts: list[str]) -> None:
    assert similarity(texts, ENGLISH) >= 0
    assert similarity(ENGLISH, texts) >= 0


def test_the_text_of_a_run(
    make_config: Callable[..., RunConfig], prepare_for: Callable[[RunConfig], PreparedData]
) -> None:
    prepared = prepare_for(make_config())
    figures = measure_text(prepared)
    # Of 120 pairs, too few to judge whether they belong together.
    assert (figures.num_blocks, figures.unrelated_blocks, figures.pair_association) == (0, 0, None)
    assert 2 < figures.unigram_loss < math.log(prepared.tokenizer.vocabulary)
    # The same words in another order: both sides are alike, and everything is in one language.
    assert min(figures.source_similarity, figures.target_similarity, figures.swapped_similarity) > 0.6


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


def run_with(**figures: Any) -> RunHistory:
    assert HEALTHY.keys() == TextFigures.__dataclass_fields__.keys()
    return RunHistory(RunConfig(), [{"kind": "data", "update": 0, "text": {**HEALTHY, **figures}}])


def test_healthy_text_and_runs_of_earlier_versions_are_not_suspected() -> None:
    for run in (run_with(), RunHistory(RunConfig(), [{"kind": "data", "update": 0}]), RunHistory(RunConfig(), [])):
        for check in (find_unrelated_pairs, find_swapped_validation, find_foreign_validation):
            assert check(run) is None


def test_pairs_that_do_not_belong_together_are_named_with_their_place() -> None:
    assert "in 6 of 6 stretches of the training text, words" in str(find_unrelated_pairs(run_with(unrelated_blocks=6)))
    found = find_unrelated_pairs(run_with(unrelated_blocks=2, first_unrelated=4000))
    assert "in 2 of 6 stretches of the training text, first after pair 4,000 of those kept" in str(found)


def test_swapped_sides_are_not_called_another_language() -> None:
    swapped = run_with(source_similarity=0.3, target_similarity=0.28, swapped_similarity=0.95)
    assert "the other way round" in str(find_swapped_validation(swapped))
    assert find_foreign_validation(swapped) is None


@pytest.mark.parametrize(("source", "target"), [(0.2, 0.9), (0.9, 0.2), (0.2, 0.1)])
def test_the_side_in_another_language_is_named(source: float, target: float) -> None:
    found = str(find_foreign_validation(run_with(source_similarity=source, target_similarity=target)))
    assert ("data.validation_source" in found) == (source < 0.5)
    assert ("data.validation_target" in found) == (target < 0.5)
    assert find_swapped_validation(run_with(source_similarity=source, target_similarity=target)) is None


def test_two_sides_in_one_language_are_not_swapped() -> None:
    assert find_swapped_validation(run_with(swapped_similarity=0.99)) is None


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_has_a_high_rate_and_ten_times_the_rate_of_each_is_one(preset: str) -> None:
    config, _ = load_run_config(None, arguments={"preset": preset})
    assert find_high_rate(RunHistory(config, [])) is None
    change = (
        {"training.learning_rate": 10 * config.training.learning_rate}
        if config.training.learning_rate is not None
        else {"training.warmup": config.training.warmup // 100}
    )
    ill, _ = load_run_config(None, arguments={"preset": preset, **change})
    assert peak_rate(ill) == pytest.approx(10 * peak_rate(config))
    assert next(iter(change)) in str(find_high_rate(RunHistory(ill, [])))


def test_the_proposed_rate_is_not_high() -> None:
    ill, _ = load_run_config(None, arguments={"preset": "tiny", "training.learning_rate": 0.05})
    assert "set it to about 0.002" in str(find_high_rate(RunHistory(ill, [])))


@pytest.mark.parametrize(("dropout", "is_named"), [(0.0, False), (0.3, False), (0.5, False), (0.6, True), (0.9, True)])
def test_strong_dropout_is_named(dropout: float, is_named: bool) -> None:
    config, _ = load_run_config(None, arguments={"model.dropout": dropout})
    assert (f"model.dropout = {dropout}" in str(find_strong_dropout(RunHistory(config, [])))) == is_named
