"""Spans of the source put into the translation of the text without them, where word alignment says that they belong.

A model that was never trained on addresses, tags and placeholders translates badly around them. So it does not get to
see them: the rest is translated as if they were not there, and they are put in again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.text import ProtectedSpan, find_run_before, find_run_behind
from transduce.translation.alignment import Alignment

_PUNCTUATION = frozenset(".,;:!?)]}»”…。、，！？")
"""What stands behind a span without a space."""

_AROUND = frozenset({"()", "[]", "{}", '""', "''", "“”", "„“", "«»", "»«", "‘’"})
"""What goes with a span that it stands around."""


@dataclass(frozen=True)
class Removed:
    """A span that was taken out.

    Args:
        text: the span, with brackets or quotation marks around it.
        word: words of the bare text in front of it.
        opens: whether it belongs to the word behind it rather than to the one in front.
        is_tag: whether it is a tag, which may touch other words than in the source, but only those of its own element.
        left: the word or sign that stood in front of it without a space; "" if there was none.
        right: what stood behind it likewise.
    """

    text: str
    word: int
    opens: bool
    is_tag: bool
    left: str
    right: str


def without_spans(text: str, spans: Sequence[ProtectedSpan]) -> tuple[str, list[Removed]]:
    """The text without the spans, and what is needed to put them into its translation.

    Args:
        text: a line.
        spans: parts of it, in its order.
    """
    bare, removed, done = "", [], 0
    for span, (start, end) in zip(spans, removed_places(text, spans), strict=True):
        bare = _appended(bare, text[done:start])
        done = end
        written, is_tag = text[start:end], span.kind == "tag"
        left, right = find_run_before(text, start), find_run_behind(text, end)
        opens = bool(right) and not left and right not in _PUNCTUATION
        is_begin = is_tag and not written.endswith("/>")
        opens = not (is_tag and written.startswith("</")) and (opens or is_begin)
        within_word = bool(opens and bare) and not bare[-1].isspace() and right[:1].isalnum()
        removed.append(Removed(written, len(bare.split()) - within_word, opens, is_tag, left, right))
    return _appended(bare, text[done:]).strip(), removed


def removed_places(text: str, spans: Sequence[ProtectedSpan]) -> list[tuple[int, int]]:
    """Where what is taken out of a text begins and ends: each span, with what stands around nothing but it."""
    places, done = [], 0
    for span in spans:
        start, end = span.start, span.end
        while span.kind != "tag" and done < start and text[start - 1] + text[end : end + 1] in _AROUND:
            start, end = start - 1, end + 1
        places.append((start, end))
        done = end
    return places


def _appended(bare: str, rest: str) -> str:
    """What is left of both sides of a span: with one space between, and none in front of punctuation."""
    if bare.endswith(" ") and rest[:1] in _PUNCTUATION:
        return bare.rstrip() + rest
    return bare + (rest.lstrip() if bare.endswith(" ") or not bare else rest)


def with_spans(translation: str, removed: Sequence[Removed], alignment: Alignment) -> str:
    """The translation of the bare text with the spans in it, in their order.

    A span touches the same words and signs as in the source, and a tag the words of its element: no others.

    Args:
        translation: a line.
        removed: from `without_spans`.
        alignment: of the bare text and the translation.
    """
    words = translation.split()
    linked: dict[int, list[int]] = {}
    for link in alignment.links:
        linked.setdefault(link.source, []).append(link.target)
    text, done = "", 0
    last: Removed | None = None  # the span that the text ends with

    for span in removed:
        place = max(done, min(len(words), _place(span, linked, len(alignment.source), len(words))))
        if span.text.startswith("</") and place == done < len(words) and text:
            place += 1  # an element that has words keeps one
        for word in words[done:place]:
            text, last = _joined(text, word, is_glued=_touches(last, word)), None
        done = place
        behind = span.right if last is None and span.right in _PUNCTUATION and text.endswith(span.right) else ""
        text = text.removesuffix(behind)
        is_end = span.is_tag and span.text.startswith("</")
        is_glued = bool(span.left) and (is_end or find_run_before(text, len(text)) == span.left)
        text = _joined(text, span.text, is_glued=is_glued) + behind
        last = None if behind else span
    for word in words[done:]:
        text, last = _joined(text, word, is_glued=_touches(last, word)), None
    return text


def _touches(span: Removed | None, word: str) -> bool:
    """Whether a word of the translation stands behind a span without a space."""
    if span is None or not span.right:
        return False
    return (span.is_tag and span.opens) or find_run_behind(word, 0) == span.right


def _joined(text: str, rest: str, *, is_glued: bool) -> str:
    return text + rest if is_glued or not text else f"{text} {rest}"


def _place(span: Removed, linked: dict[int, list[int]], num_source: int, num_target: int) -> int:
    """Words of the translation in front of the span."""
    if span.word == 0:
        return 0
    if span.word == num_source:
        return num_target
    if span.opens:
        for word in range(span.word, num_source):
            if word in linked:
                return min(linked[word])
        return num_target
    for word in range(span.word - 1, -1, -1):
        if word in linked:
            return max(linked[word]) + 1
    return 0
