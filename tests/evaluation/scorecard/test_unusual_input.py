from collections.abc import Callable

import pytest

from transduce.evaluation import Sentence
from transduce.evaluation.scorecard.behaviour import Case, SourceText
from transduce.evaluation.scorecard.unusual_input import (
    LONG_RATIO,
    SCRIPTS,
    UNUSUAL_INPUT,
    is_unknown,
    join_sentences,
)
from transduce.text import Tokenizer
from transduce.translation import Translator

BEHAVIOURS = {behaviour.name: behaviour for behaviour in UNUSUAL_INPUT}
MakeTranslator = Callable[..., Translator]


def make_cases(name: str, translator: Translator, *sentences: str) -> list[Case]:
    return BEHAVIOURS[name].make_cases(SourceText(tuple(map(Sentence, sentences)), translator))


def judge(name: str, case: Case, translations: dict[str, str]) -> tuple[float, str]:
    found = BEHAVIOURS[name].judge(case, translations)
    return found.score, found.problem


def test_words_are_words(make_translator: MakeTranslator) -> None:
    sentences = ["“The dog” (is) on-line, 2nd: x!", "The dog, l'eau; naïve कुत्ता."]
    words = [case.text for case in make_cases("one word", make_translator(), *sentences)]
    assert words == ["The", "dog", "naïve", "कुत्ता"]
    repeated = make_cases("repeated word", make_translator(), "The dog")
    assert [case.text for case in repeated] == ["The The The The The", "dog dog dog dog dog"]


@pytest.mark.parametrize(
    ("word", "translation", "is_right"),
    [
        ("dog", "der Hund", True),
        ("gelemeyeceğim", "I will not be able to come", True),
        ("motorcycle", "摩托车", True),
        ("dog", "A dog runs through the snow.", False),
        ("dog", "", False),
        ("dog", "aaaaaaaaaaaaa", False),
    ],
)
def test_a_translation_of_a_word_is_no_sentence(word: str, translation: str, is_right: bool) -> None:
    score, problem = judge("one word", Case(word), {word: translation})
    assert (score == 1, not problem) == (is_right, is_right)


def test_several_sentences_are_neighbours_that_fit(make_translator: MakeTranslator) -> None:
    sentences = [f"River number {number}." for number in range(5)]
    assert [case.related for case in make_cases("several sentences", make_translator(), *sentences)] == [
        tuple(sentences[:2]),
        tuple(sentences[2:]),
    ]
    narrow = make_translator().with_search({"max_pieces": 20})
    for case in make_cases("several sentences", narrow, *sentences):
        assert narrow.fits(case.text)
    assert make_cases("several sentences", make_translator(), "No end", "of it") == []
    assert make_cases("several sentences", make_translator(), "One alone.") == []


def test_long_input_is_longer_than_the_model_reads(make_translator: MakeTranslator) -> None:
    translator = make_translator()
    for sentences in (["River.", "Window?"], [f"River number {number}." for number in range(200)]):
        cases = make_cases("long input", translator, *sentences)
        assert cases
        for case in cases:
            assert not translator.fits(case.text)
            num_tokens = len(translator.tokenizer.encode(case.text))
            assert num_tokens < 2 * LONG_RATIO * translator.search.max_pieces
            assert case.text == " ".join(case.related)
    assert len({case.related[0] for case in cases}) == len(cases) == 3
    assert make_cases("long input", translator, "One alone.") == []


def test_translations_without_spaces_are_compared_without_spaces() -> None:
    cat, dog = Case("cat cat cat", ("cat",) * 3), Case("A dog. A cat.", ("A dog.", "A cat."))
    known = {
        "cat": "猫",
        "cat cat cat": "猫猫猫",
        "A dog.": "一只狗。",
        "A cat.": "一只猫。",
        dog.text: "一只狗。一只猫。",
    }
    assert judge("repeated word", cat, known) == (1, "")
    assert judge("several sentences", dog, known) == (1, "")


@pytest.mark.parametrize(
    ("translation", "score", "words"),
    [
        ("Eins geht. Zwei kommen.", 1, ""),
        ("Eins geht.", 0, "43% of the length of its parts' own translations: text is missing"),
        ("", 0, "0% of the length"),
        ("Eins geht. Zwei kommen. " + "Drei singen lautere Lieder.", 0, "text is invented"),
        ("Eins geht. " + "und " * 6, 0, "repeats itself"),
        ("bru daul fravy bulda rud", 0, "chrF "),
    ],
)
def test_text_that_is_missing_is_found(translation: str, score: float, words: str) -> None:
    case = Case("One goes. Two come.", ("One goes.", "Two come."))
    parts = {"One goes.": "Eins geht.", "Two come.": "Zwei kommen."}
    found, problem = judge("several sentences", case, {case.text: translation, **parts})
    assert found == pytest.approx(score, abs=0.05)
    assert (words in problem) if words else not problem


def test_sentences_are_joined_as_their_language_does() -> None:
    assert join_sentences(["A dog.", "A cat."]) == "A dog. A cat."
    assert join_sentences(["我喜欢猫。", "他去。"]) == "我喜欢猫。他去。"


def test_blank_lines_are_seen_as_blank(make_translator: MakeTranslator) -> None:
    cases = make_cases("blank input", make_translator(), "x")
    assert all(not any(map(str.isprintable, case.text.strip())) for case in cases)
    for case in cases:
        assert judge("blank input", case, {case.text: "\N{NO-BREAK SPACE}"}) == (1, "")
        assert judge("blank input", case, {case.text: "A dog"}) == (0, "text is invented")


def test_scripts_are_unknown_if_the_vocabulary_lacks_them(tokenizer: Tokenizer) -> None:
    unknown = {script for script, text in SCRIPTS.items() if is_unknown(tokenizer, text)}
    assert unknown == set(SCRIPTS) - {"Latin"}
    greek = Tokenizer.train([f"Πού είναι ο σταθμός {'αβγδε'[number % 5]};" for number in range(200)], 310, "bpe")
    assert not is_unknown(greek, SCRIPTS["Greek"])
    assert is_unknown(greek, SCRIPTS["Latin"])


@pytest.mark.parametrize(
    ("translation", "is_right"),
    [("Где находится вокзал?", True), ("???", True), ("", True), ("Where is it?", False), ("Где the station", False)],
)
def test_text_made_of_nothing_is_invented(translation: str, is_right: bool) -> None:
    case = Case("Где находится вокзал?")
    assert (judge("unknown script", case, {case.text: translation})[0] == 1) == is_right
