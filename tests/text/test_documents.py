import re
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.errors import UserError
from transduce.text import Document, find_protected_spans, rebuilt, segments, split_document, subdivided

SIGNS = [*".!?…。！？,\"'()[]<>{}-*•# \n\t\r\v\f\x1c\x85\u2028\u2029\u00a0\u3000", "\r\n", "\n\n", "1. ", "a) ", "> "]
WORDS = ["Mr.", "A", "b", "日", "http://a.b?c. D", '<a b="C. D">', "<a\nb>", "<!-- A.\nB -->", "{x}", "🙂"]
PARTS = st.sampled_from(SIGNS + WORDS)
TEXTS = st.lists(st.one_of(PARTS, st.text(st.characters(codec=None), max_size=6)), max_size=40).map("".join)
LANGUAGES = st.sampled_from(["", "en", "de-AT", "ja", "xx"])
PARAGRAPH_BREAK = re.compile(r"\n\s*\n|\r(?!\n)\s*\r|\u2029")


def shown(text: str, language: str = "en") -> str:
    """The text with its sentences in brackets."""
    document = split_document(text, language)
    return rebuilt(document, [f"[{sentence}]" for sentence in document.sentences])


@settings(deadline=None, max_examples=500)
@given(TEXTS, LANGUAGES)
@example("A\u00a0. B\u2028.\n\ud800", "fr")
def test_nothing_is_lost(text: str, language: str) -> None:
    document = split_document(text, language)
    assert len(document.separators) == len(document.sentences) + 1
    pairs = zip(document.separators, [*document.sentences, ""], strict=True)
    assert "".join(part for pair in pairs for part in pair) == text
    assert rebuilt(document, document.sentences) == text


@settings(deadline=None, max_examples=500)
@given(TEXTS, LANGUAGES)
def test_a_sentence_shows_something_and_is_in_one_paragraph(text: str, language: str) -> None:
    for sentence in split_document(text, language).sentences:
        assert any(map(str.isalnum, sentence))
        assert sentence == sentence.strip()
        assert not PARAGRAPH_BREAK.search(sentence)


@settings(deadline=None, max_examples=500)
@given(TEXTS, LANGUAGES)
def test_no_line_end_is_in_a_sentence_and_no_cut_in_a_span(text: str, language: str) -> None:
    document = split_document(text, language)
    inside = {place for span in find_protected_spans(text) for place in range(span.start + 1, span.end)}
    end = 0
    for separator, sentence in zip(document.separators, document.sentences, strict=False):
        start = end + len(separator)
        end = start + len(sentence)
        assert not {start, end} & inside
        whole = "".join(" " if start + place in inside else character for place, character in enumerate(sentence))
        assert len(whole.splitlines()) == 1


@given(TEXTS, LANGUAGES, st.integers(1, 8))
def test_divided_further_nothing_is_lost_and_no_span_is_cut(text: str, language: str, most: int) -> None:
    document = split_document(text, language)
    parts = subdivided(document, lambda sentence: segments(sentence, language, lambda part: len(part) <= most))
    assert rebuilt(parts, parts.sentences) == text
    for sentence in document.sentences:
        for span in find_protected_spans(sentence):
            kept = sentence[span.start : span.end]
            if len(kept) > most and len(sentence) > most:
                assert any(kept in separator for separator in parts.separators)
            elif any(map(str.isalnum, kept)):
                assert any(kept.strip() in part for part in parts.sentences)
    for part in parts.sentences:
        assert part == part.strip()
        assert any(map(str.isalnum, part))
        assert len(part) <= most or find_protected_spans(part)
        assert len(part) <= 2 * most  # with a span that it would be cut in


def test_a_span_that_is_too_long_stands_between_what_is_divided() -> None:
    address = "http://a.b/" + "c?d=" * 50
    text = f"See it at {address}, and\tthen {{x}} <img src='{'a' * 90}'> go on! 🙂"
    parts = subdivided(split_document(text, "en"), lambda text: segments(text, "en", lambda part: len(part) <= 12))
    assert rebuilt(parts, parts.sentences) == text
    assert parts.sentences == ("See it at", ", and\tthen", "{x}", "go on!")
    assert address in parts.separators[1]
    tags = "<emphasis>" * 100 + "sun" + "</emphasis>" * 100
    divided = subdivided(split_document(tags, "en"), lambda text: segments(text, "en", lambda part: len(part) <= 37))
    assert max(map(len, divided.sentences)) <= 37 + len("</emphasis>")
    short = subdivided(split_document(text, "en"), lambda text: [text])
    assert short == split_document(text, "en")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\t\n", " \n\t\n"),
        ("One. Two!  Three\n", "[One.] [Two!]  [Three]\n"),
        ("One\ntwo\r\n\r\nthree\rfour\u2028five", "[One]\n[two]\r\n\r\n[three]\r[four]\u2028[five]"),
        ("  - One. Two.\n\t* three\n• four", "  - [One.] [Two.]\n\t* [three]\n• [four]"),
        ("# One\n> two\n>> - [x] three", "# [One]\n> [two]\n>> - [x] [three]"),
        ("1. One\n2) Two\n(a) Three\n1.2. Four", "1. [One]\n2) [Two]\n(a) [Three]\n1.2. [Four]"),
        ("-5 degrees\n— Hello. He left", "[-5 degrees]\n— [Hello.] [He left]"),
        ("* * *\n---\n🙂 !\n…", "* * *\n---\n🙂 !\n…"),
        ("See http://a.b/?c. D. Then e", "[See http://a.b/?c.] [D.] [Then e]"),
        ('Go <a b="C. D">e</a>. <br\n/>F.', '[Go <a b="C. D">e</a>.] [<br\n/>F.]'),
        ("<!-- A.\n  B. --> C.", "[<!-- A.\n  B. --> C.]"),
        ("Mr. Smith came. He saw.", "[Mr. Smith came.] [He saw.]"),
    ],
)
def test_what_is_a_sentence_and_what_is_between(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_the_language_decides_whether_a_number_ends_a_sentence() -> None:
    assert shown("3. Mai war es. Gut.\n3. Punkt", "de") == "[3. Mai war es.] [Gut.]\n3. [Punkt]"


def test_sentences_without_spaces_between_get_some_where_the_translation_needs_them() -> None:
    document = split_document("今日は。はい。\nいいえ。", "ja")
    assert document == Document(("今日は。", "はい。", "いいえ。"), ("", "", "\n", ""))
    assert rebuilt(document, ["Hello.", "Yes.", "No."]) == "Hello. Yes.\nNo."
    assert rebuilt(document, ["您好。", "是。", "不。"]) == "您好。是。\n不。"
    assert rebuilt(document, ["", "Yes.", ""]) == "Yes.\n"
    english = split_document("A cat.(A dog.)", "en")
    assert rebuilt(english, english.sentences) == "A cat.(A dog.)"


@pytest.mark.parametrize("translations", [[], ["a"], ["a", "b", "c"]])
def test_every_sentence_needs_one_translation(translations: list[str]) -> None:
    with pytest.raises(UserError, match=rf"{len(translations)} translations for a document of 2 sentences: give one"):
        rebuilt(split_document("One. Two.", "en"), translations)


@pytest.mark.parametrize("unit", ["\n", "a. ", "- ", "a\n", "<a \n", "1)", "> \n", " "])
def test_takes_time_in_proportion(unit: str, time_growth: Callable[..., float]) -> None:
    assert time_growth(lambda text: split_document(text, "en"), unit * 2000, unit * 20_000) < 40
