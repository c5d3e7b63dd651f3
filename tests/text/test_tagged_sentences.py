import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import find_protected_spans, tagged_sentences


def parts_of(text: str) -> list[str]:
    return [text[start:end] for start, end in tagged_sentences(text, find_protected_spans(text, ["tag"]), "en")]


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
    assert parts_of(text) == parts


@given(st.lists(st.sampled_from(["<p>", "</p>", "<b>", "</b>", "<br/>", "A dog. ", "red", " ", "He "])).map("".join))
def test_nothing_but_space_is_left_out(text: str) -> None:
    assert "".join("".join(parts_of(text)).split()) == "".join(text.split())
    assert all(part == part.strip() != "" for part in parts_of(text))
