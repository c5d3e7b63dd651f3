"""Long texts in parts that a model can read; no character is lost or changed."""

import re
from collections.abc import Callable
from functools import partial

import sentencex

# sentencex panics at a wide space before a full stop, as in "A\u00a0.", and refuses lone surrogates.
# Both are shown to it as one plain character each, and the text itself is cut where it cuts its copy.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")

# Between clauses: behind a comma and the like with its space, or without space in Chinese and Japanese.
_CLAUSE = re.compile(r"(?<=[,;:.!?…)\]}»”،؛–—]\s)(?=\S)|(?<=[、，；：。！？])(?=\S)")
_WORD = re.compile(r"(?<=\s)(?=\S)")


def sentences(text: str, language: str) -> list[str]:
    """The sentences of `text`, each with the space behind it: joined, they are `text` again.

    Args:
        text: anything; the empty text has no sentence.
        language: code such as "en", or "" for rules that suit most; a region, as in "de-AT", makes no difference.
    """
    plain = _LONE_SURROGATE.sub("?", _WIDE_SPACE.sub(" ", text))
    parts = []
    start = 0
    for sentence in sentencex.segment(re.split("[-_]", language.lower())[0], plain):
        parts.append(text[start : start + len(sentence)])
        start += len(sentence)
    return [*parts, text[start:]] if start < len(text) else parts


def segments(text: str, language: str, fits: Callable[[str], bool]) -> list[str]:
    """`text` in consecutive parts that fit: as a whole, else by sentences, clauses, words, characters.

    What fits together stays together, so that a model sees as much context as it can. Joined, the parts are `text`.

    Args:
        text: anything.
        language: see `sentences`.
        fits: whether the model can read a part; a single character must fit.
    """
    return _parts(text, [partial(sentences, language=language), _CLAUSE.split, _WORD.split, list], fits)


def _parts(text: str, cuts: list[Callable[[str], list[str]]], fits: Callable[[str], bool]) -> list[str]:
    """`text` if it fits, else what the first cut gives, each part cut further by the next ones where it must be.

    Neighbours are joined as long as they fit, from the left.
    """
    if not cuts or fits(text):
        return [text]
    pieces, found = cuts[0](text), list[str]()
    start, length, first_fits = 0, 1, False
    while start < len(pieces):
        end = _end_of_run(pieces, start, length, fits, first_fits=first_fits)
        if end == start:
            *before, last = _parts(pieces[start], cuts[1:], fits)
            if before and found and fits(found[-1] + before[0]):
                before[0] = found.pop() + before[0]
            found += before
            pieces[start], first_fits = last, True
            continue
        found.append("".join(pieces[start:end]))
        start, length, first_fits = end, end - start, False
    return found


def _end_of_run(pieces: list[str], start: int, length: int, fits: Callable[[str], bool], *, first_fits: bool) -> int:
    """Where as many pieces from `start` on end as fit together; `start` if the first does not.

    It is looked for around a `length` that is likely, as that of the run before: a page without spaces has thousands of
    pieces, and each question takes time in proportion to them.
    """
    most, least, step = len(pieces) + 1, start + first_fits, 1  # so many are too many; so many fit
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
