from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.text import Tokenizer, segments, sentences

# Much of what sentence splitters look at, and any character at all.
PARTS = st.sampled_from(
    [*".!?…。！？;:,、\"'“”()[] \n\t", "\u00a0", "\u2028", "\u3000", "Mr.", "z. B. ", "A", "b", "日", "\r\n"]
)
TEXTS = st.lists(st.one_of(PARTS, st.text(st.characters(codec=None), max_size=8)), max_size=40).map("".join)
LANGUAGES = st.sampled_from(["", "en", "de-AT", "fr", "ja", "xx", "EN_us"])


@settings(deadline=None, max_examples=300)
@given(TEXTS, LANGUAGES)
@example("vitamine A\u00a0. B\u2028.", "fr")
@example("\ud800. A", "en")
def test_sentences_lose_nothing(text: str, language: str) -> None:
    found = sentences(text, language)
    assert "".join(found) == text
    assert all(found)


def test_sentences_end_where_they_should() -> None:
    text = "Mr. Smith came.  He saw it!\u00a0Did he?"
    assert sentences(text, "en") == ["Mr. Smith came.  ", "He saw it!\u00a0", "Did he?"]
    assert sentences("Am 3. Mai kam Dr. Maier. Gut.", "de_AT") == ["Am 3. Mai kam Dr. Maier. ", "Gut."]
    assert sentences("今日は。はい。", "ja") == ["今日は。", "はい。"]
    assert sentences("", "en") == []


@settings(deadline=None, max_examples=300)
@given(TEXTS, LANGUAGES, st.integers(1, 30))
def test_segments_lose_nothing_and_fit(text: str, language: str, most: int) -> None:
    found = segments(text, language, lambda part: len(part) <= most)
    assert "".join(found) == text
    assert all(len(part) <= most for part in found)
    # None of them could have been left out by joining two neighbours.
    assert all(len(first + second) > most for first, second in pairwise(found))


@settings(deadline=None)
@given(text=TEXTS.filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text)))
def test_segments_fit_by_pieces_too(tokenizer: Tokenizer, text: str) -> None:
    found = segments(text, "en", lambda part: len(tokenizer.encode(part)) <= 60)
    assert "".join(found) == text
    assert all(len(tokenizer.encode(part)) <= 60 for part in found)


def at_most(most: int, text: str) -> list[str]:
    return segments(text, "en", lambda part: len(part) <= most)


def test_a_text_that_fits_is_left_alone() -> None:
    assert at_most(20, "One. Two. Three.") == ["One. Two. Three."]
    assert at_most(20, "") == [""]


@pytest.mark.parametrize(
    ("most", "text", "expected"),
    [
        (12, "One. Two. Three. Four.", ["One. Two. ", "Three. Four."]),
        (14, "Start. If it rains, we stay here.", ["Start. ", "If it rains, ", "we stay here."]),
        (10, "we stay here today", ["we stay ", "here today"]),
        (4, "abcdefghij kl", ["abcd", "efgh", "ij ", "kl"]),
        (6, "今日、私は、行く", ["今日、私は、", "行く"]),
    ],
)
def test_cuts_are_at_the_weakest_join(most: int, text: str, expected: list[str]) -> None:
    assert at_most(most, text) == expected


def test_a_page_without_spaces_takes_few_questions() -> None:
    asked = 0

    def fits(part: str) -> bool:
        nonlocal asked
        asked += 1
        return len(part) <= 100

    assert segments("a" * 10_000, "en", fits) == ["a" * 100] * 100
    assert asked < 250
    asked = 0
    assert segments("a " * 5_000, "en", fits) == ["a " * 50] * 100
    assert asked < 250


@pytest.mark.parametrize(
    "unit", ["a ", "日", "a, ", "b" * 90 + " ", "a " * 60 + ("b" * 90 + " ") * 60, "b" * 300 + " c. "]
)
def test_what_is_asked_is_in_proportion_to_the_text(unit: str) -> None:
    asked = 0

    def fits(part: str) -> bool:
        nonlocal asked
        asked += len(part)
        return len(part) <= 100

    text = unit * (60_000 // len(unit))
    assert "".join(segments(text, "en", fits)) == text
    assert asked < 20 * len(text)
