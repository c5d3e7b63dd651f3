"""Whole documents: sentences to be translated, and what stands between them, which is kept as it is."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from transduce.errors import UserError
from transduce.text.fitting_places import Place, outside
from transduce.text.protected_spans import ProtectedSpan, find_protected_spans
from transduce.text.segmentation import sentences

# What a line may begin with: spaces, and in front of a space what marks quotations, headings and entries of lists.
_MARGIN = re.compile(
    r"""(?: \s++
          | (?: [-+*•‣◦▪●○–—] | >++ | \#{1,6}+ | \[[ xX]\] | \(? (?: \d{1,3}+ | [A-Za-z] ) \) ) (?=\s)
        )*+""",
    re.VERBOSE,
)
# The same with full stops, which may also be the end of a sentence, or of "3." in "3. Mai": the language decides.
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,3})*\.")


@dataclass(frozen=True)
class Document:
    """A text in parts.

    Args:
        sentences: what is to be translated: each has a letter or digit, and no space at either end.
        separators: what stands in front of each sentence, and behind the last; one more than there are sentences.
    """

    sentences: tuple[str, ...]
    separators: tuple[str, ...]


def split_document(text: str, language: str) -> Document:
    """The sentences of a text and what stands between them: joined in turn, they are `text` again.

    Every end of a line ends a sentence: a text with lines that are broken at some width should be joined before.
    Indentation, the marks of lists, headings and quotations, and whatever has no letter or digit are kept between
    sentences. No cut falls within an address, a tag or a placeholder.

    Args:
        text: anything.
        language: see `transduce.text.sentences`.
    """
    return _document(_parts(text, language))


def subdivided(document: Document, divide: Callable[[str], Sequence[str]]) -> Document:
    """The same text with each sentence in the parts that `divide` cuts it into, but for cuts within a protected span.

    Where `divide` cuts a sentence, a span that it would cut even if it stood alone, as an image within its address, is
    no part of any sentence: it is kept as it is, and what is before and behind it is divided.

    Args:
        document: from `split_document`.
        divide: gives consecutive parts of a sentence: joined, they are the sentence.
    """
    return _document(_subdivided_parts(document, divide))


def rebuilt(document: Document, translations: Sequence[str]) -> str:
    """The document with translations in place of its sentences.

    Chinese and Japanese have no space between sentences: behind a translation into a script that has them, one is put
    in. Nothing else is changed, so that a document rebuilt from its own sentences is its text.

    Args:
        document: from `split_document`.
        translations: one for each sentence, in order.

    Raises:
        UserError: there are more or fewer translations than sentences.
    """
    if len(translations) != len(document.sentences):
        raise UserError(
            f"{len(translations)} translations for a document of {len(document.sentences)} sentences: "
            f"give one for each, in order"
        )
    parts = [document.separators[0]]
    last = len(translations) - 1
    for place, (sentence, translation) in enumerate(zip(document.sentences, translations, strict=True)):
        separator = document.separators[place + 1]
        is_glued = translation and not separator and place < last
        parts += [translation, " " if is_glued and _is_wide(sentence) and not _is_wide(translation) else separator]
    return "".join(parts)


def _document(parts: Iterable[tuple[str, bool]]) -> Document:
    """Of consecutive parts, and whether each is a sentence."""
    found: list[str] = []
    between: list[list[str]] = [[]]
    for part, is_sentence in parts:
        if is_sentence:
            found.append(part)
            between.append([])
        else:
            between[-1].append(part)
    return Document(tuple(found), tuple(map("".join, between)))


def _parts(text: str, language: str) -> Iterator[tuple[str, bool]]:
    """Consecutive parts of `text`, and whether each is a sentence."""
    spans = find_protected_spans(text)
    start = 0
    for line in _whole(text.splitlines(keepends=True), 0, spans):
        margin = _MARGIN.match(line)
        indent = margin.end() if margin else 0
        yield line[:indent], False
        for place, part in enumerate(_whole(sentences(line[indent:], language), start + indent, spans)):
            if place == 0 and _NUMBER.fullmatch(part.strip()):
                yield part, False
            else:
                yield from _bared(part)
        start += len(line)


def _subdivided_parts(document: Document, divide: Callable[[str], Sequence[str]]) -> Iterator[tuple[str, bool]]:
    """The same of the sentences of a document."""
    yield document.separators[0], False
    for sentence, behind in zip(document.sentences, document.separators[1:], strict=True):
        parts = divide(sentence)
        if len(parts) == 1:
            yield sentence, True
        else:
            yield from _divided(sentence, parts, divide)
        yield behind, False


def _divided(sentence: str, parts: Sequence[str], divide: Callable[[str], Sequence[str]]) -> Iterator[tuple[str, bool]]:
    """The same of one sentence, which `divide` cuts into `parts`."""
    spans = [(span.start, span.end) for span in find_protected_spans(sentence)]
    start = 0
    for span_start, span_end in spans:
        kept = sentence[span_start:span_end]
        if len(divide(kept)) == 1:
            continue
        yield from _cut(sentence, start, divide(sentence[start:span_start]), spans)
        yield kept, False
        start = span_end
    yield from _cut(sentence, start, divide(sentence[start:]) if start else parts, spans)


def _cut(sentence: str, start: int, parts: Sequence[str], spans: Sequence[Place]) -> Iterator[tuple[str, bool]]:
    """The same of `parts` of a sentence, the first of which is at `start`, but for cuts within a span."""
    for place in pairwise(outside([*accumulate(map(len, parts), initial=start)], spans)):
        yield from _bared(sentence[slice(*place)])


def _bared(part: str) -> Iterator[tuple[str, bool]]:
    """A part that may have space at its ends, in parts: a sentence without it, if it shows a letter or digit."""
    sentence = part.strip()
    if not any(map(str.isalnum, sentence)):
        yield part, False
        return
    begin = part.index(sentence)
    yield part[:begin], False
    yield sentence, True
    yield part[begin + len(sentence) :], False


def _whole(parts: Sequence[str], start: int, spans: Sequence[ProtectedSpan]) -> Iterator[str]:
    """`parts`, the first of which is at `start`, joined wherever they are cut within a span."""
    waiting: list[str] = []
    for part in parts:
        waiting.append(part)
        start += len(part)
        before = bisect_left(spans, start, key=lambda span: span.start) - 1  # the last span that begins before the cut
        if before < 0 or spans[before].end <= start:
            yield "".join(waiting)
            waiting = []


def _is_wide(text: str) -> bool:
    """Whether `text` ends in a character of the East Asian scripts, whose full stops bring their own space."""
    return bool(text) and unicodedata.east_asian_width(text[-1]) in "WF"
