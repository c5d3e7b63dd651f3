from collections.abc import Callable

import pytest

from transduce.evaluation import Sentence
from transduce.evaluation.scorecard.behaviour import MAX_MADE_CASES, Behaviour, Case, SourceText
from transduce.evaluation.scorecard.kept_text import KEPT_TEXT, insert_at_end, put_in_element
from transduce.translation import Translator

BEHAVIOURS = {behaviour.name: behaviour for behaviour in KEPT_TEXT}


def judge(name: str, text: str, translation: str, *kept: str) -> tuple[float, str]:
    found = BEHAVIOURS[name].judge(Case(text, kept=kept), {text: translation})
    return found.score, found.problem


@pytest.mark.parametrize("behaviour", KEPT_TEXT, ids=lambda behaviour: behaviour.name)
@pytest.mark.parametrize("text", ["A dog runs.", "Dog", "我喜欢猫。", "Who?!", "a  b"])
def test_what_must_be_kept_is_in_the_input_and_a_copy_keeps_it(
    make_translator: Callable[..., Translator], behaviour: Behaviour, text: str
) -> None:
    cases = behaviour.make_cases(SourceText((Sentence(text),) * 9, make_translator()))
    assert len(cases) == 9
    for case in cases:
        assert case.text != text
        assert all(part in case.text for part in case.kept)
        assert behaviour.judge(case, {case.text: case.text}).score == 1
        assert behaviour.judge(case, {case.text: text}).score == 0


def test_sentences_with_such_parts_come_first(make_translator: Callable[..., Translator]) -> None:
    sentences = [Sentence(f"There are {number + 100} dogs.") for number in range(3)] + [Sentence("A dog.")] * 50
    cases = BEHAVIOURS["numbers"].make_cases(SourceText(tuple(sentences), make_translator()))
    assert [case.text for case in cases[:3]] == [sentence.source for sentence in sentences[:3]]
    assert len(cases) == MAX_MADE_CASES
    sentences = [Sentence("Write to a@example.org or b@example.org."), Sentence("A dog.")]
    first, second = BEHAVIOURS["addresses"].make_cases(SourceText(tuple(sentences), make_translator()))
    assert first == Case(sentences[0].source, kept=("a@example.org", "b@example.org"))
    assert second.text.startswith("A dog. ")


def test_every_lost_number_counts() -> None:
    assert judge("numbers", "In 1999 and 2019 and 7", "1999") == (0.5, "lost: 2019")
    assert judge("numbers", "It cost 1,284", "Das kostete 1.284") == (1, "")
    assert judge("numbers", "It cost 1,284", "Das kostete viel") == (0, "lost: 1,284")


def test_parts_are_kept_as_often_as_they_occur() -> None:
    assert judge("placeholders", "a {x} b {y}", "{x} {x}", "{x}", "{y}") == (0, "2 times instead of 1: {x}; lost: {y}")
    assert judge("placeholders", "a {x} b {x}", "{x} {x}", "{x}", "{x}") == (1, "")
    assert judge("placeholders", "costs $1", "kostet 1 $", "$1") == (0, "lost: $1")
    assert judge("emoji", "Well 👍", "Gut 👍👍", "👍") == (0, "2 times instead of 1: 👍")
    assert judge("emoji", "Love ❤", "Liebe ❤\ufe0f", "❤") == (1, "")


def test_tags_keep_their_order_and_their_words() -> None:
    text = "an <b>old</b> dog"
    assert judge("placeholders", text, "ein <b>alter</b> Hund", "<b>", "</b>") == (1, "")
    for wrong in ("ein <b></b> alter Hund", "ein </b>alter<b> Hund"):
        assert judge("placeholders", text, wrong, "<b>", "</b>") == (0, "tags are in another order, or around nothing")
    assert judge("placeholders", text, "ein <b>alter Hund", "<b>", "</b>") == (0.5, "lost: </b>")


@pytest.mark.parametrize(
    ("text", "longer"),
    [
        ("A dog.", "A dog x."),
        ("A dog", "A dog x"),
        ("Who?!  ", "Who x?!  "),
        ("", " x"),
        ("他去。", "他去 x。"),
        ("…", " x…"),
    ],
)
def test_additions_stand_before_the_end(text: str, longer: str) -> None:
    assert insert_at_end(text, "x") == longer


def test_a_word_is_put_into_an_element() -> None:
    assert put_in_element("A dog runs.") == ("A <b>dog</b> runs.", "<b>", "</b>")
    assert put_in_element("他去。")[0] == "<b>他去。</b>"
