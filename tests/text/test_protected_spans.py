from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import USUAL_KINDS, SpanCheck, SpanKind, find_protected_spans, pair_tags, restore_spacing

ALL_KINDS: tuple[SpanKind, ...] = (*USUAL_KINDS, "number")

SIGNS = [
    *"<>{}[]()@.,:;/%$#&!?-+'\"=_ \n\t½",
    "://",
    "www.",
    "<!--",
    "-->",
    "{{",
    "}}",
    "%s",
    "&amp;",
    "</",
    "/>",
    "日",
    "é",
]
TEXTS = st.lists(st.one_of(st.sampled_from(SIGNS), st.text(max_size=4), st.sampled_from(["a", "b1", "7"]))).map("".join)


def found(text: str, *kinds: SpanKind) -> list[str]:
    return [text[span.start : span.end] for span in find_protected_spans(text, kinds)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://a.b/c?d=e&f=g#h.", ["https://a.b/c?d=e&f=g#h"]),
        ("(http://a.b/c_(d)), http://a.b/c!", ["http://a.b/c_(d)", "http://a.b/c"]),
        ("[text](http://a.b/c) **http://d.e**", ["http://a.b/c", "http://d.e"]),
        ('"http://a.b" “http://c.d” <http://e.f>', ["http://a.b", "http://c.d", "http://e.f"]),
        ("end.http://a.b -ftp://c.d git+ssh://e.f", ["http://a.b", "ftp://c.d", "git+ssh://e.f"]),
        ("www.a.b/c; mailto:a@b.c www. mailto: http://", ["www.a.b/c", "mailto:a@b.c"]),
        ("WWW.A.B or Www.a.b, Mailto:a@b.c. WWW. xWWW.a.b", ["WWW.A.B", "Www.a.b", "Mailto:a@b.c"]),
        (
            "请访问http://a.b/ä。好 https://de.wikipedia.org/wiki/Köln",
            ["http://a.b/ä", "https://de.wikipedia.org/wiki/Köln"],
        ),
        ("http://[::1]:80/ http://{host}/{id}", ["http://[::1]:80/", "http://{host}/{id}"]),
        ("and/or a:b 12:30 a.b C://", []),
    ],
)
def test_urls(text: str, expected: list[str]) -> None:
    assert found(text, "url") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to a.b+c@d-e.org.", ["a.b+c@d-e.org"]),
        ("<me@x.org>, 'me@y.org'; o'b@z.org-", ["me@x.org", "me@y.org", "o'b@z.org"]),
        ("邮箱me@x.org给 jürgen@müller.de", ["me@x.org", "jürgen@müller.de"]),
        ("@me me@ me@x me@x. .@x.y a.@x.y", []),
    ],
)
def test_email_addresses(text: str, expected: list[str]) -> None:
    assert found(text, "email") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask @some_one, (@a.b) @me.", ["@some_one", "@a.b", "@me"]),
        ("@name@server.org! “@Jürgen” @भारती", ["@name@server.org", "@Jürgen", "@भारती"]),
        ("me@x.org a@b @ @@x x.@y %@ 5@ @!", []),
    ],
)
def test_handles(text: str, expected: list[str]) -> None:
    assert found(text, "handle") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#Climate2030, (#ff0000) #भारत #été.", ["#Climate2030", "#ff0000", "#भारत", "#été"]),
        ("#2030goals #_x", ["#2030goals", "#_x"]),
        ("C# a#b ##x # #1 #2030 &#39; &#x27; #{a} #!", []),
    ],
)
def test_hashtags(text: str, expected: list[str]) -> None:
    assert found(text, "hashtag") == expected


def test_an_address_is_none_of_both() -> None:
    text = "me@x.org https://a.b/@me#top <a href='#x'> #{name} @you"
    kinds = [span.kind for span in find_protected_spans(text)]
    assert kinds == ["email", "url", "tag", "placeholder", "handle"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>x</b> <br/> <BR> <x:y-z.1 />", ["<b>", "</b>", "<br/>", "<BR>", "<x:y-z.1 />"]),
        ("<a href='x > y' t=\"it's\">q</a>", ["<a href='x > y' t=\"it's\">", "</a>"]),
        ("<!-- a -- <b> -->c<!DOCTYPE d><?e f?>", ["<!-- a -- <b> -->", "<!DOCTYPE d>", "<?e f?>"]),
        ("<a\n  b='c\nd'\r\n>", ["<a\n  b='c\nd'\r\n>"]),
        ("a < b > c <3> <> </> <me@x.org> <http://x.y>", []),
        ("<a \n\n> <a \r\n \r\n> <!-- \n \n --> <a \u2029>", []),
        ("<a <b> <a '> <!-- <!-- x -->", ["<b>", "<!-- x -->"]),
    ],
)
def test_tags(text: str, expected: list[str]) -> None:
    assert found(text, "tag") == expected


def test_entities() -> None:
    assert found("R&amp;D &#39; &#x2019; &nbsp; & &; &#; &amp AT&T;", "entity") == [
        *["&amp;", "&#39;", "&#x2019;", "&nbsp;"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{} {0} {name} { a } {a.b[0]!r:>5.2f}", ["{}", "{0}", "{name}", "{ a }", "{a.b[0]!r:>5.2f}"]),
        ("{{x}} {{ a b }} {{{c}}} {% if d %}", ["{{x}}", "{{ a b }}", "{{{c}}}", "{% if d %}"]),
        ("${x} ${ a + b } #{c} %{d}", ["${x}", "${ a + b }", "#{c}", "%{d}"]),
        (
            "%s %d %5.2f %1$s %(name)s %-3ld %@ %dpx a%s",
            ["%s", "%d", "%5.2f", "%1$s", "%(name)s", "%-3ld", "%@", "%d", "%s"],
        ),
        ("100% sure, 5%discount %% %%s $5 $x {a b} { } {\n}", ["{ }"]),
    ],
)
def test_placeholders(text: str, expected: list[str]) -> None:
    assert found(text, "placeholder") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,000 is not 1.000, nor 1 000 or 1\u00a0000.", ["1,000", "1.000", "1 000", "1\u00a0000"]),
        ("-3.5 (−2) +1 10–20", ["-3.5", "−2", "+1", "10–20"]),
        ("5% $7.50 US$5 5€ 5 € 20 % 21°C -$5", ["5%", "$7.50", "US$5", "5€", "5 €", "20 %", "21°C", "-$5"]),
        (
            "2nd 1980s 80's 20km 3.5kg 36km/h 3D 5pm 4x4",
            ["2nd", "1980s", "80's", "20km", "3.5kg", "36km/h", "3D", "5pm", "4x4"],
        ),
        ("20-year-old COVID-19 v1.2 3D-Drucker 5%discount 5/day 1,000,000-fold", []),
        ("5 km 5 %s Price:5 5 %(a)s 5 %.", ["5", "5", "5", "5", "5 %"]),
        ("2024-01-31, 12:30, 1/2; in 1990 200", ["2024-01-31", "12:30", "1/2", "1990", "200"]),
        ("½ 2½ ¾kg 1 ½ ⅓, ½-hour 1\u20442 x½", ["½", "2½", "¾kg", "1", "½", "⅓", "1\u20442"]),
        ("在2024年 B2B mp3 ١٢", ["2024", "١٢"]),
    ],
)
def test_numbers(text: str, expected: list[str]) -> None:
    assert found(text, "number") == expected


def test_numbers_only_on_request() -> None:
    assert found("12 {n}", *USUAL_KINDS) == ["{n}"]
    assert found("12 {n}") == []


def test_of_spans_that_overlap_the_leftmost_then_the_longest_counts() -> None:
    text = '<a href="http://a.b/{x}">a@b.c</a> http://a.b/{id}?q=%s mailto:a@b.c 5 {{7}}'
    spans = find_protected_spans(text, ALL_KINDS)
    assert [(text[span.start : span.end], span.kind) for span in spans] == [
        ('<a href="http://a.b/{x}">', "tag"),
        ("a@b.c", "email"),
        ("</a>", "tag"),
        ("http://a.b/{id}?q=%s", "url"),
        ("mailto:a@b.c", "url"),
        ("5", "number"),
        ("{{7}}", "placeholder"),
    ]


@pytest.mark.exhaustive
@given(TEXTS)
def test_spans_are_in_order_and_have_no_empty_line(text: str) -> None:
    spans = find_protected_spans(text, ALL_KINDS)
    assert all(before.end <= behind.start for before, behind in pairwise(spans))
    for span in spans:
        assert 0 <= span.start < span.end <= len(text)
        assert all(line.strip() for line in text[span.start : span.end].splitlines())


UNITS = [
    "http://",
    "http://(",
    "a@",
    "a.",
    "<a ",
    '<a "',
    "<a \n",
    "<!-- ",
    "--",
    "<x:",
    "{",
    "{ ",
    "${",
    "%(",
    "%(a",
    "1,",
    "1,0",
    "$5",
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("unit", [*UNITS, "1 000 ", "&a", "\n", "'", "5-a"])
@pytest.mark.parametrize("start", ["", '<a b="', "<!--", "http://(", "x@", "{{"])
def test_takes_time_in_proportion(start: str, unit: str, time_growth: Callable[..., float]) -> None:
    short, long = (start + unit * (size // len(unit)) for size in (10_000, 100_000))
    assert time_growth(lambda text: find_protected_spans(text, ALL_KINDS), short, long) < 40


def test_elements_are_tags_with_their_other_half() -> None:
    assert pair_tags(["<b>", "</b>"]) == [(0, 1)]
    assert pair_tags(["<a x='y'>", "<B>", "<br/>", "</b>", "</a>"]) == [(1, 3), (0, 4)]
    assert pair_tags(["</b>", "<b>", "<br>", "</b>", "</b>"]) == [(1, 3)]
    assert pair_tags(["<a>", "<b>", "</a>", "</b>"]) == [(0, 2)]
    assert pair_tags(["<!-- <b> -->", "<?b?>", "<b/>", "</b>"]) == []
    assert pair_tags(["<br>"] * 20_000 + ["</p>"] * 20_000) == []


@pytest.mark.parametrize(
    ("original", "text", "passes"),
    [
        ("See http://a.b now", "http://a.b jetzt", True),
        ("See http://a.b now", "jetzt", False),
        ("See http://a.b now", "http://a.b http://a.b", False),
        ("See http://a.b now", "http://a.b/c jetzt", False),
        ("See http://a.b now", "http://a.b {x}", False),
        ("{x} and {y}", "{y} und {x}", True),
        ("1,000 of 2", "2 von 1,000", True),
        ("1,000 of 2", "2 von 1.000", False),
        ("1 of two", "1 von 2", True),
        ("1 of two", "1 von 1", False),
        ("<b>a</b> <i>b</i>", "<b>A</b> <i>B</i>", True),
        ("<b>a</b> <i>b</i>", "<i>B</i> <b>A</b>", False),
        ("<b>a</b> c", "C <b></b>", False),
        ("<b><i>a</i> {x}</b> c", "C <b><i>.</i> {x}</b>", False),
        ("<b><br>a</b> c", "<b>A<br></b> C", True),
        ("<b> </b> c", "C <b></b>", True),
    ],
)
def test_what_a_translation_has_of_its_original(original: str, text: str, passes: bool) -> None:
    assert SpanCheck(original, ALL_KINDS).passes(text) is passes


@given(TEXTS)
def test_a_text_has_its_own_spans(text: str) -> None:
    assert SpanCheck(text, ALL_KINDS).passes(text)


@pytest.mark.parametrize(
    ("original", "text", "expected"),
    [
        ("<b>old</b> house", "<b> altes </b> Haus", "<b>altes</b> Haus"),
        ("<b> old </b> house", "<b> altes </b> Haus", "<b> altes </b> Haus"),
        ("<b><i>old</i></b><br>house", "<b> <i> altes </i> </b> <br> Haus", "<b><i>altes</i></b><br>Haus"),
        ("(http://a.b), or", "oder ( http://a.b ) ,", "oder (http://a.b) ,"),
        ("Cost: %s/{x}.", "Es kostet %s / {x} .", "Es kostet %s/{x}."),
        ("%dpx or 20 px", "%d px oder 20 px", "%dpx oder 20 px"),
        ("{x}s dog, a{x}", "{x} sein Hund, da {x}", "{x} sein Hund, da {x}"),
        ("see %s", "%s sieh", "%s sieh"),
        ("%s", " %s ", " %s "),
        ("no span", "</b> {x} nichts", "</b> {x} nichts"),
    ],
)
def test_spaces_beside_spans_are_those_of_the_original(original: str, text: str, expected: str) -> None:
    assert restore_spacing(text, original, ALL_KINDS) == expected


@given(TEXTS, TEXTS)
def test_nothing_but_spaces_is_taken_away(text: str, original: str) -> None:
    assert restore_spacing(text, text, ALL_KINDS) == text
    assert restore_spacing(text, original, ALL_KINDS).replace(" ", "") == text.replace(" ", "")
