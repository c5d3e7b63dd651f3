"""Segmentation: sentences, parts that a model can read, documents, and lines with tags. No character is lost."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import sentencex

from transduce.errors import UserError
from transduce.text.corpus import LONE_SURROGATE
from transduce.text.languages import get_base_code
from transduce.text.protected_spans import ProtectedSpan, find_protected_spans, has_letters, pair_tags

# sentencex panics at a wide space before a full stop, as in "A\u00a0.", and refuses lone surrogates.
# Each is replaced by one plain character in a copy, and the text is split where the copy is split.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")

_WINDOW = 5_000
"""Characters that sentencex reads at once, as its time grows with the square of brackets and quotation marks that are
never closed, and of abbreviations: it is at most some 0.1 s for so many. Texts without line ends are rarely longer."""

# Between clauses: after a comma and the like with its space, or without space in Chinese and Japanese.
_CLAUSE = re.compile(r"(?<=[,;:.!?…)\]}»”،؛–—]\s)(?=\S)|(?<=[、，；：。！？])(?=\S)")
_WORD = re.compile(r"(?<=\s)(?=\S)")


def split_sentences(text: str, language: str) -> list[str]:
    """Split `text` into sentences, each with its trailing space; their concatenation is `text`.

    The language is a code such as "en", or "" for general rules; a region, as in "de-AT", has no effect.
    """
    if not text:
        return []
    plain = LONE_SURROGATE.sub("?", _WIDE_SPACE.sub(" ", text))
    code = get_base_code(language)
    cuts, start, end = [0], 0, 0
    while end < len(text):
        end = _find_window_end(plain, start)
        ends = accumulate(map(len, sentencex.segment(code, plain[start:end])), initial=start)
        found = [one for one in ends if start < one < end]
        cuts += found
        # The last sentence of a window may go on behind it, and is read again, unless it is most of the window.
        start = found[-1] if found and found[-1] > (start + end) // 2 else end
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])]


def _find_window_end(text: str, start: int) -> int:
    """Where the part of the text ends that begins at `start` and is given to sentencex at once.

    It is at most `_WINDOW` characters long, and ends behind a space if there is one in its second half.
    """
    end = start + _WINDOW
    return len(text) if end >= len(text) else text.rfind(" ", start + _WINDOW // 2, end) + 1 or end


def split_segments(text: str, language: str, fits: Callable[[str], bool]) -> list[str]:
    """Split `text` into consecutive parts that fit: `text` as a whole, else its sentences.

    A sentence that does not fit is split into clauses, else words, else characters, as many as fit in one part.
    Sentences are not joined, because a model that was trained on single sentences leaves out some of several. The
    concatenation of the parts is `text`. A single character must fit.
    """
    if fits(text):
        return [text]
    cuts: list[Callable[[str], list[str]]] = [_CLAUSE.split, _WORD.split, list]
    return [part for sentence in split_sentences(text, language) for part in _split_to_fit(sentence, cuts, fits)]


def join_segments(segments: Sequence[str], translations: Sequence[str]) -> str:
    """Join the translations of consecutive parts of a line, as `split_segments` returns them; empty ones are left out.

    There is a space where the parts have one, and where Chinese or Japanese, which has none between sentences, is
    translated into another script.
    """
    joined, has_space = "", False
    for segment, translation in zip(segments, translations, strict=True):
        has_space |= segment[:1].isspace()
        if translation:
            joined += (" " if has_space and joined else "") + translation
            has_space = False
        has_space |= segment[-1:].isspace() or (_is_wide(segment) and not _is_wide(translation))
    return joined


def _split_to_fit(text: str, cuts: list[Callable[[str], list[str]]], fits: Callable[[str], bool]) -> list[str]:
    """`text` if it fits, else its parts by the first cut, each split further by the next ones where necessary.

    Neighbours are joined as long as they fit, from the left.
    """
    if not cuts or fits(text):
        return [text]
    pieces, found = cuts[0](text), list[str]()
    start, length, first_fits = 0, 1, False
    while start < len(pieces):
        end = _find_run_end(pieces, start, length, fits, first_fits=first_fits)
        if end == start:
            *before, last = _split_to_fit(pieces[start], cuts[1:], fits)
            if before and found and fits(found[-1] + before[0]):
                before[0] = found.pop() + before[0]
            found += before
            pieces[start], first_fits = last, True
            continue
        found.append("".join(pieces[start:end]))
        start, length, first_fits = end, end - start, False
    return found


def _find_run_end(pieces: list[str], start: int, length: int, fits: Callable[[str], bool], *, first_fits: bool) -> int:
    """The end of the longest run of pieces from `start` that fits; `start` if the first piece does not fit.

    The search begins at a likely `length`, that of the run before: a page without spaces has thousands of pieces, and
    each call of `fits` takes time in proportion to them.
    """
    # The pieces up to `least` fit, and those up to `most` do not.
    most, least, step = len(pieces) + 1, start + first_fits, 1
    end = min(max(start + length, least + 1), len(pieces))
    while most - least > 1:
        if fits("".join(pieces[start:end])):
            least = end
            end = min(least + step, (least + most) // 2)
        else:
            most = end
            end = max(most - step, (least + most) // 2)
        step *= 2
    return least


Bounds = tuple[int, int]
"""The start and the end of a part of a text."""


def find_fitting_spans(
    text: str, hidden: Sequence[Bounds], indivisible: Sequence[Bounds], language: str, fits: Callable[[str], bool]
) -> list[Bounds]:
    """The start and end of each part of a text that fits, without space around it: of the text, or of its sentences.

    A sentence that does not fit is divided as `split_segments` divides it. A span that must stay together may be a part
    that is too long.

    Args:
        text: any text.
        hidden: spans of characters that the model does not see, by start and end.
        indivisible: spans that must stay together, from left to right.
        language: see `split_sentences`.
        fits: whether the model can read a part, in which hidden characters are spaces.
    """
    shown = _blank_spans(text, hidden)

    def divide(bounds: Bounds) -> list[Bounds]:
        start, part = bounds[0], shown[slice(*bounds)]
        if fits(part):
            return [bounds]
        cuts = accumulate(map(len, split_segments(part, language, fits)), initial=start)
        spans = _cut_text(text, move_cuts_outside([*cuts], indivisible))
        # A part that begins earlier than planned may be too long.
        return [one for span in spans for one in divide(span)] if len(spans) > 1 else spans

    if fits(shown):
        return _cut_text(text, [0, len(text)])
    cuts = move_cuts_outside([*accumulate(map(len, split_sentences(text, language)), initial=0)], indivisible)
    return [part for span in _cut_text(text, cuts) for part in divide(span)]


def _blank_spans(text: str, spans: Iterable[Bounds]) -> str:
    shown = list(text)
    for start, end in spans:
        shown[start:end] = " " * (end - start)
    return "".join(shown)


def _cut_text(text: str, cuts: Sequence[int]) -> list[Bounds]:
    """The spans between cuts, without space at their ends; none where there is only space."""
    spans = []
    for start, end in pairwise(cuts):
        part = text[start:end]
        if shown := part.strip():
            first = start + part.index(shown)
            spans.append((first, first + len(shown)))
    return spans


def move_cuts_outside(cuts: Sequence[int], indivisible: Sequence[Bounds]) -> list[int]:
    """Move cuts that fall within a span to before the span, or else to after it."""
    moved = [cuts[0]]
    for cut in cuts[1:]:
        before = bisect_right(indivisible, cut, key=lambda one: one[0]) - 1
        start, end = indivisible[before] if before >= 0 else (cut, cut)
        allowed = cut if not start < cut < end else start if start > moved[-1] else end
        if allowed > moved[-1]:
            moved.append(allowed)
    return moved


LIST_MARK = re.compile(
    r"[-+*•‣◦▪●○–—] | >++ | \#{1,6}+ | \[[ xX]\] | \(? (?: \d{1,3}+ | [A-Za-z] ) \)",
    re.VERBOSE,
)
"""Marks of quotations, headings and list items, which stand before a space at the beginning of a line."""

# Beginnings of lines: spaces and marks.
_MARGIN = re.compile(rf"(?: \s++ | (?: {LIST_MARK.pattern} ) (?=\s) )*+", re.VERBOSE)
# The same with full stops, which may also be the end of a sentence, or of "3." in "3. Mai": the language decides.
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,3})*\.")


@dataclass(frozen=True)
class Document:
    """A text split into sentences and separators.

    Args:
        sentences: the texts to translate: each has a letter outside of its tags, and no space at either end.
        separators: the text before each sentence and after the last; one more than there are sentences.
    """

    sentences: tuple[str, ...]
    separators: tuple[str, ...]


def find_list_mark(text: str, start: int, language: str) -> Bounds:
    """The start and end of the list marks with which a sentence begins at `start`, without space; nothing: `start`."""
    margin = _MARGIN.match(text, start)
    end = margin.end() if margin else start
    number = _NUMBER.match(text, end)
    if number and text[number.end() : number.end() + 1].isspace():
        first = split_sentences(text[end:], language)[0]
        end += len(first) if _NUMBER.fullmatch(first.strip()) else 0
    mark = text[start:end].strip()
    first_shown = text.index(mark, start)
    return first_shown, first_shown + len(mark)


def split_document(text: str, language: str) -> Document:
    """Split a text into sentences and separators, which joined alternately are `text`.

    Every end of a line ends a sentence: a text with lines that are broken at some width should be joined before.
    Indentation, the marks of lists, headings and quotations, and text without letters, such as numbers, are kept as
    separators.
    No cut falls within an address, a tag or a placeholder.
    """
    return _build_document(_split_parts(text, language))


def subdivide_document(document: Document, divide: Callable[[str], Sequence[str]]) -> Document:
    """Split the sentences of a document further, except within protected spans.

    `divide` gives consecutive parts of a sentence. A span that it would cut even on its own, such as an image within
    its address, becomes part of a separator and is kept unchanged; the text before and after it is split.
    """
    return _build_document(_subdivide_parts(document, divide))


def rebuild_document(document: Document, translations: Sequence[str]) -> str:
    """Join a document with translations in place of its sentences.

    Chinese and Japanese have no space between sentences: after a translation into a script that has spaces, one is
    inserted. Nothing else is changed, so that a document rebuilt from its own sentences is its text.

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
    for index, (sentence, translation) in enumerate(zip(document.sentences, translations, strict=True)):
        separator = document.separators[index + 1]
        is_glued = translation and not separator and index < last
        parts += [translation, " " if is_glued and _is_wide(sentence) and not _is_wide(translation) else separator]
    return "".join(parts)


def _build_document(parts: Iterable[tuple[str, bool]]) -> Document:
    """A document from consecutive parts, each with whether it is a sentence."""
    found: list[str] = []
    between: list[list[str]] = [[]]
    for part, is_sentence in parts:
        if is_sentence:
            found.append(part)
            between.append([])
        else:
            between[-1].append(part)
    return Document(tuple(found), tuple(map("".join, between)))


def _split_parts(text: str, language: str) -> Iterator[tuple[str, bool]]:
    spans = find_protected_spans(text)
    start = 0
    for line in _join_within_spans(text.splitlines(keepends=True), 0, spans):
        margin = _MARGIN.match(line)
        indent = margin.end() if margin else 0
        yield line[:indent], False
        for index, part in enumerate(
            _join_within_spans(split_sentences(line[indent:], language), start + indent, spans)
        ):
            if index == 0 and _NUMBER.fullmatch(part.strip()):
                yield part, False
            else:
                yield from _strip_part(part)
        start += len(line)


def _subdivide_parts(document: Document, divide: Callable[[str], Sequence[str]]) -> Iterator[tuple[str, bool]]:
    yield document.separators[0], False
    for sentence, behind in zip(document.sentences, document.separators[1:], strict=True):
        parts = divide(sentence)
        yield from [(sentence, True)] if len(parts) == 1 else _divide_sentence(sentence, parts, divide)
        yield behind, False


def _divide_sentence(
    sentence: str, parts: Sequence[str], divide: Callable[[str], Sequence[str]]
) -> Iterator[tuple[str, bool]]:
    spans = [(span.start, span.end) for span in find_protected_spans(sentence)]
    start = 0
    for span_start, span_end in spans:
        kept = sentence[span_start:span_end]
        if len(divide(kept)) == 1:
            continue
        yield from _cut_outside_spans(sentence, start, divide(sentence[start:span_start]), spans)
        yield kept, False
        start = span_end
    yield from _cut_outside_spans(sentence, start, divide(sentence[start:]) if start else parts, spans)


def _cut_outside_spans(
    sentence: str, start: int, parts: Sequence[str], spans: Sequence[Bounds]
) -> Iterator[tuple[str, bool]]:
    """Consecutive parts of a sentence that is cut into `parts` from `start` on, without cuts within a span."""
    for bounds in pairwise(move_cuts_outside([*accumulate(map(len, parts), initial=start)], spans)):
        yield from _strip_part(sentence[slice(*bounds)])


def _strip_part(part: str) -> Iterator[tuple[str, bool]]:
    """A part as a sentence and the space around it; no sentence if it has no letter."""
    sentence = part.strip()
    if not has_letters(sentence):
        yield part, False
        return
    begin = part.index(sentence)
    yield part[:begin], False
    yield sentence, True
    yield part[begin + len(sentence) :], False


def _join_within_spans(parts: Sequence[str], start: int, spans: Sequence[ProtectedSpan]) -> Iterator[str]:
    """Join `parts`, the first of which is at `start`, wherever they are cut within a span."""
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


# HTML tags across which no sentence continues.
_DIVIDING = re.compile(
    r"""</?(?: address | article | aside | blockquote | body | br | caption | center | dd | details | dialog | div | dl
             | dt | fieldset | figcaption | figure | footer | form | h[1-6] | head | header | hr | html | legend | li
             | main | nav | ol | option | p | pre | section | select | summary | table | tbody | td | tfoot | th | thead
             | title | tr | ul )(?=[\s/>])""",
    re.VERBOSE | re.IGNORECASE,
)


def split_tagged_sentences(text: str, tags: Sequence[ProtectedSpan], language: str) -> list[tuple[int, int]]:
    """The start and end of each part of a line with tags that is translated by itself, without space around it.

    The text is divided where tags stand between two sentences, or one of them begins or ends a paragraph, a cell, a
    line or the like; but not within an element that begins or ends in the middle of a sentence. A tag belongs to the
    sentence that it begins or ends. Without tags the text is one part.
    """
    if not tags:
        return _cut_text(text, [0, len(text)])
    groups = _group_tags(text, tags)
    cuts = [
        _choose_cut(text, group)
        for group, divides in zip(groups, _find_dividing_groups(text, groups, language), strict=True)
        if divides
    ]
    return _cut_text(text, [0, *cuts, len(text)])


def _group_tags(text: str, tags: Sequence[ProtectedSpan]) -> list[list[ProtectedSpan]]:
    """Groups of tags with nothing but space between them."""
    groups: list[list[ProtectedSpan]] = []
    for tag in tags:
        if groups and not text[groups[-1][-1].end : tag.start].strip():
            groups[-1].append(tag)
        else:
            groups.append([tag])
    return groups


def _find_dividing_groups(text: str, groups: Sequence[Sequence[ProtectedSpan]], language: str) -> list[bool]:
    tags = [tag for group in groups for tag in group]
    bare = _blank_spans(text, [(tag.start, tag.end) for tag in tags])
    ends = list(accumulate(map(len, split_sentences(bare, language))))
    divides = []
    for group in groups:
        first, last = _extend_over_space(text, group)
        is_at_edge = first == 0 or last == len(text)
        named = any(_DIVIDING.match(text, tag.start) for tag in group)
        divides.append(is_at_edge or named or bisect_left(ends, first) < bisect_left(ends, last + 1))

    number_of = [number for number, group in enumerate(groups) for _ in group]
    depth = [0] * (len(groups) + 1)  # of elements within sentences, that begin or end at each group
    for begin, end in pair_tags([text[tag.start : tag.end] for tag in tags]):
        first, last = number_of[begin], number_of[end]
        if first < last and not (divides[first] and divides[last]):
            depth[first + 1] += 1
            depth[last] -= 1
    return [one and not inside for one, inside in zip(divides, accumulate(depth), strict=False)]


def _extend_over_space(text: str, group: Sequence[ProtectedSpan]) -> tuple[int, int]:
    first, last = group[0].start, group[-1].end
    while first and text[first - 1].isspace():
        first -= 1
    while last < len(text) and text[last].isspace():
        last += 1
    return first, last


def _choose_cut(text: str, group: Sequence[ProtectedSpan]) -> int:
    """The cut after the last tag of the group that ends an element, else before the group."""
    ends = [tag.end for tag in group if text.startswith("</", tag.start)]
    return ends[-1] if ends else group[0].start
