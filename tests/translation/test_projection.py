import pytest
from hypothesis import given, strategies

from transduce.translation.alignment import Alignment, Link
from transduce.translation.projection import with_spans, without_spans


def aligned(source: str, target: str, links: str) -> Alignment:
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    return Alignment(tuple(source.split()), tuple(target.split()), tuple(Link(*pair, 1.0) for pair in pairs))


@pytest.mark.parametrize(
    ("text", "spans", "bare", "translation", "links", "expected"),
    [
        (
            "a dog at {x} runs",
            ["{x}"],
            "a dog at runs",
            "ein Hund bei läuft",
            "0-0 1-1 2-2 3-3",
            "ein Hund bei {x} läuft",
        ),
        ("see http://x.", ["http://x"], "see.", "siehe.", "0-0", "siehe http://x."),
        (
            "a <b>dog</b> runs",
            ["<b>", "</b>"],
            "a dog runs",
            "es läuft ein Hund",
            "0-2 1-3 2-1",
            "es läuft ein <b>Hund</b>",
        ),
        ("<i>a</i> dog", ["<i>", "</i>"], "a dog", "ein Hund", "0-0 1-1", "<i>ein</i> Hund"),
        ("{n} dogs", ["{n}"], "dogs", "Hunde", "0-0", "{n} Hunde"),
        ("dogs {n}", ["{n}"], "dogs", "Hunde", "", "Hunde {n}"),
        ("a {x} b {y} c", ["{x}", "{y}"], "a b c", "C B A", "0-2 1-1 2-0", "C B A {x} {y}"),
        ("no span", ["{x}"], "no span", "kein Span", "0-0", "kein Span"),
    ],
)
def test_spans_go_where_their_neighbours_went(
    text: str, spans: list[str], bare: str, translation: str, links: str, expected: str
) -> None:
    found, removed = without_spans(text, spans)
    assert found == bare
    assert with_spans(translation, removed, aligned(bare, translation, links)) == expected


WORDS = strategies.lists(strategies.sampled_from(["dog", "a", "runs.", "blue,", "{0}", "<b>", "</b>", "http://x/y"]))


@given(WORDS, WORDS, strategies.data())
def test_every_span_is_there_once_and_in_order(
    words: list[str], others: list[str], data: strategies.DataObject
) -> None:
    text = data.draw(strategies.sampled_from([" ", ""])).join(words)
    spans = [word for word in words if word[0] in "{<h"]
    bare, removed = without_spans(text, spans)
    assert [span.text for span in removed] == spans
    assert not any(span in bare for span in ("{0}", "<b>", "</b>", "http"))
    translation = " ".join(word for word in others if word[0] not in "{<h")
    places = strategies.integers(0, 9)
    links = data.draw(strategies.lists(strategies.tuples(places, places)))
    possible = [(a, b) for a, b in links if a < len(bare.split()) and b < len(translation.split())]
    alignment = Alignment(
        tuple(bare.split()), tuple(translation.split()), tuple(Link(source, target, 1.0) for source, target in possible)
    )
    found = with_spans(translation, removed, alignment)
    place = 0
    for span in spans:
        place = found.index(span, place) + len(span)
    for span in set(spans):
        assert found.count(span) == spans.count(span)
        found = found.replace(span, " ")
    assert "".join(found.split()) == "".join(translation.split())
