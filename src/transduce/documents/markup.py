"""HTML and XML: which parts of a markup text are translated, and which are kept, character for character.

Tags, comments and text are found as a browser finds them (HTML Living Standard, 13.2.5), in linear time.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from html.entities import html5
from html.parser import HTMLParser
from itertools import count
from typing import Literal, NamedTuple

RAW = frozenset({"script", "style", "textarea", "title", "xmp"})
"""Elements of HTML whose content a browser reads as text up to their end tag."""

_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905 - a list of words
_NAME = re.compile(r"</?([A-Za-z_][^\s/>]*)")
_NAME_OF_XML = re.compile(r"</?([^\W\d][^\s/>]*)")  # may begin with a letter of any script
# A tag from its "<" to its ">", which quoted values may also contain. Possessive, so that matching takes linear time.
_TAG = re.compile(r"""</?[^\W\d][^\s/>]*+(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?)*+>""")
_DECLARATIONS = r"<!DOCTYPE[^\[>]*+\[", r"\]\s*+>"  # of entities, for example, within the document type of XML
_CONSTRUCTS = (
    (r"<!(?=--)", r"-->|(?<!<!)--!>"),  # "<!-->" is a whole comment
    (r"<!\[CDATA\[", r"\]\]>"),
    (r"<!", r">"),
    (r"<\?", r">"),
)
_HTML_CONSTRUCTS = [(re.compile(opening), re.compile(closing)) for opening, closing in _CONSTRUCTS]
_XML_CONSTRUCTS = [(re.compile(opening), re.compile(closing)) for opening, closing in (_DECLARATIONS, *_CONSTRUCTS)]
_ENTITY = re.compile(r"&([^\W\d][\w.-]*+;)")

Shape = Literal["start", "end", "single", "text", "other"]

Direction = Literal["ltr", "rtl"]
"""A direction of writing, as HTML names it: from left to right, or from right to left."""


class Part(NamedTuple):
    """A tag, a comment or a text.

    Args:
        raw: the source text of the part.
        shape: for a tag, whether it opens or closes an element or is empty; otherwise text, or other, such as a
            comment, or in XML a reference to an entity that HTML does not have.
        name: name of the element, in lower case for HTML.
    """

    raw: str
    shape: Shape
    name: str = ""


def parse_markup(markup: str, *, is_xml: bool) -> Iterator[Part]:
    """Parse markup into parts, whose concatenation is the markup.

    A tag or comment that is never closed, and all that follows, is text. In XML names are case-sensitive, and only
    `/>` makes an element of a single tag.
    """
    done = start = 0
    while (start := markup.find("<", start)) >= 0:
        end, shape, name = _read_construct(markup, start, is_xml=is_xml)
        if end < 0:
            break
        if end == start:
            start += 1
            continue
        yield from _divide_text(markup[done:start], is_xml=is_xml)
        yield Part(markup[start:end], shape, name)
        done = start = end
        if shape == "start" and name in RAW and not is_xml:
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(markup, end)
            start = closing.start() if closing else len(markup)
    yield from _divide_text(markup[done:], is_xml=is_xml)


def _divide_text(text: str, *, is_xml: bool) -> Iterator[Part]:
    """Divide text by the references to entities that an XML document has declared itself, which are kept."""
    done = 0
    for reference in _ENTITY.finditer(text) if is_xml else ():
        if reference[1] not in html5:
            if done < reference.start():
                yield Part(text[done : reference.start()], "text")
            yield Part(reference[0], "other")
            done = reference.end()
    if done < len(text):
        yield Part(text[done:], "text")


def _read_construct(markup: str, start: int, *, is_xml: bool) -> tuple[int, Shape, str]:
    """Find the end, shape and name of the part that begins with the "<" at `start`.

    The end is -1 if the part is not closed, and `start` if the "<" is text.
    """
    for opening, closing in _XML_CONSTRUCTS if is_xml else _HTML_CONSTRUCTS:
        if opened := opening.match(markup, start):
            closed = closing.search(markup, opened.end())
            return (closed.end() if closed else -1), "other", ""
    named = (_NAME_OF_XML if is_xml else _NAME).match(markup, start)
    if not named:
        return start, "text", ""
    tag = _TAG.match(markup, start)
    if not tag:
        return -1, "text", ""
    name = named[1] if is_xml else named[1].lower()
    if markup.startswith("/", start + 1):
        return tag.end(), "end", name
    is_single = markup.startswith("/>", tag.end() - 2) or (name in _VOID and not is_xml)
    return tag.end(), "single" if is_single else "start", name


def parse_attributes(tag: Part) -> dict[str, str]:
    """Parse a start tag's attributes to a mapping from lower-case names to values; of duplicates, the first is
    taken.
    """
    reader = _AttributeParser()
    # Names of XML elements need not be valid in HTML.
    reader.feed("<x" + _LONG_REFERENCE.sub("\ufffd", tag.raw[1 + len(tag.name) :]))
    return reader.found


class _AttributeParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in reversed(attrs):
            self.found[name] = value or ""


# Names of elements of HTML; lists of words are easier to read than lists of strings.
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math nobr q rb rp rt ruby s "  # noqa: SIM905
    "samp small span strike strong sub sup svg time tt u var wbr".split()
)
"""Inline elements, which may stand within a sentence; any other begins and ends a paragraph."""

_UNTRANSLATED = frozenset("code kbd math noscript samp script style svg template textarea var xmp".split())  # noqa: SIM905
_ENDS_ITSELF = frozenset("dd dt li option p td th tr".split())  # noqa: SIM905
"""Elements whose end tag may be left out where the next one of them begins."""

_Reason = Literal["name", "attribute"] | None
"""The reason why the text of an element is not translated: its name, or an attribute, which an inner element may
override."""

_SPACES = re.compile(r"[ \t\n\r\f]+")
_MARK_NAME = re.compile(r"</?(m+)")


@dataclass(frozen=True)
class MarkupRules:
    """How markup is divided into passages.

    Args:
        is_xml: names are case-sensitive, and an element is inline if it is next to text.
        splitting: further elements that begin and end a paragraph.
        non_splitting: elements that are inline in any case.
        ignored: elements whose text is kept.
        detects_outline: whether elements may begin and end a paragraph without being named in `splitting`.
    """

    is_xml: bool = False
    splitting: frozenset[str] = frozenset()
    non_splitting: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    detects_outline: bool = True

    def is_inline(self, name: str, *, is_beside_text: bool) -> bool:
        """Return whether an element is inline."""
        if name in self.splitting:
            return False
        if name in self.non_splitting or not self.detects_outline:
            return True
        return is_beside_text if self.is_xml else name in _INLINE


@dataclass(frozen=True)
class Passage:
    """Text with inline tags that is translated as a whole.

    Args:
        parts: in order, without spaces at either end.
        keeps_spaces: whether line ends and repeated spaces are significant, as in `<pre>`.
    """

    parts: tuple[Part, ...]
    keeps_spaces: bool = False

    def get_texts(self) -> list[str]:
        """Return the visible text of each part that is text."""
        shown = [unescape_text(part.raw) for part in self.parts if part.shape == "text"]
        return shown if self.keeps_spaces else [_SPACES.sub(" ", text) for text in shown]

    def get_marks(self) -> list[str]:
        """Return a mark for each tag: `<m0>` and `</m0>` for a pair, `<m1/>` for any other."""
        taken = set(_MARK_NAME.findall("".join(self.get_texts())))  # the text itself may contain such marks
        letters = next(name for length in count(1) if (name := "m" * length) not in taken)
        tags = [part for part in self.parts if part.shape != "text"]
        marks = [f"<{letters}{number}/>" for number in range(len(tags))]
        for start, end in _pair_tags(tags):
            marks[start], marks[end] = f"<{letters}{start}>", f"</{letters}{start}>"
        return marks

    def to_marked_text(self) -> str:
        """Return the visible text with marks in place of tags."""
        texts, marks = iter(self.get_texts()), iter(self.get_marks())
        return "".join(next(texts) if part.shape == "text" else next(marks) for part in self.parts)

    def restore_tags(self, translation: str) -> str | None:
        """Replace the marks in a translation of `to_marked_text` by tags; None if a mark is missing, repeated or out of
        order.
        """
        marks = self.get_marks()
        letters = marks[0].strip("</>0123456789") if marks else ""
        pieces = re.split(rf"(</?{letters}\d+/?>)", translation) if marks else [translation]
        if pieces[1::2] != marks:
            return None
        tags = [*(part.raw for part in self.parts if part.shape != "text"), ""]
        return "".join(escape_text(text) + tag for text, tag in zip(pieces[::2], tags, strict=True))

    def replace_texts(self, translations: Iterable[str]) -> str:
        """Replace each of `get_texts` by its translation."""
        texts = iter(translations)
        return "".join(escape_text(next(texts)) if part.shape == "text" else part.raw for part in self.parts)


_LONG_REFERENCE = re.compile("&#[0-9]{1000,};?")


def unescape_text(text: str) -> str:
    """Replace references to characters by these; numbers so long that Python does not read them are no character."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text))


def escape_text(text: str) -> str:
    """Escape text for markup; quotation marks need no escape between tags."""
    return escape(text, quote=False)


def split_markup(markup: str, rules: MarkupRules) -> list[str | Passage]:
    """Split markup into passages, which are translated, and strings, which are kept; their concatenation is the
    markup.
    """
    found: list[str | Passage] = []
    waiting: list[Part] = []
    keeps_spaces = False
    for part, is_inline in _mark_inline(list(parse_markup(markup, is_xml=rules.is_xml)), rules):
        if is_inline:
            waiting.append(part)
            continue
        found += [*_trim(waiting, keeps_spaces=keeps_spaces), part.raw]
        waiting = []
        if part.name == "pre":
            keeps_spaces = part.shape == "start"
    return found + _trim(waiting, keeps_spaces=keeps_spaces)


def _mark_inline(all_parts: Sequence[Part], rules: MarkupRules) -> Iterator[tuple[Part, bool]]:
    """Yield each part and whether it is inline; an element whose text is kept is one part."""
    beside_text = _find_beside_text(all_parts) if rules.is_xml else frozenset[int]()
    elements = _OpenElements(rules)
    kept: list[str] = []
    is_inline = False
    for index, part in enumerate(all_parts):
        were_kept = elements.are_kept
        elements.read(part)
        if not (were_kept and elements.are_kept):  # kept text is inline if both of its tags are
            is_inline = (is_inline or not were_kept) and (
                part.shape in {"text", "other"} or rules.is_inline(part.name, is_beside_text=index in beside_text)
            )
        if were_kept or elements.are_kept:
            kept.append(part.raw)
            if not elements.are_kept:
                yield Part("".join(kept), "single"), is_inline
                kept = []
        else:
            yield part, is_inline
    if kept:
        yield Part("".join(kept), "single"), False


_UNSEEN = frozenset("html math noscript script style svg template".split())  # noqa: SIM905
"""Elements whose direction is not set where they are kept: they show no text that has one, or are the page itself."""

_BEGIN_A_PAGE = frozenset({"base", "body", "head", "link", "meta", "title"})
"""Elements that a page begins with, and a fragment of one does not, where the tags in front of them are left out."""


def declare_language(
    page: str, language: str, *, replaces: Callable[[str], bool], direction: Direction | None = None
) -> str:
    """Declare in a translated HTML page which language its text is in now, for browsers and screen readers.

    Args:
        page: the page, or a fragment of one. A page may leave out the tag `<html>`, which is added for a new direction.
        language: code of the language, for `lang` and `xml:lang` of the page where it has these, and of elements.
        replaces: whether the code that an element names is that of the language it was translated from.
        direction: the direction of writing, if the translation changes it: that of the page, and of `<body>` and of
            elements of the former language where they have one. Elements that are not translated, such as `<code>`,
            get the former direction.
    """
    former: Direction = "ltr" if direction == "rtl" else "rtl"
    elements = _OpenElements(MarkupRules())
    written: list[str] = []
    is_before_page, has_doctype = direction is not None, False
    for part in parse_markup(page, is_xml=False):
        if is_before_page and part.raw.strip() and part.shape != "other":
            is_before_page = False
            if part.name != "html" and (has_doctype or part.name in _BEGIN_A_PAGE):
                written.append(f'<html dir="{direction}" lang="{escape(language)}">')
        has_doctype = has_doctype or part.raw[:9].lower() == "<!doctype"
        were_kept = elements.are_kept
        elements.read(part)
        changes: dict[str, str] = {}
        # Most tags need no change, and parsing them is slow.
        if part.shape in {"start", "single"} and not were_kept and (direction or "lang" in part.raw.lower()):
            attributes = parse_attributes(part)
            if not elements.are_kept:
                is_page = part.name == "html"
                names = [name for name in ("lang", "xml:lang") if name in attributes]
                changes = {name: language for name in names if is_page or replaces(attributes[name])}
                is_turned = "dir" in attributes and (part.name == "body" or changes)
                if direction and (is_page or is_turned):
                    changes["dir"] = direction
            elif direction and "dir" not in attributes and part.name not in _UNSEEN:
                changes = {"dir": former}
        raw = part.raw
        for name, value in changes.items():
            raw = _set_attribute(raw, name, value)
        written.append(raw)
    return "".join(written)


_ATTRIBUTE = re.compile(r"""([^\s/>=]++)(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"']++))?""")


def _set_attribute(tag: str, name: str, value: str) -> str:
    """Set an attribute of a tag; where there is none, it becomes the first."""
    assignment = f'{name}="{escape(value)}"'
    name_of_tag, *attributes = _ATTRIBUTE.finditer(tag, 1)
    for found in attributes:
        if found[1].lower() == name:
            return tag[: found.start()] + assignment + tag[found.end() :]
    return f"{tag[: name_of_tag.end()]} {assignment}{tag[name_of_tag.end() :]}"


class _OpenElements:
    def __init__(self, rules: MarkupRules) -> None:
        self._kept = rules.ignored if rules.is_xml else rules.ignored | _UNTRANSLATED
        self._ends_itself = frozenset[str]() if rules.is_xml else _ENDS_ITSELF
        self._names: list[str] = []
        self._counts: Counter[str] = Counter()
        self._reasons: list[_Reason] = [
            None
        ]  # why the text of each open element is kept; the first entry is for text outside all elements

    @property
    def are_kept(self) -> bool:
        return self._reasons[-1] is not None

    def read(self, part: Part) -> None:
        """Read the next part."""
        if part.shape == "start":
            if part.name in self._ends_itself and self._names[-1:] == [part.name]:
                self._close()
            self._names.append(part.name)
            self._counts[part.name] += 1
            self._reasons.append("name" if part.name in self._kept else _find_reason(part, self._reasons[-1]))
        elif part.shape == "end" and self._counts[part.name]:
            while self._close() != part.name:
                pass

    def _close(self) -> str:
        name = self._names.pop()
        self._counts[name] -= 1
        self._reasons.pop()
        return name


def _find_reason(tag: Part, outer: _Reason) -> _Reason:
    """Find why the text of an inner element is kept, if it is; its own attributes take precedence."""
    if (
        outer == "name" or "translate" not in tag.raw.lower()
    ):  # most elements have no attributes, and parsing them is slow
        return outer
    found = parse_attributes(tag)
    says = found.get("translate", "").lower()
    if says == "no" or "notranslate" in found.get("class", "").lower().split():
        return "attribute"
    return None if says == "yes" else outer


def _pair_tags(tags: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Yield the indices of start tags and of the end tags that close them."""
    stack: list[int] = []
    for index, tag in enumerate(tags):
        if tag.shape == "start":
            stack.append(index)
        elif tag.shape == "end" and stack and tags[stack[-1]].name == tag.name:
            yield stack.pop(), index


def _find_beside_text(all_parts: Sequence[Part]) -> frozenset[int]:
    """Find the indices of tags of elements whose parent has text of its own, as sentences have."""
    parents: dict[int, int] = {}
    with_text: set[int] = set()
    stack = [-1]
    for index, part in enumerate(all_parts):
        if part.shape == "text" and part.raw.strip():
            with_text.add(stack[-1])
        elif part.shape in {"start", "single"}:
            parents[index] = stack[-1]
            if part.shape == "start":
                stack.append(index)
        elif part.shape == "end" and len(stack) > 1:
            parents[index] = parents[stack.pop()]
    return frozenset(index for index, parent in parents.items() if parent in with_text)


def _trim(inline: Sequence[Part], *, keeps_spaces: bool) -> list[str | Passage]:
    # Text without a single letter, such as the number in a cell, is the same in every language.
    if not any(part.shape == "text" and any(map(str.isalpha, unescape_text(part.raw))) for part in inline):
        return ["".join(part.raw for part in inline)] if inline else []
    first, last = inline[0].raw, inline[-1].raw
    before, behind = first[: len(first) - len(first.lstrip())], last[len(last.rstrip()) :]
    inner = list(inline)
    inner[0] = inner[0]._replace(raw=inner[0].raw[len(before) :])
    inner[-1] = inner[-1]._replace(raw=inner[-1].raw.removesuffix(behind) if behind else inner[-1].raw)
    return [before, Passage(tuple(part for part in inner if part.raw), keeps_spaces), behind]
