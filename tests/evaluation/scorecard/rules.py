"""Rules that translate into a language of words spelled backwards: a perfect one, and others with one fault each."""

import difflib
import re
from collections.abc import Callable
from functools import cache

from transduce.evaluation.scorecard import BEHAVIOURS
from transduce.evaluation.scorecard.every_translation import remove_protected_spans
from transduce.text import find_protected_spans

WORDS = [
    "morning",
    "river",
    "window",
    "garden",
    "purple",
    "kitchen",
    "mountain",
    "thunder",
    "blanket",
    "silver",
    "harbour",
    "candle",
    "forest",
    "bridge",
    "whisper",
    "pocket",
    "orange",
    "lantern",
    "meadow",
    "captain",
]
"""Words that are recognised when two of their letters are swapped, or one is missing."""

TAG = ">>xx<<"
"""The tag of a target language."""

Rule = Callable[[str], str]


@cache
def translate_word(word: str) -> str:
    """The word spelled backwards, after its typing errors are corrected; a word that is unknown stays."""
    known = difflib.get_close_matches(word.casefold(), WORDS, 1, 0.7)
    if not known:
        return word
    return known[0][::-1].capitalize() if word[0].isupper() else known[0][::-1]


def translate_perfectly(text: str) -> str:
    """The translation into a language of words spelled backwards; addresses, tags and the like stay."""
    done, parts = 0, []
    for span in find_protected_spans(text):
        parts += [_translate_words(text[done : span.start]), text[span.start : span.end]]
        done = span.end
    return "".join([*parts, _translate_words(text[done:])])


def _translate_words(text: str) -> str:
    return re.sub(r"[^\W\d_]+", lambda word: translate_word(word[0]), text)


def repeat_last_word(text: str) -> str:
    return translate_perfectly(text) + " river river" * 8


def drop_after_first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", translate_perfectly(text))[0]


def forget_numbers(text: str) -> str:
    return re.sub(r"\d[\d.,]*", "many", translate_perfectly(text))


def lose_addresses(text: str) -> str:
    for span in reversed(find_protected_spans(text, ["url", "email"])):
        text = text[: span.start] + "here" + text[span.end :]
    return translate_perfectly(text)


def lose_signs(text: str) -> str:
    return re.sub("[^\\w\\s.,]", "", translate_perfectly(text))


def invent(text: str) -> str:
    """A sentence for whatever has less than three known words."""
    known = translate_perfectly(text)
    return known if len(set(known.split()) - set(text.split())) > 2 else "A captain with a lantern in a purple garden."


def stumble_at_capitals(text: str) -> str:
    return "Nothing that anybody would say." if text.isupper() else translate_perfectly(text)


def stumble_without_capital(text: str) -> str:
    return "Nothing that anybody would say." if text[0].islower() else translate_perfectly(text)


def stumble_without_full_stop(text: str) -> str:
    is_sentence = len(text.split()) > 3 and re.search(r"[^\W\d_]{5,}$", text)
    return "Nothing that anybody would say." if is_sentence else translate_perfectly(text)


def stumble_at_unknown_words(text: str) -> str:
    bare = re.sub(r"\W+", " ", remove_protected_spans(text)).casefold()
    is_known = all(word in WORDS for word in re.findall(r"[^\W\d_]+", bare))
    return translate_perfectly(text) if is_known else "Nothing that anybody would say."


NAMES = {behaviour.name for behaviour in BEHAVIOURS}

FAULTS: list[tuple[Rule, set[str]]] = [
    (str, {"translated"}),
    (
        repeat_last_word,
        {"no loops", "one word", "repeated word", "several sentences", "long input", "unknown script"},
    ),
    # What is added after a sentence is dropped as well.
    (drop_after_first_sentence, {"several sentences", "addresses", "emoji"}),
    (forget_numbers, {"numbers", "addresses"}),
    (lose_addresses, {"addresses"}),
    (lose_signs, {"placeholders", "addresses", "emoji"}),
    (invent, {"one word", "repeated word", "unknown script"}),
    (stumble_at_capitals, {"all caps"}),
    (stumble_without_capital, {"no capitals", "one word", "repeated word"}),
    (stumble_without_full_stop, {"no full stop", "repeated word"}),
    (stumble_at_unknown_words, {"typing errors", "unknown script"}),
    (lambda _: "", NAMES - {"blank input", "unknown script", "no loops", "translated"}),
    (
        lambda _: "Always the same.",
        NAMES - {"one word", "blank input", "no loops", "translated"},
    ),
]
