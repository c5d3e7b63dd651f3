"""Subtitles (SubRip and WebVTT): the text of each cue is translated; numbers, times and settings are kept exactly."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import chain

from transduce.documents.formats import FormattedDocument, LanguageDeclaration, decode_text
from transduce.documents.markup import MarkupRules, parse_markup, unescape_text
from transduce.errors import DocumentError

_LINE_END = re.compile(r"\r\n?|\n")
_TIME = r"[ \t]*(?:\d+:\d{1,2}:\d{2}(?:[,.:]\d{1,3})?|\d{1,2}:\d{2}[,.]\d{1,3})"
_TIMES = re.compile(rf"{_TIME}[ \t]*--?>{_TIME}")  # also as programs write them that take no care
_RULES = MarkupRules(is_xml=True, splitting=frozenset({"cue"}), detects_outline=False)
_VALUE = r"""=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|(?!["']))"""
# Tags that XML has, too, as <i> and <font color="red">, or would have with a space before the full stop, as <c.loud>;
# and what is kept as it is: other tags, times within a cue, positions such as {\an8}.
_KEPT = re.compile(
    rf"(</?(?!cue\b)[A-Za-z][A-Za-z0-9]*+)((?!\s+\.)(?=[\s./>])(?:[^<>=]|{_VALUE})*+>)"
    r"|</?[A-Za-z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}"
)
_CLASS = re.compile(r"(?<=\w) (?=\.)")
# A hyphen or a voice tag. Before the hyphen, text from right to left may have invisible marks of its direction.
_SPEAKER = re.compile(r"(?:<[^<>]*>|\{\\[^{}]*\}|[\s\u200e\u200f\u202a-\u202e\u2066-\u2069])*(?:[-–—‐]|<v[ \t.>])")
# A line end, with blank lines after it; or the place of a voice tag within a line.
_DIVISION = re.compile(r"(\n(?:[^\S\n]*\n)*|(?<=\S)[ \t]*(?=<v[ \t.>]))")
_WORD = re.compile(r"(?:<[^<>]*>|[^ <]|<)+")
_TAG = re.compile(r"<[^<>]*>")


def read_subrip(content: bytes) -> FormattedDocument:
    """Read SubRip (.srt).

    Raises:
        DocumentError: it is not text, or has no times.
    """
    return _read(content, lambda text: escape(text, quote=False), unescape_text, may_have_blank_lines=True)


def read_webvtt(content: bytes) -> FormattedDocument:
    """Read WebVTT (.vtt), whose text is escaped as that of HTML.

    Raises:
        DocumentError: it is not text, lacks the first line "WEBVTT", or has no times.
    """
    if not decode_text(content).text.startswith("WEBVTT"):
        raise DocumentError('the document is not WebVTT: its first line must be "WEBVTT"')
    # What follows the blank line after a cue is a comment or the name of the next cue.
    return _read(content, _escape_again, str, may_have_blank_lines=False)


def _escape_again(text: str) -> str:
    """Escape what is not escaped properly."""
    return escape(unescape_text(text), quote=False)


def _read(
    content: bytes,
    to_markup: Callable[[str], str],
    from_markup: Callable[[str], str],
    *,
    may_have_blank_lines: bool,
) -> FormattedDocument:
    decoded = decode_text(content)
    ((line_end, _),) = Counter(_LINE_END.findall(decoded.text)).most_common(1) or [("\n", 0)]
    lines = _LINE_END.sub("\n", decoded.text).split("\n")
    pieces = list(_split_cues(lines, may_have_blank_lines=may_have_blank_lines))
    if len(pieces) < 2:
        raise DocumentError('the document has no line with times, as in "00:00:01,000 --> 00:00:02,500"')
    cues = [_split_speeches(text) for text in pieces[1::2]]
    markup = "".join(f"<cue>{_mark(speech.text, to_markup)}</cue>" for speech in chain.from_iterable(cues))

    def write(translation: str, _: LanguageDeclaration | None) -> bytes:
        translations = _split_translation(translation, from_markup)
        pieces[1::2] = ["".join(speech.write(next(translations)) for speech in speeches) for speeches in cues]
        return decoded.encode("".join(pieces).replace("\n", line_end))

    return FormattedDocument(markup, _RULES, write)


def _split_cues(lines: list[str], *, may_have_blank_lines: bool) -> Iterator[str]:
    """Yield in turns what is kept and the text of a cue, without its last line end."""
    kept: list[str] = []
    place = 0
    while place < len(lines):
        kept.append(lines[place])
        place += 1
        if not _TIMES.match(kept[-1]):
            continue
        begin, end = _find_text(lines, place, may_have_blank_lines=may_have_blank_lines)
        if begin < end:
            yield "\n".join([*kept, *lines[place:begin], ""])
            yield "\n".join(lines[begin:end])
            kept = [""]  # the text is followed by a line end
            place = end
    yield "\n".join(kept)


def _find_text(lines: list[str], begin: int, *, may_have_blank_lines: bool) -> tuple[int, int]:
    """Find the first line of a cue's text and the line after its last, given the line after its times.

    Text with blank lines goes on to the number of the next cue, or to its times, if it has no number.
    """
    end = begin
    while end < len(lines) and (may_have_blank_lines or lines[end].strip()) and not _TIMES.match(lines[end]):
        end += 1
    if begin < end < len(lines) and _TIMES.match(lines[end]) and lines[end - 1].strip().isdecimal():
        end -= 1  # the number of the next cue, if no blank line is before it
    end = _skip_blank_lines(lines, begin, end)
    if end - begin > 1 and lines[end - 1].strip().isdecimal() and not lines[end - 2].strip():
        end = _skip_blank_lines(lines, begin, end - 1)  # the number of a cue, with a blank line before its times
    while begin < end and not lines[begin].strip():
        begin += 1
    return begin, end


def _skip_blank_lines(lines: list[str], begin: int, end: int) -> int:
    """The line after the last one with text of those from `begin` up to, but without, `end`."""
    while begin < end and not lines[end - 1].strip():
        end -= 1
    return end


@dataclass
class _Speech:
    """What one speaker says in a cue.

    Args:
        lines: without spaces at either end.
        line_ends: what follows each of the lines: a line end, with blank lines after it, if there are any; or nothing,
            or spaces, where the next speaker begins in the same line, or the cue ends.
    """

    lines: list[str]
    line_ends: list[str]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return " ".join(self.lines)

    def write(self, translation: str) -> str:
        """Write a translation in as many lines, or fewer if it is short: a blank line would end a cue of WebVTT."""
        if not translation.strip() and self.line_ends[-1].startswith("\n"):
            return ""
        lines = _wrap(translation, len(self.lines)) or [""]
        line_ends = [*self.line_ends[: len(lines) - 1], self.line_ends[-1]]
        return "".join(map("".join, zip(lines, line_ends, strict=True)))


def _split_speeches(text: str) -> list[_Speech]:
    """Split the text of a cue by its speakers.

    One begins in a line with a hyphen at its start, or at a voice tag of WebVTT.
    """
    pieces = [*_DIVISION.split(text), ""]
    speeches: list[_Speech] = []
    for before, line, after in zip(["", *pieces[1:-2:2]], pieces[::2], pieces[1::2], strict=True):
        if not speeches or not before.startswith("\n") or _SPEAKER.match(line):
            speeches.append(_Speech([], []))
        speeches[-1].lines.append(line.strip())
        speeches[-1].line_ends.append(after)
    return speeches


def _mark(text: str, to_markup: Callable[[str], str]) -> str:
    """Write the text of a cue as XML: what is kept and is no tag of XML becomes a processing instruction.

    The tag <c.loud> becomes <c .loud>, which has the name of its end tag </c>.
    """
    found, done = [], 0
    for kept in _KEPT.finditer(text):
        found.append(to_markup(text[done : kept.start()]))
        tag = kept[1] and kept[1] + (f" {kept[2]}" if kept[2].startswith(".") else kept[2])
        found.append(tag or f"<?{kept[0].replace('>', '&gt;')}>")
        done = kept.end()
    return "".join([*found, to_markup(text[done:])])


def _split_translation(markup: str, from_markup: Callable[[str], str]) -> Iterator[str]:
    """Yield the translation of each part of a cue, as it is written in the file."""
    found: list[str] = []
    for part in parse_markup(markup, is_xml=True):
        if part.name == "cue":
            if part.shape == "end":
                yield "".join(found)
            found = []
        elif part.shape == "text":
            found.append(from_markup(part.raw))
        elif part.shape == "other":
            found.append(part.raw[2:-1].replace("&gt;", ">"))
        else:
            found.append(_CLASS.sub("", part.raw, count=1))


def _wrap(text: str, num_lines: int) -> list[str]:
    """Divide a text into as many lines as the original has, of about the same length."""
    if num_lines == 1:
        return [text]
    words = _WORD.findall(text)
    lengths = [len(_TAG.sub("", word)) + 1 for word in words]
    lines = []
    start, remaining = 0, sum(lengths)
    for rest in range(num_lines, 1, -1):
        aim, length, end = remaining / rest, 0, start
        while end < len(words) and (length + lengths[end] / 2 <= aim or end == start):
            length += lengths[end]
            end += 1
        lines.append(" ".join(words[start:end]))
        start, remaining = end, remaining - length
    return [line for line in (*lines, " ".join(words[start:])) if line]
