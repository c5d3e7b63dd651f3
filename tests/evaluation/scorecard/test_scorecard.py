import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from transduce.config import SearchConfig
from transduce.errors import CorpusError
from transduce.evaluation import Scorecard, Sentence, measure_scorecard
from transduce.evaluation.scorecard import BEHAVIOURS, MAX_RETRIED, NUM_EXAMPLES
from transduce.translation import Translator

from .rules import (
    FAULTS,
    TAG,
    Rule,
    drop_after_first_sentence,
    forget_numbers,
    repeat_last_word,
    stumble_at_capitals,
    translate_perfectly,
)

Sentences = Callable[..., list[Sentence]]
MakeTranslator = Callable[..., Translator]


def scores(card: Scorecard) -> dict[str, float]:
    return {result.figures.name: result.figures.score for result in card.results}


def result_of(card: Scorecard, name: str) -> Any:
    return next(result for result in card.results if result.figures.name == name)


def test_a_perfect_model_has_full_marks(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    card = measure_scorecard(make_translator(), make_sentences(60))
    assert scores(card) == {behaviour.name: 100 for behaviour in BEHAVIOURS}
    assert not card.skipped
    for result in card.results:
        assert (result.figures.num_problems, result.figures.option, result.examples) == (0, None, ())
        assert result.figures.lost_chrf in {None, 0}


@pytest.mark.parametrize(("rule", "found"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_is_found_where_it_is(
    make_translator: MakeTranslator, make_sentences: Sentences, rule: Rule, found: set[str]
) -> None:
    card = measure_scorecard(make_translator(rule), make_sentences(24))
    assert {name for name, score in scores(card).items() if score < 60} == found
    for name in found:
        result = result_of(card, name)
        assert 0 < len(result.examples) <= NUM_EXAMPLES
        assert all(example.problem for example in result.examples)
        assert result.figures.num_problems <= result.figures.num_cases


def test_examples_are_what_was_translated(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    card = measure_scorecard(make_translator(forget_numbers), make_sentences(20))
    for example in result_of(card, "numbers").examples:
        assert example.translation == forget_numbers(example.text)
        assert re.fullmatch(r"lost: [\d.,]+", example.problem)
        assert example.problem.removeprefix("lost: ") in example.text


def test_all_inputs_are_translated_together(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    translator = make_translator()
    card = measure_scorecard(translator, make_sentences(20))
    assert translator.engine.num_searches == 1  # type: ignore[attr-defined]
    assert card.num_translations > 5 * card.num_sentences


def test_lost_chrf_is_measured_against_references(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    sentences = make_sentences(20)
    card = measure_scorecard(make_translator(stumble_at_capitals), sentences)
    lost = {result.figures.name: result.figures.lost_chrf for result in card.results}
    assert lost.pop("all caps") > 60
    assert {name: value for name, value in lost.items() if value is not None} == {
        "no capitals": 0,
        "typing errors": 0,
        "no full stop": 0,
    }
    without = measure_scorecard(make_translator(), [Sentence(one.source) for one in sentences])
    assert all(result.figures.lost_chrf is None for result in without.results)


def test_what_is_measured_depends_on_the_seed_alone(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    def measure(seed: int) -> dict[str, Any]:
        found = measure_scorecard(make_translator(str), make_sentences(20), seed=seed).as_json()
        return {name: value for name, value in found.items() if name not in {"seconds", "seed"}}

    assert measure(1) == measure(1)
    assert measure(1) != measure(2)


def test_sentences_are_chosen_from_all_of_the_text(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    def fail(text: str) -> str:
        return translate_perfectly(text) if "1" not in text else ""

    text = [Sentence(f"Morning garden {'1' if number >= 90 else ''} number {'x' * number}") for number in range(100)]
    card = measure_scorecard(make_translator(fail), text, num_sentences=10)
    assert card.num_sentences == 10
    assert 0 < scores(card)["all caps"] < 100
    repeated = [*make_sentences(3), Sentence(""), Sentence("  "), Sentence("river " * 500)] * 2
    assert measure_scorecard(make_translator(), repeated).num_sentences == 3


@pytest.mark.parametrize("text", [[], [Sentence("")], [Sentence("river " * 500)]])
def test_text_without_a_usable_sentence_is_refused(make_translator: MakeTranslator, text: list[Sentence]) -> None:
    with pytest.raises(CorpusError, match="no sentence is usable"):
        measure_scorecard(make_translator(), text)


CHINESE = ["我喜欢猫。", "他在看电影。", "今天天气很好。", "我们去公园吧。", "这本书很有意思。"]
ARABIC = ["أحب القطط كثيرا.", "هو يشاهد الفيلم.", "الطقس جميل اليوم.", "هذا الكتاب مفيد جدا."]


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        (CHINESE, {"all caps", "no capitals", "typing errors", "one word", "repeated word", "translated"}),
        (ARABIC, {"all caps", "no capitals", "translated"}),
    ],
)
def test_what_a_language_does_not_have_is_skipped(
    make_translator: MakeTranslator, text: list[str], skipped: set[str]
) -> None:
    card = measure_scorecard(make_translator(lambda text: f"about {text}"), [Sentence(line) for line in text])
    # The rule for copies needs four words; each Chinese character counts as one.
    assert set(card.skipped) | {"translated"} == skipped | {"translated"}
    assert set(card.skipped).isdisjoint(scores(card))
    assert all(card.skipped.values())


def test_in_the_same_language_a_copy_is_none(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    card = measure_scorecard(make_translator(str, target_language="en"), make_sentences(10))
    assert "the same" in card.skipped["translated"]


def test_the_guard_is_tried_where_it_helps(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    def loop_unless_forbidden(text: str, config: SearchConfig) -> str:
        return translate_perfectly(text) if config.no_repeat_ngram else repeat_last_word(text)

    card = measure_scorecard(make_translator(with_settings=loop_unless_forbidden), make_sentences(30))
    loops = result_of(card, "no loops").figures
    assert (loops.score, loops.option, loops.score_with_option) == (0, "--guard", 100)
    assert loops.num_cases > MAX_RETRIED  # the others count like these


def test_an_option_that_does_not_help_is_not_named(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    card = measure_scorecard(make_translator(repeat_last_word), make_sentences(10))
    assert result_of(card, "no loops").figures.option is None


def test_documents_are_tried_where_sentences_are_lost(
    make_translator: MakeTranslator, make_sentences: Sentences
) -> None:
    card = measure_scorecard(make_translator(drop_after_first_sentence), make_sentences(20))
    figures = result_of(card, "several sentences").figures
    assert (figures.score, figures.option, figures.score_with_option) == (0, "--document", 100)
    assert result_of(card, "long input").figures.score == 100  # its sentences are translated alone


def test_an_engine_without_an_option_is_measured_without(
    make_translator: MakeTranslator, make_sentences: Sentences
) -> None:
    card = measure_scorecard(make_translator(forget_numbers), make_sentences(10))
    assert result_of(card, "numbers").figures.option is None  # protection reads the attention of the native engine


def test_a_tag_stays_as_it_is(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    def need_tag(text: str) -> str:
        return translate_perfectly(text.removeprefix(f"{TAG} ")) if text.startswith(TAG) else ""

    sentences = [Sentence(f"{TAG} {one.source}", one.reference) for one in make_sentences(20)]
    card = measure_scorecard(make_translator(need_tag), [*sentences, Sentence("Without one.")])
    assert card.num_sentences == 20
    assert set(scores(card).values()) == {100}


def test_the_record_has_no_sentences(make_translator: MakeTranslator, make_sentences: Sentences) -> None:
    card = measure_scorecard(make_translator(str), make_sentences(10))
    record = card.as_record("test.en", {})
    assert [one.name for one in record.behaviours] == list(scores(card))
    assert "river" not in record.model_dump_json()
    assert "river" in json.dumps(card.as_json())
