from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.documents.markup import MarkupRules, Part, Passage, declare_language, parse_markup, split_markup

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


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.booleans())
def test_nothing_is_lost(markup: str, is_xml: bool) -> None:
    found = list(parse_markup(markup, is_xml=is_xml))
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
        ("<!-->a<!--->b", [("<!-->", "other", ""), ("a", "text", ""), ("<!--->", "other", ""), ("b", "text", "")]),
        ("<!-- a --!>b", [("<!-- a --!>", "other", ""), ("b", "text", "")]),
        ("<!--!>b-->c", [("<!--!>b-->", "other", ""), ("c", "text", "")]),
        ("a <é> b", [("a <é> b", "text", "")]),
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
    assert list(parse_markup(markup, is_xml=False)) == [Part(*one) for one in expected]  # type: ignore[arg-type]


def test_names_of_xml_are_as_they_are_written() -> None:
    found = list(parse_markup("<Br><script><a/></script></Br>", is_xml=True))
    assert [(part.shape, part.name) for part in found] == [
        ("start", "Br"),
        ("start", "script"),
        ("single", "a"),
        ("end", "script"),
        ("end", "Br"),
    ]


def test_entities_that_an_xml_document_declares_are_kept() -> None:
    markup = "<p>&product; &amp; &nbsp;the sun &the.moon-1;, &#65;</p>"
    pieces = split_markup(markup, MarkupRules(is_xml=True))
    (passage,) = [piece for piece in pieces if isinstance(piece, Passage)]
    assert passage.to_marked_text() == "<m0/> & \xa0the sun <m1/>, A"
    assert passage.restore_tags("Sonne <m0/> & <m1/>.") == "Sonne &product; &amp; &the.moon-1;."
    (passage,) = [piece for piece in split_markup(markup, HTML) if isinstance(piece, Passage)]
    assert passage.get_texts() == ["&product; & \xa0the sun &the.moon-1;, A"]


def test_declarations_of_a_document_type_belong_to_it() -> None:
    doctype = '<!DOCTYPE a SYSTEM "x" [<!ENTITY sun "moon">\n<!-- b -->] >'
    assert list(parse_markup(f"{doctype}<a>c</a>", is_xml=True))[:2] == [
        Part(doctype, "other"),
        Part("<a>", "start", "a"),
    ]
    assert next(parse_markup("<!DOCTYPE a><a>[]></a>", is_xml=True)) == Part("<!DOCTYPE a>", "other")
    assert list(parse_markup("<!DOCTYPE a [<b>", is_xml=True)) == [Part("<!DOCTYPE a [<b>", "text")]


def test_names_of_xml_may_begin_with_any_letter() -> None:
    found = list(parse_markup("<été à='b'>c</été><_d/><東京/>", is_xml=True))
    assert [(part.shape, part.name) for part in found] == [
        ("start", "été"),
        ("text", ""),
        ("end", "été"),
        ("single", "_d"),
        ("single", "東京"),
    ]


HTML, XML = MarkupRules(), MarkupRules(is_xml=True)
PIECES_OF_PAGES = [
    "<p>",
    "</p>",
    "<b>",
    "</b>",
    "<i>",
    "</i>",
    "<br>",
    "<li>",
    "<code>",
    "</code>",
    "<pre>",
    "</pre>",
    "<!--c-->",
    " ",
    "\n",
    "Sun",
    "moon.",
    "<p translate=no>",
    "<m0>",
    "&amp;",
    "&lt;m",
    "m0&gt;",
    "&lt;/mm1/&gt;",
    "<x/>",
    "<",
]


def shown(markup: str, rules: MarkupRules = HTML) -> str:
    """The text with passages as they are translated in brackets."""
    return "".join(
        f"[{one.to_marked_text()}]" if isinstance(one, Passage) else one for one in split_markup(markup, rules)
    )


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<p>A <b>big</b> man.</p>", "<p>[A <m0>big</m0> man.]</p>"),
        ("<p>One</p> <p>two</p>", "<p>[One]</p> <p>[two]</p>"),
        ("one<br>two", "[one]<br>[two]"),
        ("a <img src=x> b", "[a <m0/> b]"),
        ("a\n   b", "[a b]"),
        ("<pre>a\n   b</pre>a\n b", "<pre>[a\n   b]</pre>[a b]"),
        ("  a  ", "  [a]  "),
        ("a &amp; b &lt;c&gt; &eacute;", "[a & b <c> é]"),
        ("a <code>x = 1</code> b", "[a <m0/> b]"),
        ("<script>a</script><style>b</style>", "<script>a</script><style>b</style>"),
        ("<div class='x notranslate y'>a <b>b</b></div>c", "<div class='x notranslate y'>a <b>b</b></div>[c]"),
        ("<ul><li translate=no>a<li>b</ul>c", "<ul><li translate=no>a<li>[b]</ul>[c]"),
        ("a <b>b <i>c</b> d</i>", "[a <m0/>b <m1>c<m2/> d</m1>]"),
        ("a &lt;m0&gt; <b>c</b>", "[a <m0> <mm0>c</mm0>]"),
        ("a <span class=notranslate>b</span>", "[a <m0/>]"),
        ("a <span class='x notranslate'>b</span>", "[a <m0/>]"),
        ('a <span class="NoTranslate y">b</span>', "[a <m0/>]"),
        ("a <span translate=no>b</span>", "[a <m0/>]"),
        ("a <span id=x TRANSLATE = 'NO'>b</span>", "[a <m0/>]"),
        ("a <span translate=yes>b</span>", "[a <m0>b</m0>]"),
        ("a <span data=notranslate>b</span>", "[a <m0>b</m0>]"),
        ("a <span class=a data=notranslate>b</span>", "[a <m0>b</m0>]"),
        ("a <span class=a title='notranslate it'>b</span>", "[a <m0>b</m0>]"),
        ("a <span class=notranslated>b</span>", "[a <m0>b</m0>]"),
        ("a <span data-translate=no>b</span>", "[a <m0>b</m0>]"),
        ("a <span title='translate=no'>b</span>", "[a <m0>b</m0>]"),
        ("a <span translate=yes translate=no>b</span>", "[a <m0>b</m0>]"),
        ("a <span translate=no>b <i translate=yes>c <u>d</u></i> e</span> f", "[a <m0/>c <m1>d</m1><m3/> f]"),
        ("<p translate=no>a <b translate=yes>b</b> c</p>d", "<p translate=no>a <b translate=yes>[b]</b> c</p>[d]"),
        ("<code>a <b translate=yes>b</b></code> c", "[<m0/> c]"),
        ("<p>a <code>b</p>c", "<p>[a] <code>b</p>[c]"),
        ("<!-- a --> <b></b>", "<!-- a --> <b></b>"),
        ("<title>A &amp; B</title>", "<title>[A & B]</title>"),
        ("<td>2020<td>&euro;&nbsp;12 <b>%</b><td>A-12", "<td>2020<td>&euro;&nbsp;12 <b>%</b><td>[A-12]"),
        ("", ""),
    ],
)
def test_passages_of_html(markup: str, expected: str) -> None:
    assert shown(markup) == expected


@pytest.mark.parametrize(
    ("markup", "rules", "expected"),
    [
        ("<d><p>a <b>c</b></p><p>e</p></d>", XML, "<d><p>[a <m0>c</m0>]</p><p>[e]</p></d>"),
        ("<d><k>a</k> <p>b</p></d>", MarkupRules(is_xml=True, ignored=frozenset("k")), "<d><k>a</k> <p>[b]</p></d>"),
        ("<d>a <k>b</k> c</d>", MarkupRules(is_xml=True, splitting=frozenset("k")), "<d>[a] <k>[b]</k> [c]</d>"),
        (
            "<d><k>a</k><k>b</k></d>",
            MarkupRules(is_xml=True, non_splitting=frozenset("k")),
            "<d>[<m0>a</m0><m2>b</m2>]</d>",
        ),
        ('<d><_e translate="no">a</_e> <p>b</p></d>', XML, '<d><_e translate="no">a</_e> <p>[b]</p></d>'),
        ("<d><p>a</p><p>b</p></d>", MarkupRules(is_xml=True, detects_outline=False), "[<m0><m1>a</m1><m3>b</m3></m0>]"),
        (
            "<d><p>a</p><p>b</p></d>",
            MarkupRules(is_xml=True, splitting=frozenset("dp"), detects_outline=False),
            "<d><p>[a]</p><p>[b]</p></d>",
        ),
        ("<p>a</p><p>b</p>", MarkupRules(detects_outline=False), "[<m0>a</m0><m2>b</m2>]"),
        ("a <b>c</b>", MarkupRules(splitting=frozenset("b")), "[a] <b>[c]</b>"),
        ("<p>a</p>", MarkupRules(non_splitting=frozenset("p")), "[<m0>a</m0>]"),
    ],
)
def test_rules(markup: str, rules: MarkupRules, expected: str) -> None:
    assert shown(markup, rules) == expected


@given(st.lists(st.sampled_from(PIECES_OF_PAGES), max_size=30).map("".join), st.booleans())
def test_what_is_not_changed_is_the_same_text(markup: str, is_xml: bool) -> None:
    """A translation that is its source gives the source, but for spaces and entities within passages."""
    rebuilt = []
    for one in split_markup(markup, MarkupRules(is_xml=is_xml)):
        if isinstance(one, Passage):
            raw = "".join(part.raw for part in one.parts)
            again = one.restore_tags(one.to_marked_text())
            assert again is not None
            assert again == one.replace_texts(one.get_texts())
            assert [part.raw for part in one.parts if part.shape != "text"] == [
                part.raw for part in one.parts if part.raw in again and part.shape != "text"
            ]
            rebuilt.append(raw)
        else:
            rebuilt.append(one)
    assert "".join(rebuilt) == markup


@pytest.mark.parametrize("translation", ["x", "<m0>x", "</m0>x<m0>", "<m0>x</m0><m0>", "<m0>x</m0> <m1/>"])
def test_a_translation_that_loses_tags_is_none(translation: str) -> None:
    (passage,) = (one for one in split_markup("a <b>c</b>", HTML) if isinstance(one, Passage))
    assert passage.restore_tags(translation) is None


def test_what_a_translation_says_is_no_markup() -> None:
    (passage,) = (one for one in split_markup("a <b>c</b>", HTML) if isinstance(one, Passage))
    assert passage.restore_tags("<x> & <m0>1 < 2</m0>") == "&lt;x&gt; &amp; <b>1 &lt; 2</b>"
    assert passage.replace_texts(["<script>", "</b>"]) == "&lt;script&gt;<b>&lt;/b&gt;</b>"


def test_marks_are_short_whatever_the_text_contains() -> None:
    (passage,) = (
        one for one in split_markup("<i>a</i>" * 100 + "&lt;" + "m" * 2_000, HTML) if isinstance(one, Passage)
    )
    assert sum(map(len, passage.get_marks())) < 2_000
    assert passage.restore_tags(passage.to_marked_text()) == "<i>a</i>" * 100 + "&lt;" + "m" * 2_000


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "pattern",
    [
        "<b>",
        "</b><b>",
        '<a ="',
        "<a class='",
        "<!--",
        "<x ",
        "<script>",
        "<",
        "<b>x",
        "<p>x",
        "<b></c>",
        "<m",
        "&lt;m<b>",
        "&",
        "<a ='=\"",
        "<a translate=no>",
        "<a translate='a\" ",
        "<html lang=en ",
        "<p lang='en' a=\"\" b>",
    ],
)
def test_hostile_markup_takes_linear_time(pattern: str, time_growth: Callable[..., float]) -> None:
    def work(markup: str) -> Any:
        declare_language(markup, "de", replaces=lambda _: True, direction="rtl")
        return [one.to_marked_text() for one in split_markup(markup, HTML) if isinstance(one, Passage)]

    assert time_growth(work, pattern * 500, pattern * 4_000) < 24  # 8 times the text; squares would be 64


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<html lang="en"><p>a</p></html>', '<html dir="rtl" lang="ar"><p>a</p></html>'),
        ("<!doctype html><HTML LANG=en-GB dir='ltr'>", '<!doctype html><HTML lang="ar" dir="rtl">'),
        ('<html xml:lang="en" lang="en" class="no-js">', '<html dir="rtl" xml:lang="ar" lang="ar" class="no-js">'),
        ("<html>", '<html dir="rtl">'),
        ("<html >", '<html dir="rtl" >'),
        ("<html lang='fr'>", '<html dir="rtl" lang="ar">'),  # its text is the translation, whatever it was said to be
        ('<html><body dir="LTR"><p dir="ltr">', '<html dir="rtl"><body dir="rtl"><p dir="ltr">'),
        ('<div dir="ltr" lang="en"><p dir="ltr" lang="la">', '<div dir="rtl" lang="ar"><p dir="ltr" lang="la">'),
        ('<p lang="en">a <i lang="la">b</i> <br lang=en></p>', '<p lang="ar">a <i lang="la">b</i> <br lang="ar"></p>'),
        ('<p title="a lang=en" lang="en" hidden>', '<p title="a lang=en" lang="ar" hidden>'),
        ("<a hreflang=en href=x>a</a>", None),
        ("<p lang>a</p><p lang=>b</p><p LANG = 'en'", None),
        ("<!DOCTYPE html>\n<!-- a --><p>a</p>", '<!DOCTYPE html>\n<!-- a --><html dir="rtl" lang="ar"><p>a</p>'),
        ("<!doctype html> a", '<!doctype html><html dir="rtl" lang="ar"> a'),
        ("<title>a</title><p>b</p>", '<html dir="rtl" lang="ar"><title>a</title><p>b</p>'),
        ("\n<body lang=en>a", '\n<html dir="rtl" lang="ar"><body lang="ar">a'),
        ("---\nlayout: a\n---\n<title>a</title>", None),  # a template
        ("<pre><code>i++ <b>a</b></code></pre>", '<pre><code dir="ltr">i++ <b>a</b></code></pre>'),
        (
            '<p translate="no" lang="en">b <i lang="en">c</i></p>',
            '<p dir="ltr" translate="no" lang="en">b <i lang="en">c</i></p>',
        ),
        ('<kbd dir="auto">a</kbd><script>a</script><svg><text>a</text></svg>', None),
        ('<html translate=no lang="en"><p lang="en">a</p></html>', None),
    ],
)
def test_a_page_declares_its_new_language(page: str, expected: str | None) -> None:
    def is_english(code: str) -> bool:
        return code.split("-", maxsplit=1)[0] == "en"

    assert declare_language(page, "ar", replaces=is_english, direction="rtl") == (expected or page)


def test_without_a_direction_that_of_the_page_stays() -> None:
    page = '<html lang="en" dir="auto"><p dir="ltr">a</p></html>'
    page += '<code lang="en">b</code>'
    found = declare_language(page, 'd"e', replaces=lambda code: code == "en")
    assert found == '<html lang="d&quot;e" dir="auto"><p dir="ltr">a</p></html><code lang="en">b</code>'


@given(st.lists(st.sampled_from([*FRAGMENTS, "<body", " lang=en", ' lang="en"', " dir", "<code>"]), max_size=40))
def test_a_page_of_another_language_stays(fragments: list[str]) -> None:
    page = "".join(fragments)
    assert declare_language(page, "de", replaces=lambda _: False) == page
    declared = declare_language(page, "de", replaces=lambda code: code == "en", direction="rtl")
    declared = declared.replace('<html dir="rtl" lang="de">', "", 1)
    shapes = [[part[1:] for part in parse_markup(text, is_xml=False)] for text in (page, declared)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("number", ["1" * 5000, "0" * 5000 + "65"])
def test_a_reference_to_no_character_is_one_unknown_character(number: str) -> None:
    pieces = split_markup(f'<p class="&#{number};" translate=yes>a &#{number}; b &#66;</p>', MarkupRules())
    (passage,) = [piece for piece in pieces if isinstance(piece, Passage)]
    assert passage.get_texts() == ["a \ufffd b B"]
