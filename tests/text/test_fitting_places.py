import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import find_protected_spans, fitting_places


def parts_of(text: str, most: int, terms: str = "x x") -> list[str]:
    """The parts of at most so many words; spans are hidden, and the term stays together."""
    hidden = [(span.start, span.end) for span in find_protected_spans(text)]
    whole = sorted([*hidden, *(found.span() for found in re.finditer(terms, text))])
    places = fitting_places(text, hidden, whole, "en", lambda part: len(part.split()) <= most)
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
    assert parts_of(text, most) == parts


PIECES = st.sampled_from(["A dog. ", "x x", "x", " ", "{a}", "<b>", "red, ", "http://a.b ", "dog"])


@given(st.lists(PIECES).map("".join), st.integers(1, 4))
def test_nothing_but_space_is_left_out_and_nothing_whole_is_divided(text: str, most: int) -> None:
    parts = parts_of(text, most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part == part.strip() != "" for part in parts)
    assert sum(len(find_protected_spans(part)) for part in parts) >= len(find_protected_spans(text))
    assert sum(part.count("{a}") for part in parts) == text.count("{a}")
