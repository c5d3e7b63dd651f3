import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.serving.markup_parts import Part, parts

FRAGMENTS = [
    "<",
    ">",
    "</",
    "/>",
    "<b",
    "<p>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?",
    '="',
    "='",
    '"',
    "'",
    " ",
    "=",
    "a",
    "<script>",
    "</script>",
    "<br>",
    "&lt;",
    "\n",
    "é",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.booleans())
def test_nothing_is_lost(markup: str, is_xml: bool) -> None:
    found = list(parts(markup, is_xml=is_xml))
    assert "".join(part.raw for part in found) == markup
    assert all(part.raw for part in found)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("a <b>c</b>", [("a ", "text", ""), ("<b>", "start", "b"), ("c", "text", ""), ("</b>", "end", "b")]),
        ("<BR><x/>", [("<BR>", "single", "br"), ("<x/>", "single", "x")]),
        ('<a title="1 > 0">b', [('<a title="1 > 0">', "start", "a"), ("b", "text", "")]),
        ("<p don't>b", [("<p don't>", "start", "p"), ("b", "text", "")]),
        ("<!-- <b> -->c", [("<!-- <b> -->", "other", ""), ("c", "text", "")]),
        (
            "<script>a<b></script>",
            [("<script>", "start", "script"), ("a<b>", "text", ""), ("</script>", "end", "script")],
        ),
        ("1 < 2, <3 & <", [("1 < 2, <3 & <", "text", "")]),
        ("a <b never closed", [("a <b never closed", "text", "")]),
        ("<title><b></title>", [("<title>", "start", "title"), ("<b>", "text", ""), ("</title>", "end", "title")]),
    ],
)
def test_html(markup: str, expected: list[tuple[str, str, str]]) -> None:
    assert list(parts(markup, is_xml=False)) == [Part(*one) for one in expected]  # type: ignore[arg-type]


def test_names_of_xml_are_as_they_are_written() -> None:
    found = list(parts("<Br><script><a/></script></Br>", is_xml=True))
    assert [(part.shape, part.name) for part in found] == [
        ("start", "Br"),
        ("start", "script"),
        ("single", "a"),
        ("end", "script"),
        ("end", "Br"),
    ]
