"""Subtitles (SubRip and WebVTT): the text of each cue is translated; numbers, times and settings are kept exactly."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby

from transduce.documents.formats import FormattedDocument, decode_text
from transduce.documents.markup import MarkupRules, parse_markup, unescape_text
from transduce.errors import DocumentError

_LINE_END = re.compile(r"\r\n?|\n")
_TIMES = re.compile(r"[ \t]*(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}[ \t]+-->[ \t]+(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}")
_RULES = MarkupRules(is_xml=True, splitting=frozenset({"cue"}), detects_outline=False)
# Tags in pairs; and what is kept as it is: other tags, times within a cue, positions such as {\an8}.
_KEPT = re.compile(r"(</?[biu]>)|(</?[A-Za-z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\})")
# Before the hyphen, text from right to left may have invisible marks of its direction.
_SPEAKER = re.compile(r"(?:<[^<>]*>|\{\\[^{}]*\}|[\s\u200e\u200f\u202a-\u202e\u2066-\u2069])*[-–—‐]")
_WORD = re.compile(r"(?:<[^<>]*>|[^ <]|<)+")
_TAG = re.compile(r"<[^<>]*>")


def read_subrip(content: bytes) -> FormattedDocument:
    """Read SubRip (.srt).

    Raises:
        DocumentError: it is not text, or has no times.
    """
    return _read(content, lambda text: escape(text, quote=False), unescape_text)


def read_webvtt(content: bytes) -> FormattedDocument:
    """Read WebVTT (.vtt), whose text is escaped as that of HTML.

    Raises:
        DocumentError: it is not text, lacks the first line "WEBVTT", or has no times.
    """
    if not decode_text(content).text.startswith("WEBVTT"):
        raise DocumentError('the document is not WebVTT: its first line must be "WEBVTT"')
    return _read(content, _escape_again, str)


def _escape_again(text: str) -> str:
    """Escape what is not escaped properly."""
    return escape(unescape_text(text), quote=False)


def _read(content: bytes, to_markup: Callable[[str], str], from_markup: Callable[[str], str]) -> FormattedDocument:
    decoded = decode_text(content)
    ((line_end, _),) = Counter(_LINE_END.findall(decoded.text)).most_common(1) or [("\n", 0)]
    pieces = list(_split_cues(_LINE_END.sub("\n", decoded.text)))
    if len(pieces) < 2:
        raise DocumentError('the document has no line with times, as in "00:00:01,000 --> 00:00:02,500"')
    cues = [_join_lines(lines) for lines in pieces[1::2]]
    markup = "".join(f"<cue>{_mark(part, to_markup)}</cue>" for parts in cues for part, _ in parts)

    def write(translation: str) -> bytes:
        translations = _split_translation(translation, from_markup)
        pieces[1::2] = [
            "\n".join(_wrap(next(translations), num_lines) for _, num_lines in parts if num_lines) for parts in cues
        ]
        return decoded.encode("".join(pieces).replace("\n", line_end))

    return FormattedDocument(markup, _RULES, write)


def _split_cues(text: str) -> Iterator[str]:
    """Yield in turns what is kept and the text of a cue, without its last line end."""
    kept: list[str] = []
    lines = text.split("\n")
    place = 0
    while place < len(lines):
        kept.append(lines[place])
        place += 1
        if not _TIMES.match(kept[-1]):
            continue
        begin = place
        while place < len(lines) and lines[place].strip() and not _TIMES.match(lines[place]):
            place += 1
        if place < len(lines) and _TIMES.match(lines[place]) and lines[place - 1].strip().isdecimal():
            place -= 1  # the number of the next cue, if no blank line is before it
        if begin < place:
            yield "\n".join([*kept, ""])
            yield "\n".join(lines[begin:place])
            kept = [""]  # the text is followed by a line end
    yield "\n".join(kept) if place else ""


def _join_lines(text: str) -> list[tuple[str, int]]:
    """Join the lines of each speaker, whose first line begins with a hyphen; each with its number of lines."""
    number = 0
    numbered = []
    for line in text.split("\n"):
        number += bool(_SPEAKER.match(line))
        numbered.append((number, line.strip()))
    groups = [[line for _, line in group] for _, group in groupby(numbered, key=lambda one: one[0])]
    return [(" ".join(lines), len(lines)) for lines in groups]


def _mark(text: str, to_markup: Callable[[str], str]) -> str:
    """Write the text of a cue as XML: what is kept becomes a processing instruction."""
    pieces = _KEPT.split(text)
    found = []
    for plain, paired, kept in zip(pieces[::3], [*pieces[1::3], None], [*pieces[2::3], None], strict=True):
        found += [to_markup(plain), paired or "", f"<?{kept.replace('>', '&gt;')}>" if kept else ""]
    return "".join(found)


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
            found.append(part.raw)


def _wrap(text: str, num_lines: int) -> str:
    """Divide a text into as many lines as the original has, of about the same length."""
    if num_lines == 1:
        return text
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
    return "\n".join(line for line in (*lines, " ".join(words[start:])) if line)
