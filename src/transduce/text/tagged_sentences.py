"""Lines with tags: which parts of them are sentences by themselves."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from transduce.text.protected_spans import ProtectedSpan, elements
from transduce.text.segmentation import sentences

# Tags of HTML that no sentence goes on across.
_DIVIDING = re.compile(
    r"""</?(?: address | article | aside | blockquote | body | br | caption | center | dd | details | dialog | div | dl
             | dt | fieldset | figcaption | figure | footer | form | h[1-6] | head | header | hr | html | legend | li
             | main | nav | ol | option | p | pre | section | select | summary | table | tbody | td | tfoot | th | thead
             | title | tr | ul )(?=[\s/>])""",
    re.VERBOSE | re.IGNORECASE,
)


def tagged_sentences(text: str, tags: Sequence[ProtectedSpan], language: str) -> list[tuple[int, int]]:
    """Where each part of a text that is to be translated by itself begins and ends, without space around it.

    The text is divided where tags stand between two sentences, or one of them begins or ends a paragraph, a cell, a
    line or the like; but not within an element that begins or ends in the middle of a sentence. A tag belongs to the
    sentence that it begins or ends. Without tags the text is one part.

    Args:
        text: a line.
        tags: those in it, in order.
        language: see `transduce.text.sentences`.
    """
    if not tags:
        return _stripped(text, 0, len(text))
    groups = _grouped(text, tags)
    cuts = [
        _cut(text, group) for group, divides in zip(groups, _dividing(text, groups, language), strict=True) if divides
    ]
    return [place for start, end in pairwise([0, *cuts, len(text)]) for place in _stripped(text, start, end)]


def _stripped(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The place without space at its ends; none if it is all space."""
    part = text[start:end]
    shown = part.strip()
    start += part.find(shown)
    return [(start, start + len(shown))] if shown else []


def _grouped(text: str, tags: Sequence[ProtectedSpan]) -> list[list[ProtectedSpan]]:
    """The tags, those together that have nothing but space between them."""
    groups: list[list[ProtectedSpan]] = []
    for tag in tags:
        if groups and not text[groups[-1][-1].end : tag.start].strip():
            groups[-1].append(tag)
        else:
            groups.append([tag])
    return groups


def _dividing(text: str, groups: Sequence[Sequence[ProtectedSpan]], language: str) -> list[bool]:
    """Whether the text is divided within each group of tags."""
    tags = [tag for group in groups for tag in group]
    bare = list(text)
    for tag in tags:
        bare[tag.start : tag.end] = " " * (tag.end - tag.start)
    ends = list(accumulate(map(len, sentences("".join(bare), language))))
    divides = []
    for group in groups:
        first, last = _with_space(text, group)
        is_at_edge = first == 0 or last == len(text)
        named = any(_DIVIDING.match(text, tag.start) for tag in group)
        divides.append(is_at_edge or named or bisect_left(ends, first) < bisect_left(ends, last + 1))

    number_of = [number for number, group in enumerate(groups) for _ in group]
    depth = [0] * (len(groups) + 1)  # of elements within sentences, that begin or end at each group
    for begin, end in elements([text[tag.start : tag.end] for tag in tags]):
        first, last = number_of[begin], number_of[end]
        if first < last and not (divides[first] and divides[last]):
            depth[first + 1] += 1
            depth[last] -= 1
    return [one and not inside for one, inside in zip(divides, accumulate(depth), strict=False)]


def _with_space(text: str, group: Sequence[ProtectedSpan]) -> tuple[int, int]:
    """Where a group of tags begins and ends with the space around it."""
    first, last = group[0].start, group[-1].end
    while first and text[first - 1].isspace():
        first -= 1
    while last < len(text) and text[last].isspace():
        last += 1
    return first, last


def _cut(text: str, group: Sequence[ProtectedSpan]) -> int:
    """Behind the last tag of the group that ends an element, else in front of it."""
    ends = [tag.end for tag in group if text.startswith("</", tag.start)]
    return ends[-1] if ends else group[0].start
