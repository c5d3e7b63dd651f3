from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.evaluation import Sentence
from transduce.evaluation.scorecard.behaviour import SourceText
from transduce.evaluation.scorecard.changed_input import (
    CHANGED_INPUT,
    compute_chrf,
    make_typing_errors,
    measure_lost_chrf,
    remove_full_stop,
)
from transduce.evaluation.scorecard.every_translation import EVERY_TRANSLATION
from transduce.evaluation.scores import score_corpus
from transduce.text import find_protected_spans
from transduce.text.letter_case import to_lower_case, to_upper_case
from transduce.translation import Translator

WORDS = st.lists(st.text(st.characters(categories=["Ll"], max_codepoint=0x17F), min_size=1, max_size=9), max_size=12)


@given(WORDS, st.integers(0, 9))
def test_typing_errors_leave_words_readable(words: list[str], seed: int) -> None:
    text = " ".join(words)
    changed = make_typing_errors(text, seed)
    assert changed == make_typing_errors(text, seed)
    different = 0
    for before, after in zip(words, changed.split(" "), strict=True) if words else ():
        assert len(before) - 1 <= len(after) <= len(before)
        assert (before[0], before[-1]) == (after[0], after[-1])
        if len(before) == len(after):
            assert sorted(before) == sorted(after)
        if len(before) < 4:
            assert before == after
        different += before != after
    num_long = sum(len(word) > 3 for word in words)
    assert different == (max(1, round(num_long / 5)) if num_long else 0)


def test_both_kinds_of_typing_errors_occur() -> None:
    found = {make_typing_errors("thunder", seed) for seed in range(60)}
    assert {"tuhnder", "thnder"} <= found
    assert "thunder" not in found
    assert {len(word) for word in found} == {6, 7}


@pytest.mark.parametrize(
    "text",
    [
        "a in of",
        "https://example.org/meadow info@example.org {placeholder} <strong>",
        "我今天下午要去公园",
        "2019 1234",
    ],
)
def test_what_is_no_word_has_no_typing_errors(text: str) -> None:
    assert all(make_typing_errors(text, seed) == text for seed in range(20))


def test_addresses_stay_beside_typing_errors() -> None:
    text = "Write letters to information@example.org about https://example.org/meadows tomorrow."
    for seed in range(20):
        changed = make_typing_errors(text, seed)
        assert changed != text
        assert [changed[span.start : span.end] for span in find_protected_spans(changed)] == [
            "information@example.org",
            "https://example.org/meadows",
        ]


@pytest.mark.parametrize("language", ["tr", "az-AZ", "crh"])
@pytest.mark.parametrize("name", ["all caps", "no capitals"])
def test_capitals_of_the_language_do_not_count(
    make_translator: Callable[..., Translator], name: str, language: str
) -> None:
    (behaviour,) = (one for one in CHANGED_INPUT if one.name == name)
    write = to_upper_case if name == "all caps" else to_lower_case
    translation = "Işıklı kırmızı İstanbul"
    for changed, is_right in ((write(translation, language), True), ("Bambaşka bir söz", False)):
        text = SourceText((Sentence("The red City.", translation),), make_translator(target_language=language))
        (case,) = behaviour.make_cases(text)
        translations = {case.text: changed, "The red City.": translation}
        assert (behaviour.judge(case, translations).score == 1) == is_right
        assert (measure_lost_chrf(behaviour, [case], translations) == 0) == is_right


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("A dog. ", "A dog"),
        ("我喜欢猫。", "我喜欢猫"),
        ("यह किताब है।", "यह किताब है"),
        ("A dog", "A dog"),
        ("A dog...", "A dog..."),
        ("A dog?", "A dog?"),
        ("3.5", "3.5"),
    ],
)
def test_only_full_stops_are_removed(text: str, bare: str) -> None:
    assert remove_full_stop(text) == bare


@given(st.text(max_size=20), st.text(max_size=20))
def test_chrf_is_that_of_sacrebleu(hypothesis: str, reference: str) -> None:
    found = compute_chrf(hypothesis, reference)
    assert 0 <= found <= 1
    assert compute_chrf(reference, reference) == 1
    expected = score_corpus(["The old dog sleeps."], ["The dog sleeps."], ["chrf"])[0].value
    assert compute_chrf("The old dog sleeps.", "The dog sleeps.") == pytest.approx(expected / 100)


def test_memory_grows_with_the_sentences_and_not_with_their_square(make_translator: Callable[..., Translator]) -> None:
    sentences = tuple(Sentence(f"Sentence number {number}.") for number in range(100))
    text = SourceText(sentences, make_translator())
    for behaviour in (*CHANGED_INPUT, *EVERY_TRANSLATION):
        cases = behaviour.make_cases(text)
        assert sum(len(case.related) for case in cases) <= len(sentences)
        assert len({id(case.others) for case in cases}) <= 1  # the same sequence for all
