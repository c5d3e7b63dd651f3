"""Behaviours on text that every language writes in the same way: a translation should keep it as it is.

These are minimum functionality tests in the sense of CheckList (Ribeiro et al. 2020): a part of the right output is
known. Cases are made first of sentences that contain such text, and then of others, to which it is added.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial

from transduce.evaluation.scorecard.behaviour import (
    MAX_MADE_CASES,
    Behaviour,
    Case,
    Judgement,
    SourceText,
    Translations,
)
from transduce.evaluation.scorecard.options import PROTECT, PROTECT_ALL, PROTECT_NUMBERS
from transduce.pages import choose_evenly
from transduce.text import SpanCheck, SpanKind, find_protected_spans
from transduce.translation.confidence.guard import find_lost_numbers

NUMBERS = ("37", "1,284", "2019", "65", "12.75", "480", "7,350,000", "93")
ADDRESSES = ("https://www.example.org/news/17.html", "info@example.com", "www.example.net/a?id=5")
EMOJI = ("🙂", "😂", "👍", "🎉", "🔥", "🙏", "😍", "🚀")
PLACEHOLDERS = ("{name}", "%s", "<b>", "$1")
"""An element <b> is put around a word."""

_END = re.compile(r"[\s.!?。！？…।۔։]*$")
_EMOJI_STYLE = "\ufe0f"
"""A sign after an emoji that asks for its colours."""


def insert_at_end(text: str, addition: str) -> str:
    """The text with an addition before the full stop or other signs at its end."""
    end = _END.search(text)
    place = end.start() if end else len(text)
    return f"{text[:place]} {addition}{text[place:]}"


def put_in_element(text: str) -> tuple[str, ...]:
    """The text with one of its words in an element <b>, and the two tags."""
    words = text.split(" ")
    middle = len(words) // 2
    words[middle] = f"<b>{words[middle]}</b>"
    return " ".join(words), "<b>", "</b>"


def _add_placeholder(text: str, placeholder: str) -> tuple[str, ...]:
    if placeholder == "<b>":
        return put_in_element(text)
    return insert_at_end(text, f"({placeholder})"), placeholder


def _make_cases(
    find: Callable[[str], Sequence[str]],
    additions: Sequence[str],
    add: Callable[[str, str], tuple[str, ...]],
    text: SourceText,
) -> list[Case]:
    """Cases of sentences in which `find` finds what must be kept, and of others, to which `add` adds an addition."""
    sources = [sentence.source for sentence in text.sentences]
    found = [Case(source, kept=tuple(kept)) for source in sources if (kept := find(source))]
    cases = choose_evenly(found, MAX_MADE_CASES)
    others = choose_evenly([source for source in sources if not find(source)], MAX_MADE_CASES - len(cases))
    for number, source in enumerate(others):
        made, *kept = add(source, additions[number % len(additions)])
        cases.append(Case(made, kept=tuple(kept)))
    return cases


def _find_spans(kinds: Collection[SpanKind], text: str) -> list[str]:
    return [text[span.start : span.end] for span in find_protected_spans(text, kinds)]


def _judge_numbers(case: Case, translations: Translations) -> Judgement:
    lost = find_lost_numbers(case.text, translations[case.text])
    score = 1 - len(lost) / len(find_lost_numbers(case.text, ""))
    return Judgement(score, f"lost: {', '.join(lost)}" if lost else "")


def _judge_kept(case: Case, translations: Translations) -> Judgement:
    """Every part occurs as often as in the input; tags are in the same order, and an element is not empty."""
    source, translation = (text.replace(_EMOJI_STYLE, "") for text in (case.text, translations[case.text]))
    parts = dict.fromkeys(part.replace(_EMOJI_STYLE, "") for part in case.kept)
    counts = {part: (source.count(part), translation.count(part)) for part in parts}
    problems = [
        f"lost: {part}" if count == 0 else f"{count} times instead of {expected}: {part}"
        for part, (expected, count) in counts.items()
        if count != expected
    ]
    if not problems and not SpanCheck(source, ["tag"]).passes(translation):
        return Judgement(0.0, "tags are in another order, or around nothing")
    return Judgement(1 - len(problems) / len(parts), "; ".join(problems))


KEPT_TEXT = (
    Behaviour(
        "numbers",
        "The digits of numbers above 12 are in the translation.",
        partial(
            _make_cases,
            lambda source: find_lost_numbers(source, ""),
            NUMBERS,
            lambda source, number: (insert_at_end(source, f"({number})"),),
        ),
        _judge_numbers,
        option=PROTECT_NUMBERS,
    ),
    Behaviour(
        "addresses",
        "URLs and e-mail addresses are in the translation as they are.",
        partial(
            _make_cases,
            partial(_find_spans, ["url", "email"]),
            ADDRESSES,
            lambda source, address: (f"{source} {address}", address),
        ),
        _judge_kept,
        option=PROTECT,
    ),
    Behaviour(
        "placeholders",
        "Placeholders such as {name}, %s and $1, and the tags of HTML, are in the translation as they are.",
        partial(_make_cases, partial(_find_spans, ["placeholder", "tag"]), PLACEHOLDERS, _add_placeholder),
        _judge_kept,
        option=PROTECT_ALL,
    ),
    Behaviour(
        "emoji",
        "An emoji after the sentence is in the translation.",
        partial(_make_cases, lambda _: [], EMOJI, lambda source, emoji: (f"{source} {emoji}", emoji)),
        _judge_kept,
    ),
)
"""Behaviours on text that is kept."""
