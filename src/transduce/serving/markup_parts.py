"""HTML and XML as a sequence of tags, comments and text, found as a browser finds them (HTML Living Standard, 13.2.5).

Nothing is repaired or left out: the parts of a text, joined, are the text. Time is in proportion to it, whatever it is.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Literal, NamedTuple

RAW = frozenset({"script", "style", "textarea", "title", "xmp"})
"""Elements of HTML in which a browser reads text up to their end tag, whatever it looks like."""

_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905 - a list of words
_NAME = re.compile(r"</?([A-Za-z_][^\s/>]*)")
# A tag from its "<" to its ">", which a quoted value may hold, too. Taken once and for all, so that time is linear.
_TAG = re.compile(r"""</?[A-Za-z_][^\s/>]*+(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?)*+>""")
_CLOSINGS = {"<!--": "-->", "<![CDATA[": "]]>", "<!": ">", "<?": ">"}

Shape = Literal["start", "end", "single", "text", "other"]


class Part(NamedTuple):
    """A stretch of a text as it is written.

    Args:
        raw: its characters.
        shape: of a tag, whether it opens or closes an element or is one by itself; text; or other, such as a comment.
        name: of the element, in small letters for HTML.
    """

    raw: str
    shape: Shape
    name: str = ""


def parts(markup: str, *, is_xml: bool) -> Iterator[Part]:
    """The parts of a text, none of which is empty.

    Args:
        markup: anything. A tag or comment that is never closed is text, and so is all that follows.
        is_xml: names are as they are written, and only `/>` makes an element of a single tag.
    """
    begin = place = 0
    while (place := markup.find("<", place)) >= 0:
        end, shape, name = _construct(markup, place, is_xml=is_xml)
        if end < 0:
            break
        if end == place:
            place += 1
            continue
        if begin < place:
            yield Part(markup[begin:place], "text")
        yield Part(markup[place:end], shape, name)
        begin = place = end
        if shape == "start" and name in RAW and not is_xml:
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(markup, end)
            place = closing.start() if closing else len(markup)
    if begin < len(markup):
        yield Part(markup[begin:], "text")


def _construct(markup: str, place: int, *, is_xml: bool) -> tuple[int, Shape, str]:
    """Where what begins with the "<" at `place` ends, its shape and name.

    -1 where nothing closes it; `place` where the "<" is nothing but a character.
    """
    for opening, closing in _CLOSINGS.items():
        if markup.startswith(opening, place):
            end = markup.find(closing, place + len(opening))
            return (-1 if end < 0 else end + len(closing)), "other", ""
    named = _NAME.match(markup, place)
    if not named:
        return place, "text", ""
    tag = _TAG.match(markup, place)
    if not tag:
        return -1, "text", ""
    name = named[1] if is_xml else named[1].lower()
    if markup.startswith("/", place + 1):
        return tag.end(), "end", name
    is_single = markup.startswith("/>", tag.end() - 2) or (name in _VOID and not is_xml)
    return tag.end(), "single" if is_single else "start", name


def attributes(tag: Part) -> dict[str, str]:
    """Values of a start tag's attributes by their names in small letters; the first of those that come twice."""
    reader = _Attributes()
    # Elements of XML may have names that are none in HTML.
    reader.feed("<x" + tag.raw[1 + len(tag.name) :])
    return reader.found


class _Attributes(HTMLParser):
    """Reads one tag."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in reversed(attrs):
            self.found[name] = value or ""
