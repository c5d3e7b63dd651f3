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
    """`text` if it fits, else what the first cut gives, each part cut further by the next ones where it must be."""
    if not cuts or fits(text):
        return [text]
    return _merged([part for piece in cuts[0](text) for part in _parts(piece, cuts[1:], fits)], fits)


def _merged(parts: list[str], fits: Callable[[str], bool]) -> list[str]:
    """`parts` with neighbours joined as long as they fit, from the left.

    The number of parts to add doubles while they fit and halves when they do not: a page without spaces has thousands.
    """
    merged = []
    start = 0
    while start < len(parts):
        end, step = start + 1, 1
        while step:
            if end + step <= len(parts) and fits("".join(parts[start : end + step])):
                end, step = end + step, 2 * step
            else:
                step //= 2
        merged.append("".join(parts[start:end]))
        start = end
    return merged
