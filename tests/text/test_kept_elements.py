from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import ProtectedSpan, find_kept_spans, find_protected_spans, pair_kept_spans


def kept_of(text: str, language: str = "en") -> list[str]:
    spans = find_kept_spans(text, find_protected_spans(text), language)
    return [text[span.start : span.end] for span in spans if span.kind == "element"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man <a id='x'></a>runs", ["<a id='x'></a>"]),
        ("A <b><img src=x></b> man <b>runs</b>", ["<b><img src=x></b>"]),
        ("A man<sup><a href='#f'>[1]</a></sup>, <i>2</i>", ["<sup><a href='#f'>[1]</a></sup>", "<i>2</i>"]),
        ("<p>A <b>{x}</b> <i>–</i> man</p>", ["<b>{x}</b>", "<i>–</i>"]),
        # signs of the sentence are not apart from it
        ("A man<b>.</b> <b>…</b> <i>,</i>", []),
        # list marks, also with letters, and with full stops as the language has them
        ("<b>1.</b> A man", ["<b>1.</b>"]),
        ("<p><b>a)</b> A man <b>a)</b></p>", ["<b>a)</b>"]),
        ("<span>•</span> A man", ["<span>•</span>"]),
        ("<i>- A man</i>", ["-"]),
        ("<m0/>- 1. A man", ["- 1."]),
        ("<b>1. A man</b>", ["1."]),
        ("<b>(a) A man</b> - c", ["(a)"]),
        ("- A man <b>- b</b>", []),
        ("<i>-5 degrees</i>", []),
        ("no tags", []),
    ],
)
def test_what_has_no_words_is_kept(text: str, expected: list[str]) -> None:
    assert kept_of(text) == expected


def test_the_language_decides_whether_a_number_is_a_list_mark() -> None:
    assert kept_of("<b>3. Mai</b> war es.", "de") == []
    assert kept_of("<b>3. Punkt</b>", "de") == ["3."]


PARTS = st.sampled_from(["<b>", "</b>", "<i>", "</i>", "<br/>", "- ", "1. ", "a) ", "dog", " ", ".", "5", "{x}", "%s"])


@given(st.lists(PARTS).map("".join))
def test_every_span_is_within_one_that_is_kept_and_none_overlap(text: str) -> None:
    spans = find_protected_spans(text)
    found = find_kept_spans(text, spans, "en")
    for before, behind in pairwise(found):
        assert before.end <= behind.start
    for span in spans:
        assert sum(kept.start <= span.start and span.end <= kept.end for kept in found) == 1
    assert [kept for kept in found if kept.kind != "element"] == [span for span in spans if span in found]


@given(st.lists(PARTS).map("".join))
def test_a_text_has_the_spans_that_it_keeps(text: str) -> None:
    spans = find_kept_spans(text, find_protected_spans(text), "en")
    pairs = pair_kept_spans(text, text, ("tag", "placeholder"), "en")
    assert all(text[one.start : one.end] == text[other.start : other.end] for one, other in pairs)
    assert {span.start for span in spans if text[span.start] == "<"} <= {other.start for _, other in pairs}


def test_an_element_is_paired_as_a_whole() -> None:
    original, text = "A dog<sup>1</sup> and <sup>two</sup>", "<sup>zwei</sup> und Hund<sup>1</sup>"
    pairs = pair_kept_spans(original, text, ["tag"], "en")
    assert (ProtectedSpan(5, 17, "element"), ProtectedSpan(24, 36, "element")) in pairs
    assert len(pairs) == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("unit", ["<b>", "<b>1</b>", "</b>", "<i>.", "<b>a)", "- <b>", "1. ", "(<br/>"])
def test_takes_time_in_proportion(unit: str, time_growth: Callable[..., float]) -> None:
    assert time_growth(lambda size: kept_of("<b>" + unit * size + "</b>" * size), 2_000, 16_000) < 24
