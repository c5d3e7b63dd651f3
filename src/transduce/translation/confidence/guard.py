"""The guard: detects mistakes of small models from the text alone, and translates such lines again.

Thresholds were chosen on the 30,014 training and validation pairs of Multi30k (Elliott et al. 2016), human
translations, in the six directions between English, German and French. False alarms there, in pairs of each direction:

    repetition, copied_source, empty    none
    numbers_lost    3 to 16, of some 80 with a number above 12: "a crowd of 100" and "une foule de cent", 1950s and 50er
    too_short, too_long    2 where one side is German: two of its lines are "@@"

So at most 1 pair in 1,700 is retried needlessly. Of the translations that a small model (English to German, BLEU 32)
made of the validation and the test text, 33 of 2,014 raised an alarm, 29 of them repetitions. A beam of 12 instead of 4
fixed 19 of those, and raised the chrF of these lines from 38 to 41. A word that is merely doubled is not detected, as
it also occurs in human translations.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

MIN_ROUNDS = {"1": 12, "2": 6, "3": 4, "4,15": 3, "16,200": 2}
"""Minimum number of consecutive occurrences that count as a repetition, by length of the repeated string in
characters: a number, or "from,to". "Zoooom" and "hand in hand in hand" do not count.
Multi30k has at most 13 characters, spaces included, twice in a row."""

COPIED_SHARE = 0.7
"""Share of the source's words in the translation from which it counts as copied; of Multi30k's, at most 0.67."""

MIN_COPIED_WORDS = 4
"""Minimum number of words of a source that can count as copied; a shorter one may be a name."""

SPELLED_OUT = 12
"""Numbers up to this are often written in words: half of Multi30k's are."""

MAX_LENGTH_RATIO, LENGTH_MARGIN = 3, 20
"""A translation is too long above this many times the length of the source and this many characters more. Multi30k's
are up to 2.8 times as long."""

# Of scripts without spaces between words, Thai to Burmese, Khmer, kana and Han, each character counts as a word.
_UNSPACED = r"\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_PUNCTUATION = (
    r"!-/:-@\[-`{-~\xa1-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf"
    r"\u060c\u061b\u061f\u0964\u0965\u2000-\u206f\u3000-\u303f\uff00-\uff0f"
)
# Not \w, which splits words of Indian scripts at their vowel signs.
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_PUNCTUATION}{_UNSPACED}]+")
# Han, kana and Hangul: each character counts as about three letters.
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_REPEATED = re.compile(
    "|".join(
        rf"(.{{{period}}}?)\{group}{{{rounds - 1},}}"
        for group, (period, rounds) in enumerate(MIN_ROUNDS.items(), start=1)
    ),
    re.DOTALL,
)
_NUMBER = re.compile(r"\d+(?:[.,'’٬٫]\d+)*")


def has_repetition(source: str, translation: str) -> bool:
    """Whether characters or words repeat consecutively, more often than any in the source."""
    rounds = _count_rounds(translation)
    return rounds > 1 and rounds > _count_rounds(source)


def is_copied_source(source: str, translation: str) -> bool:
    """Whether the translation has most of the source's words; for translations between two languages.

    Numbers do not count, nor does a source of less than `MIN_COPIED_WORDS` words, which may be a name.
    """
    words = Counter(word for word in _split_words(source) if not word.isdecimal())
    copied = words & Counter(_split_words(translation))
    return words.total() >= MIN_COPIED_WORDS and copied.total() >= COPIED_SHARE * words.total()


def is_empty(source: str, translation: str) -> bool:
    """Whether the translation is blank, but the source is not."""
    return _is_visible(source) and not _is_visible(translation)


def has_lost_numbers(source: str, translation: str) -> bool:
    """Whether the translation lacks a number of the source; see `find_lost_numbers`."""
    return bool(find_lost_numbers(source, translation))


def find_lost_numbers(source: str, translation: str) -> list[str]:
    """The numbers of the source above `SPELLED_OUT` whose digits the translation lacks, as the source writes them.

    Only digits are compared, of any script: 1,000 is 1.000, "1 000" and ١٠٠٠, but not 11,000 or "1 dog, 000". In a
    blank translation, all are lost.
    """
    plain = _write_plain_digits(translation)
    # Nearly all are found among these, without a search of the whole translation.
    written = {_extract_value(number) for number in _NUMBER.findall(plain)}
    numbers = ((number, _extract_value(number)) for number in _NUMBER.findall(source))
    return [
        number
        for number, digits in numbers
        if (len(digits) > 2 or (digits and int(digits) > SPELLED_OUT))
        and digits not in written
        and not _has_digits(plain, digits)
    ]


def is_too_short(source: str, translation: str) -> bool:
    """Whether the source is too long for the translation, as `is_too_long` measures it: text must be missing."""
    return is_too_long(translation, source)


def is_too_long(source: str, translation: str) -> bool:
    """Whether the translation is longer than `MAX_LENGTH_RATIO` times the source and `LENGTH_MARGIN` characters."""
    return measure_length(translation) > MAX_LENGTH_RATIO * measure_length(source) + LENGTH_MARGIN


PROBLEMS: dict[str, Callable[[str, str], bool]] = {
    "repetition": has_repetition,
    "copied_source": is_copied_source,
    "empty": is_empty,
    "numbers_lost": has_lost_numbers,
    "too_short": is_too_short,
    "too_long": is_too_long,
}
"""All checks by name: each takes source and translation and says whether the translation has the problem."""


def find_problems(source: str, translation: str, *, is_same_language: bool = False) -> list[str]:
    """The names of the problems of a translation, in the order of `PROBLEMS`; in the same language, a copy is none."""
    left_out = {"copied_source"} if is_same_language else set[str]()
    return [name for name, has in PROBLEMS.items() if name not in left_out and has(source, translation)]


@dataclass(frozen=True)
class GuardReport:
    """Problems found and translations replaced by a guard; reports of several blocks of lines can be added.

    Args:
        before: number of translations with each problem, by name; every name is there.
        after: number of them with the better retries in their places.
        retried: number of lines with a problem, which are those that were translated again.
        kept: how many of the retries had fewer problems, and were kept.
    """

    before: Counter[str]
    after: Counter[str]
    retried: int
    kept: int

    def __add__(self, other: "GuardReport") -> "GuardReport":
        before, after = Counter(self.before), Counter(self.after)
        before.update(other.before)
        after.update(other.after)
        return GuardReport(before, after, self.retried + other.retried, self.kept + other.kept)


def add_reports(*reports: GuardReport | None) -> GuardReport | None:
    """The sum of the reports; None if all are None."""
    given = [report for report in reports if report is not None]
    return sum(given[1:], start=given[0]) if given else None


_TranslationT = TypeVar("_TranslationT")


def retry_suspects(
    translations: Sequence[_TranslationT],
    find: Callable[[int, _TranslationT], list[str]],
    retry: Callable[[list[int]], Sequence[_TranslationT]],
) -> tuple[list[_TranslationT], GuardReport]:
    """Translate texts with problems again; returns the better translations, and a report.

    Args:
        translations: of each text.
        find: returns the problems of a translation of the text with this index, as `find_problems` does.
        retry: translates texts again, with settings that avoid such problems. It is called once, with the indices of
            the texts whose translations have problems, or not at all if there are none.
    """
    first = [find(place, translation) for place, translation in enumerate(translations)]
    suspects = [place for place, problems in enumerate(first) if problems]
    best, last, kept = list(translations), list(first), 0
    for place, attempt in zip(suspects, retry(suspects) if suspects else [], strict=True):
        problems = find(place, attempt)
        if len(problems) < len(first[place]):
            best[place], last[place] = attempt, problems
            kept += 1
    return best, GuardReport(_count_problems(first), _count_problems(last), len(suspects), kept)


def _count_problems(found: Sequence[Sequence[str]]) -> Counter[str]:
    return Counter({name: sum(name in of_one for of_one in found) for name in PROBLEMS})


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _is_visible(text: str) -> bool:
    """As `is_visible` in `text/corpus.py`, but without private-use and unassigned characters and lone surrogates."""
    return any(unicodedata.category(character)[0] not in "CZ" for character in text)


def _write_plain_digits(text: str) -> str:
    return "".join(str(unicodedata.decimal(character)) if character.isdecimal() else character for character in text)


def _extract_value(number: str) -> str:
    """The digits of a number without separators and leading zeros."""
    return re.sub("[^0-9]", "", _write_plain_digits(number)).lstrip("0")


def _has_digits(text: str, digits: str) -> bool:
    """Whether these digits follow each other in the text, with at most one separator in between, as a whole number."""
    return re.search(r"(?<!\d)0*" + r"\W?".join(digits) + r"(?!\d)", text) is not None


def measure_length(text: str) -> int:
    """Number of characters of a text, spaces included; those of Han, kana and Hangul count as three letters."""
    return len(text) + 2 * len(_WIDE.findall(text))


def _count_rounds(text: str) -> int:
    # The space at the end makes the last word like those before it.
    found = _REPEATED.finditer(text.casefold() + " ")
    return max((len(match[0]) // len(match[match.lastindex or 0]) for match in found), default=1)
