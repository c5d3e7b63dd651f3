"""What has to be the same on both sides, whatever the languages: copies, numbers, ends of sentences, brackets, markup,
addresses.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from re import Pattern

import numpy as np
from jaxtyping import Int64

from transduce.config import TextConfig
from transduce.doctor.checks.encoding import DIRECTION_MARKS, INVISIBLE
from transduce.doctor.corpus.reading import PairSearch
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.findings import SCORES_AS_WRONG, Finding, Marker, format_pairs, grade, mark_nothing, mark_pattern
from transduce.doctor.pairing.sides import find_copies, find_partly_untranslated

_BRACKETS = re.compile(r"[()\[\]{}（）［］【】「」『』]")
_TAGS = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>")
_ADDRESSES = re.compile(r"(?:https?://|www\.)[^\s<>\"“”]+")
_ENDS = re.compile(r"\W+$")
_DIGITS = re.compile(r"\d+")

_ANY_BRACKET = str.maketrans("（）［］【】「」『』", "()[][][][]")


def _have_different(pattern: Pattern[str], normalize: Callable[[str], str] = str) -> Callable[[str, str], bool]:
    """A function that says whether two lines differ in what the pattern matches, in any order."""

    def count(line: str) -> Counter[str]:
        return Counter(map(normalize, pattern.findall(line)))

    return lambda source, target: count(source) != count(target)


def _reduce_address(address: str) -> str:
    """An address without the punctuation behind it."""
    return address.rstrip(".,;:!?)'»]】）」』")


PAIR_SEARCHES = {
    "brackets": PairSearch(_BRACKETS, _have_different(_BRACKETS, lambda bracket: bracket.translate(_ANY_BRACKET))),
    "markup": PairSearch(_TAGS, lambda _source, _target: True),
    "addresses": PairSearch(_ADDRESSES, _have_different(_ADDRESSES, _reduce_address)),
}

ENDINGS = ("nothing", ".", "?", "!", ":", "…")
"""Kinds of ends of lines: by their last character, quotes, brackets and invisible characters behind it left
out."""

_KIND = {
    **dict.fromkeys(".。।።۔։", 1),
    **dict.fromkeys("?？؟\u037e፧", 2),
    **dict.fromkeys("!！", 3),
    **dict.fromkeys(":：;", 4),
    **dict.fromkeys("…", 5),
}
_GREEK = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")  # whose question mark is a semicolon
_CLOSING = " \t\u00a0\u3000\"'”“»›’‘)]}」』）" + INVISIBLE + DIRECTION_MARKS


def classify_ending(line: str) -> int:
    """The number of the kind of a line's end in `ENDINGS`."""
    last = line.rstrip(_CLOSING)[-1:]
    if last == ";" and _GREEK.search(line):
        return ENDINGS.index("?")
    return _KIND.get(last, 0)


def find_surface_differences(
    text: Text, training: Text, vocabulary: Vocabulary, config: TextConfig
) -> Iterator[Finding]:
    """Find copies, partly untranslated lines, markup, and pairs with different numbers, ends, brackets or addresses."""
    copies = np.flatnonzero(find_copies(text))
    yield from _describe(text, _make_copies_rule(text, copies, config), copies, _advise_on_copies(text, config))
    yield from _describe(
        text,
        _Rule("partly_untranslated", "have a target with three or more words of its own source", 0.01, 0.1),
        np.setdiff1d(find_partly_untranslated(text, training, vocabulary), copies),
        "titles and quotes stay as they are; if whole clauses were not translated, leave these pairs out",
    )
    digits = [side.sum_over_words(vocabulary.digits) for side in text.sides.values()]
    has_both = (digits[0] != 0) & (digits[1] != 0)
    yield from _describe(
        text,
        _Rule(
            "different_numbers", f"of {int(has_both.sum()):,} with digits on both sides have different ones", 0.01, 0.1
        ),
        np.flatnonzero(has_both & (digits[0] != digits[1])),
        "number words and times of day differ rightly; otherwise the pair is no translation",
        mark_pattern(_DIGITS),
    )
    yield from _find_different_endings(text)
    written = "the model would learn to write tags" if text.is_training else SCORES_AS_WRONG
    lost = "the model learns to add or to leave out" if text.is_training else SCORES_AS_WRONG
    for rule, advice, mark in (
        (
            _Rule("different_brackets", "have different brackets on the two sides", 0.02, math.inf),
            f"where a part in brackets is missing on one side, {lost}",
            mark_pattern(_BRACKETS),
        ),
        (
            _Rule("markup", "have tags as of HTML or XML", 0.001, 0.05),
            f"{written}; remove them. `transduce serve` translates text with markup by itself",
            mark_pattern(_TAGS),
        ),
        (
            _Rule("different_addresses", "have different web addresses on the two sides", 0.001, 0.05),
            "remove addresses, or leave these pairs out",
            mark_pattern(_ADDRESSES),
        ),
    ):
        rows = text.different[rule.name.removeprefix("different_")]
        yield from _describe(text, rule, rows if rule.name == "markup" else rows[text.has_text[rows]], advice, mark)


def _make_copies_rule(text: Text, copies: Int64[np.ndarray, " rows"], config: TextConfig) -> "_Rule":
    """Only copies that stay in training are serious, as those that differ in capitals do.

    Those that training leaves out are serious as well if they are most of the text: it may be the wrong file.
    """
    min_serious_share = 0.05
    if config.drop_copies and text.is_training:
        num_left = int((~text.is_exact_copy[copies]).sum())
        min_serious_share = 0.0 if num_left / len(text) >= min_serious_share else 0.5
    return _Rule("copies", "have the same words on both sides", 0.005, min_serious_share)


def _advise_on_copies(text: Text, config: TextConfig) -> str:
    if not text.is_training:
        return f"names and addresses are good copies; leave out untranslated sentences, for which {SCORES_AS_WRONG}"
    kept = "(text.drop_copies)" if config.drop_copies else "if text.drop_copies is true"
    return (
        f"training leaves out pairs that are the same to the letter {kept}; of the others, names and addresses are "
        "good copies, untranslated sentences teach the model to copy: leave these out"
    )


@dataclass(frozen=True)
class _Rule:
    """The name of a finding, what it says of pairs, and the shares of the pairs from which it is minor and serious."""

    name: str
    description: str
    min_minor_share: float
    min_serious_share: float


def _describe(
    text: Text, rule: _Rule, rows: Int64[np.ndarray, " rows"], advice: str, mark: Marker = mark_nothing
) -> Iterator[Finding]:
    share = len(rows) / len(text)
    if len(rows):
        yield Finding(
            name=rule.name,
            severity=grade(share, rule.min_minor_share, rule.min_serious_share),
            text=text,
            summary=f"{format_pairs(len(rows), share)} {rule.description}",
            advice=advice,
            rows=rows,
            mark=mark,
        )


def _find_different_endings(text: Text) -> Iterator[Finding]:
    """Find pairs whose lines end in different punctuation, as in a full stop and a question mark, or none."""
    kinds = [side.endings.astype(np.int64) for side in text.sides.values()]
    is_different = text.has_text & (kinds[0] != kinds[1])
    counts = np.bincount(kinds[0][is_different] * len(ENDINGS) + kinds[1][is_different], minlength=len(ENDINGS) ** 2)
    most = int(counts.argmax())
    source, target = ENDINGS[most // len(ENDINGS)], ENDINGS[most % len(ENDINGS)]
    yield from _describe(
        text,
        _Rule("different_endings", "end in different punctuation", 0.05, math.inf),
        np.flatnonzero(is_different),
        f"most often, in {counts[most]:,}, the source ends in {_quote(source)} and the target in {_quote(target)}; "
        + (
            "the model learns to leave out or to add marks as this text does"
            if text.is_training
            else f"{SCORES_AS_WRONG} where it ends as the source does"
        ),
        mark_pattern(_ENDS),
    )


def _quote(ending: str) -> str:
    return ending if ending == "nothing" else f"“{ending}”"
