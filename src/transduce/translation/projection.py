"""Spans of the source put into the translation of the text without them, where word alignment says that they belong.

A model that was never trained on addresses, tags and placeholders translates badly around them. So it does not get to
see them: the rest is translated as if they were not there, and they are put in again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.translation.alignment import Alignment

_PUNCTUATION = frozenset(".,;:!?)]}»”…。、，！？")
"""What stands behind a span without a space."""


@dataclass(frozen=True)
class Removed:
    """A span that was taken out.

    Args:
        text: the span.
        word: words of the bare text in front of it.
        opens: whether it belongs to the word behind it rather than to the one in front.
        glued_left: whether there was no space in front of it.
        glued_right: what stood behind it without a space; "" if there was one.
    """

    text: str
    word: int
    opens: bool
    glued_left: bool
    glued_right: str


def without_spans(text: str, spans: Sequence[str]) -> tuple[str, list[Removed]]:
    """The text without the spans, and what is needed to put them into its translation.

    Args:
        text: a line.
        spans: parts of it, in its order; one that is not found behind the ones before is passed over.
    """
    bare, removed, start = "", [], 0
    for span in spans:
        place = text.find(span, start)
        if place < 0:
            continue
        bare = _appended(bare, text[start:place])
        start = place + len(span)
        glued_left = place > 0 and not text[place - 1].isspace()
        glued_right = text[start : start + 1].strip()
        opens = bool(glued_right) and not glued_left and glued_right not in _PUNCTUATION
        is_closing = span.startswith("</")
        opens = not is_closing and (opens or (span.startswith("<") and not span.endswith("/>")))
        removed.append(Removed(span, len(bare.split()), opens, glued_left, glued_right))
    return _appended(bare, text[start:]).strip(), removed


def _appended(bare: str, rest: str) -> str:
    """What is left of both sides of a span: with one space between, and none in front of punctuation."""
    if bare.endswith(" ") and rest[:1] in _PUNCTUATION:
        return bare.rstrip() + rest
    return bare + (rest.lstrip() if bare.endswith(" ") or not bare else rest)


def with_spans(translation: str, removed: Sequence[Removed], alignment: Alignment) -> str:
    """The translation of the bare text with the spans in it, in their order.

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
    is_glued = False  # whether what comes next stands right behind

    for span in removed:
        place = max(done, min(len(words), _place(span, linked, len(alignment.source), len(words))))
        if span.text.startswith("</") and place == done < len(words) and text:
            place += 1  # an element that has words keeps one
        for word in words[done:place]:
            text, is_glued = _joined(text, word, is_glued=is_glued), False
        done = place
        behind = span.glued_right if span.glued_right in _PUNCTUATION and text.endswith(span.glued_right) else ""
        text = _joined(text.removesuffix(behind), span.text, is_glued=is_glued or span.glued_left) + behind
        is_glued = span.opens and bool(span.glued_right)
    for word in words[done:]:
        text, is_glued = _joined(text, word, is_glued=is_glued), False
    return text


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
