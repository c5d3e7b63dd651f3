import re
from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import UserError
from transduce.text import (
    Document,
    Tokenizer,
    find_fitting_spans,
    find_protected_spans,
    has_letters,
    join_segments,
    rebuild_document,
    split_document,
    split_segments,
    split_sentences,
    split_tagged_sentences,
    subdivide_document,
)

# Much of what sentence splitters look at, and any character at all.
PARTS = st.sampled_from(
    [*".!?…。！？;:,、\"'“”()[] \n\t", "\u00a0", "\u2028", "\u3000", "Mr.", "z. B. ", "A", "b", "日", "\r\n"]
)
TEXTS = st.lists(st.one_of(PARTS, st.text(st.characters(codec=None), max_size=8)), max_size=40).map("".join)
LANGUAGES = st.sampled_from(["", "en", "de-AT", "fr", "ja", "xx", "EN_us"])


@given(TEXTS, LANGUAGES)
@example("vitamine A\u00a0. B\u2028.", "fr")
@example("\ud800. A", "en")
@example(" (“It’s.\n\n" * 2000, "en")
@example("日本。" * 4000, "ja")
def test_sentences_lose_nothing(text: str, language: str) -> None:
    found = split_sentences(text, language)
    assert "".join(found) == text
    assert all(found)


def test_sentences_end_where_they_should() -> None:
    text = "Mr. Smith came.  He saw it!\u00a0Did he?"
    assert split_sentences(text, "en") == ["Mr. Smith came.  ", "He saw it!\u00a0", "Did he?"]
    assert split_sentences("Am 3. Mai kam Dr. Maier. Gut.", "de_AT") == ["Am 3. Mai kam Dr. Maier. ", "Gut."]
    assert split_sentences("今日は。はい。", "ja") == ["今日は。", "はい。"]
    assert split_sentences("", "en") == []


def test_sentences_of_long_text_end_where_they_should() -> None:
    sentences = [f"Mr. {number} saw “it, twice”, at {number}.5 p.m. on Monday. " for number in range(500)]
    assert split_sentences("".join(sentences), "en") == sentences
    endless = "word " * 3000 + "end. "
    assert split_sentences("Go. " + endless + "He was here. So.", "en") == ["Go. ", endless, "He was here. ", "So."]
    assert split_sentences("Go. " + "x" * 12_000 + "! So.", "en") == ["Go. ", "x" * 12_000 + "! ", "So."]


@given(TEXTS, LANGUAGES, st.integers(1, 30))
def test_segments_lose_nothing_and_fit(text: str, language: str, most: int) -> None:
    found = split_segments(text, language, lambda part: len(part) <= most)
    assert "".join(found) == text
    assert all(len(part) <= most for part in found)
    # Of one sentence, none of them could have been left out by joining two neighbours.
    ends = set(accumulate(map(len, split_sentences(text, language))))
    within = (end not in ends for end in accumulate(map(len, found)))
    joined = (first + second for first, second in pairwise(found))
    assert all(len(part) > most for part, is_within in zip(joined, within, strict=False) if is_within)


@given(text=TEXTS.filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text)))
def test_segments_fit_by_pieces_too(tokenizer: Tokenizer, text: str) -> None:
    found = split_segments(text, "en", lambda part: len(tokenizer.encode(part)) <= 60)
    assert "".join(found) == text
    assert all(len(tokenizer.encode(part)) <= 60 for part in found)


@given(TEXTS, LANGUAGES, st.integers(1, 30))
def test_segments_as_their_own_translations_are_the_text(text: str, language: str, most: int) -> None:
    segments = split_segments(text, language, lambda part: len(part) <= most)
    assert join_segments(segments, [" ".join(segment.split()) for segment in segments]) == " ".join(text.split())


@pytest.mark.parametrize(
    ("segments", "translations", "joined"),
    [
        (["A. ", "B."], ["C.", "D."], "C. D."),
        (["A.", "\u00a0B."], ["C.", "D."], "C. D."),
        (["A. ", "? ", "B."], ["C.", "", "D."], "C. D."),
        (["? ", "A. ", "B."], ["", "C.", "D."], "C. D."),
        (["http://a.", "example"], ["http://a.", "example"], "http://a.example"),
        (["今日は。", "はい。"], ["今日は。", "はい。"], "今日は。はい。"),
        (["今日は。", "はい。"], ["Hello.", "Yes."], "Hello. Yes."),
        (["你好。", "?", "好。"], ["Hello.", "", "Good."], "Hello. Good."),
        ([], [], ""),
    ],
)
def test_translations_of_segments_are_joined_by_the_spaces_of_the_text(
    segments: list[str], translations: list[str], joined: str
) -> None:
    assert join_segments(segments, translations) == joined


def at_most(most: int, text: str) -> list[str]:
    return split_segments(text, "en", lambda part: len(part) <= most)


def test_a_text_that_fits_is_left_alone() -> None:
    assert at_most(20, "One. Two. Three.") == ["One. Two. Three."]
    assert at_most(20, "") == [""]


@pytest.mark.parametrize(
    ("most", "text", "expected"),
    [
        (12, "One. Two. Three. Four.", ["One. ", "Two. ", "Three. ", "Four."]),
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

    assert split_segments("a" * 10_000, "en", fits) == ["a" * 100] * 100
    assert asked < 250
    asked = 0
    assert split_segments("a " * 5_000, "en", fits) == ["a " * 50] * 100
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
    assert "".join(split_segments(text, "en", fits)) == text
    assert asked < 20 * len(text)


def fitting_parts_of(text: str, most: int, terms: str = "x x") -> list[str]:
    """The parts of at most so many words; spans are hidden, and the term stays together."""
    hidden = [(span.start, span.end) for span in find_protected_spans(text)]
    whole = sorted([*hidden, *(found.span() for found in re.finditer(terms, text))])
    places = find_fitting_spans(text, hidden, whole, "en", lambda part: len(part.split()) <= most)
    return [text[start:end] for start, end in places]


@pytest.mark.parametrize(
    ("text", "most", "parts"),
    [
        (" A dog.  A cat. ", 4, ["A dog.  A cat."]),
        (" A dog.  A cat. ", 3, ["A dog.", "A cat."]),
        ("A dog. A red cat, a blue cat. Go.", 3, ["A dog.", "A red cat,", "a blue cat.", "Go."]),
        ("See {{a b}} {{c d}} <i> now", 2, ["See {{a b}} {{c d}} <i> now"]),
        ("See {{a b}} it {c} now", 2, ["See {{a b}} it {c}", "now"]),
        ("See http://a.b/?c. Then go", 2, ["See http://a.b/?c.", "Then go"]),
        ("go x x go", 2, ["go", "x x", "go"]),
        ("x x go x x", 1, ["x x", "go", "x x"]),
        ("{a}", 0, ["{a}"]),
        ("", 0, []),
        (" ", 0, []),
    ],
)
def test_what_does_not_fit_is_divided(text: str, most: int, parts: list[str]) -> None:
    assert fitting_parts_of(text, most) == parts


PIECES = st.sampled_from(["A dog. ", "x x", "x", " ", "{a}", "<b>", "red, ", "http://a.b ", "dog"])


@given(st.lists(PIECES).map("".join), st.integers(1, 4))
def test_nothing_but_space_is_left_out_and_nothing_whole_is_divided(text: str, most: int) -> None:
    parts = fitting_parts_of(text, most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part == part.strip() != "" for part in parts)
    assert sum(len(find_protected_spans(part)) for part in parts) >= len(find_protected_spans(text))
    assert sum(part.count("{a}") for part in parts) == text.count("{a}")


SIGNS = [*".!?…。！？,\"'()[]<>{}-*•# \n\t\r\v\f\x1c\x85\u2028\u2029\u00a0\u3000", "\r\n", "\n\n", "1. ", "a) ", "> "]
WORDS = ["Mr.", "A", "b", "日", "http://a.b?c. D", '<a b="C. D">', "<a\nb>", "<!-- A.\nB -->", "{x}", "🙂"]
DOCUMENT_PARTS = st.sampled_from(SIGNS + WORDS)
DOCUMENTS = st.lists(st.one_of(DOCUMENT_PARTS, st.text(st.characters(codec=None), max_size=6)), max_size=40).map(
    "".join
)
DOCUMENT_LANGUAGES = st.sampled_from(["", "en", "de-AT", "ja", "xx"])
PARAGRAPH_BREAK = re.compile(r"\n\s*\n|\r(?!\n)\s*\r|\u2029")


def shown(text: str, language: str = "en") -> str:
    """The text with its sentences in brackets."""
    document = split_document(text, language)
    return rebuild_document(document, [f"[{sentence}]" for sentence in document.sentences])


@pytest.mark.exhaustive
@given(DOCUMENTS, DOCUMENT_LANGUAGES)
@example("A\u00a0. B\u2028.\n\ud800", "fr")
def test_nothing_is_lost(text: str, language: str) -> None:
    document = split_document(text, language)
    assert len(document.separators) == len(document.sentences) + 1
    pairs = zip(document.separators, [*document.sentences, ""], strict=True)
    assert "".join(part for pair in pairs for part in pair) == text
    assert rebuild_document(document, document.sentences) == text


@pytest.mark.exhaustive
@given(DOCUMENTS, DOCUMENT_LANGUAGES)
def test_a_sentence_shows_something_and_is_in_one_paragraph(text: str, language: str) -> None:
    for sentence in split_document(text, language).sentences:
        assert has_letters(sentence)
        assert sentence == sentence.strip()
        assert not PARAGRAPH_BREAK.search(sentence)


@pytest.mark.exhaustive
@given(DOCUMENTS, DOCUMENT_LANGUAGES)
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


@given(DOCUMENTS, DOCUMENT_LANGUAGES, st.integers(1, 8))
def test_divided_further_nothing_is_lost_and_no_span_is_cut(text: str, language: str, most: int) -> None:
    document = split_document(text, language)
    parts = subdivide_document(
        document, lambda sentence: split_segments(sentence, language, lambda part: len(part) <= most)
    )
    assert rebuild_document(parts, parts.sentences) == text
    for sentence in document.sentences:
        for span in find_protected_spans(sentence):
            kept = sentence[span.start : span.end]
            if len(kept) > most and len(sentence) > most:
                assert any(kept in separator for separator in parts.separators)
            elif has_letters(kept):
                assert any(kept.strip() in part for part in parts.sentences)
    for part in parts.sentences:
        assert part == part.strip()
        assert has_letters(part)
        assert len(part) <= most or find_protected_spans(part)
        assert len(part) <= 2 * most  # with a span that it would be cut in


def test_a_span_that_is_too_long_stands_between_what_is_divided() -> None:
    address = "http://a.b/" + "c?d=" * 50
    text = f"See it at {address}, and\tthen {{x}} <img src='{'a' * 90}'> go on! 🙂"
    parts = subdivide_document(
        split_document(text, "en"), lambda text: split_segments(text, "en", lambda part: len(part) <= 12)
    )
    assert rebuild_document(parts, parts.sentences) == text
    assert parts.sentences == ("See it at", ", and\tthen", "{x}", "go on!")
    assert address in parts.separators[1]
    tags = "<emphasis>" * 100 + "sun" + "</emphasis>" * 100
    divided = subdivide_document(
        split_document(tags, "en"), lambda text: split_segments(text, "en", lambda part: len(part) <= 37)
    )
    assert max(map(len, divided.sentences)) <= 37 + len("</emphasis>")
    short = subdivide_document(split_document(text, "en"), lambda text: [text])
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
        ("2020\n€ 1,250.00\n12 %\nA-12/B\n", "2020\n€ 1,250.00\n12 %\n[A-12/B]\n"),
        ("One. 12 <b>13</b>!\n<b>14</b>\n二〇", "[One.] 12 <b>13</b>!\n<b>14</b>\n[二〇]"),
    ],
)
def test_what_is_a_sentence_and_what_is_between(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_the_language_decides_whether_a_number_ends_a_sentence() -> None:
    assert shown("3. Mai war es. Gut.\n3. Punkt", "de") == "[3. Mai war es.] [Gut.]\n3. [Punkt]"


def test_sentences_without_spaces_between_get_some_where_the_translation_needs_them() -> None:
    document = split_document("今日は。はい。\nいいえ。", "ja")
    assert document == Document(("今日は。", "はい。", "いいえ。"), ("", "", "\n", ""))
    assert rebuild_document(document, ["Hello.", "Yes.", "No."]) == "Hello. Yes.\nNo."
    assert rebuild_document(document, ["您好。", "是。", "不。"]) == "您好。是。\n不。"
    assert rebuild_document(document, ["", "Yes.", ""]) == "Yes.\n"
    english = split_document("A cat.(A dog.)", "en")
    assert rebuild_document(english, english.sentences) == "A cat.(A dog.)"


@pytest.mark.parametrize("translations", [[], ["a"], ["a", "b", "c"]])
def test_every_sentence_needs_one_translation(translations: list[str]) -> None:
    with pytest.raises(UserError, match=rf"{len(translations)} translations for a document of 2 sentences: give one"):
        rebuild_document(split_document("One. Two.", "en"), translations)


@pytest.mark.exhaustive
@pytest.mark.parametrize("unit", ["\n", "a. ", "- ", "a\n", "<a \n", "1)", "> \n", " ", "“a", "(!", "!)", "?!", "A.B."])
def test_takes_time_in_proportion(unit: str, time_growth: Callable[..., float]) -> None:
    for language in ("en", "fr"):
        assert time_growth(partial(split_document, language=language), unit * 2000, unit * 20_000) < 40


def tagged_parts_of(text: str) -> list[str]:
    return [text[start:end] for start, end in split_tagged_sentences(text, find_protected_spans(text, ["tag"]), "en")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<p>A man.</p> <p>A dog.</p>", ["<p>A man.</p>", "<p>A dog.</p>"]),
        ("<b>A man.</b> <i>A dog.</i> A cat.", ["<b>A man.</b>", "<i>A dog.</i>", "A cat."]),
        ("<td>Red hat</td><td>Blue hat</td>", ["<td>Red hat</td>", "<td>Blue hat</td>"]),
        ("one<br>two", ["one", "<br>two"]),
        (" <div><p>A.</p> <P class='x'>B.</P></div>", ["<div><p>A.</p>", "<P class='x'>B.</P></div>"]),
        ("<b>One.<br>Two.</b> Three", ["<b>One.", "<br>Two.</b>", "Three"]),
        # one sentence
        ("a <b>red</b> hat", ["a <b>red</b> hat"]),
        ("He met Mr. <b>Smith</b>.", ["He met Mr. <b>Smith</b>."]),
        ("He <b>said. <i>She</i> left</b> us", ["He <b>said. <i>She</i> left</b> us"]),
        ("A man. A dog.", ["A man. A dog."]),
        ("<x>one</x> <y>two</y>", ["<x>one</x> <y>two</y>"]),
        ("<br>", ["<br>"]),
        ("", []),
    ],
)
def test_sentences_with_tags_between_them(text: str, parts: list[str]) -> None:
    assert tagged_parts_of(text) == parts


@given(st.lists(st.sampled_from(["<p>", "</p>", "<b>", "</b>", "<br/>", "A dog. ", "red", " ", "He "])).map("".join))
def test_nothing_but_space_is_left_out(text: str) -> None:
    assert "".join("".join(tagged_parts_of(text)).split()) == "".join(text.split())
    assert all(part == part.strip() != "" for part in tagged_parts_of(text))
