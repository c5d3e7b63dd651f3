"""Endless exact parallel text, made without a network: numbers, years and dates, in English and German words.

Little is translated word by word. "Forty-three thousand" is one German word that names the three before the forty, a
century is counted in hundreds, and "on" turns "der" into "dem" and every ordinal into a dative.
"""

import hashlib
from collections.abc import Callable
from datetime import date
from functools import cache
from typing import Literal

from numpy.random import PCG64

from transduce.errors import MissingExtraError, TransduceError

Pair = tuple[str, str]
Draw = Callable[[int], int]
Language = Literal["en", "de"]
Form = Literal["cardinal", "ordinal", "year"]

UNSEEN_DIGEST = "17dc45029e4b8fe3d587d15f75ece15ff2769fa96e07a387ddae7ef2ac643fff"
"""SHA-256 of the unseen pairs, written as lines of source, tab and target in UTF-8."""

_NUM_UNSEEN = 1000
_UNSEEN_SEED = 2017
_FIRST_YEAR, _LAST_YEAR = 1000, 2099


def sentence_pairs(num: int, seed: int, exclude: frozenset[str] = frozenset()) -> list[Pair]:
    """English sources, all different, each with its only German translation; a pure function of the arguments.

    Args:
        num: number of pairs.
        seed: other seeds give other pairs.
        exclude: sentences of either language that may not occur.

    Raises:
        MissingExtraError: num2words or Babel is not installed.
    """
    bits = PCG64(seed)

    def draw(bound: int) -> int:
        # Raw bits are the one stream that NumPy promises to keep; at 64 bits the remainder is as good as uniform.
        return int(bits.random_raw()) % bound

    kinds = (
        6 * [_draw_cardinal_pair]
        + 4 * [_draw_ordinal_pair]
        + 1 * [_draw_year_pair]
        + 2 * [_draw_year_range_pair]
        + 7 * [_draw_date_pair]
    )
    pairs: dict[str, str] = {}
    while len(pairs) < num:
        source, target = kinds[draw(len(kinds))](draw)
        if source not in exclude and target not in exclude:
            pairs[source] = target
    return list(pairs.items())


def unseen_pairs() -> list[Pair]:
    """The 1,000 pairs of the test set, always the same.

    Numbers below a hundred are not among them: nobody can translate "twelve" without having seen it.
    """
    forms: tuple[Form, ...] = ("cardinal", "ordinal")
    basic = frozenset(_small_number(number, "en", form) for number in range(100) for form in forms)
    return sentence_pairs(_NUM_UNSEEN, _UNSEEN_SEED, exclude=basic)


def training_pairs(num: int, seed: int) -> list[Pair]:
    """Pairs of which neither side is in the test set."""
    return sentence_pairs(num, seed, exclude=frozenset(sentence for pair in unseen_pairs() for sentence in pair))


def check_unseen_pairs() -> None:
    """Make sure that the test set is the one that published results were measured on.

    Raises:
        TransduceError: another version of num2words or Babel spells something differently.
    """
    lines = "".join(f"{source}\t{target}\n" for source, target in unseen_pairs())
    digest = hashlib.sha256(lines.encode()).hexdigest()
    if digest != UNSEEN_DIGEST:
        raise TransduceError(
            f"the unseen pairs have the digest {digest[:12]}, not {UNSEEN_DIGEST[:12]}: num2words or Babel spells "
            "something differently; install the versions that constraints.txt names to compare results"
        )


def _draw_cardinal_pair(draw: Draw) -> Pair:
    number = _draw_number(draw)
    return _english(number, "cardinal"), _german(number, "cardinal")


def _draw_ordinal_pair(draw: Draw) -> Pair:
    number = _draw_number(draw)
    return _english(number, "ordinal"), _german(number, "ordinal")


def _draw_number(draw: Draw) -> int:
    return draw(10 ** (1 + draw(6)))


def _draw_year_pair(draw: Draw) -> Pair:
    year = _FIRST_YEAR + draw(_LAST_YEAR - _FIRST_YEAR + 1)
    return _small_number(year, "en", "year"), _small_number(year, "de", "year")


def _draw_year_range_pair(draw: Draw) -> Pair:
    last = _FIRST_YEAR + 1 + draw(_LAST_YEAR - _FIRST_YEAR)
    first = _FIRST_YEAR + draw(last - _FIRST_YEAR)
    return (
        f"from {_small_number(first, 'en', 'year')} to {_small_number(last, 'en', 'year')}",
        f"von {_small_number(first, 'de', 'year')} bis {_small_number(last, 'de', 'year')}",
    )


def _draw_date_pair(draw: Draw) -> Pair:
    first, last = date(_FIRST_YEAR, 1, 1).toordinal(), date(_LAST_YEAR, 12, 31).toordinal()
    day = date.fromordinal(first + draw(last - first + 1))
    on, with_weekday, with_year, day_first = draw(3) == 0, draw(3) == 0, draw(4) > 0, draw(2) == 0
    return (
        _english_date(day, on=on, with_weekday=with_weekday, with_year=with_year, day_first=day_first),
        _german_date(day, on=on, with_weekday=with_weekday, with_year=with_year),
    )


def _english_date(day: date, *, on: bool, with_weekday: bool, with_year: bool, day_first: bool) -> str:
    months, weekdays = _calendar("en")
    number, month, year = _english(day.day, "ordinal"), months[day.month], _small_number(day.year, "en", "year")
    text = f"the {number} of {month}" if day_first else f"{month} the {number}"
    if with_weekday:
        text = f"{weekdays[day.weekday()]}, {text}"
    if with_year:
        text += f" {year}" if day_first else f", {year}"
    return f"on {text}" if on else text


def _german_date(day: date, *, on: bool, with_weekday: bool, with_year: bool) -> str:
    months, weekdays = _calendar("de")
    weekday, number = weekdays[day.weekday()], _german(day.day, "ordinal")
    if on:
        text = f"am {weekday}, dem {number}n" if with_weekday else f"am {number}n"
    else:
        text = f"{weekday}, der {number}" if with_weekday else f"der {number}"
    year = f" {_small_number(day.year, 'de', 'year')}" if with_year else ""
    return f"{text} {months[day.month]}{year}"


def _english(number: int, form: Form) -> str:
    """A number below a million in English words, without the comma that num2words puts behind thousands."""
    if number <= 1000:
        return _small_number(number, "en", form)
    thousands, rest = divmod(number, 1000)
    start = f"{_small_number(thousands, 'en', 'cardinal')} thousand"
    if rest == 0:
        return f"{start}th" if form == "ordinal" else start
    return f"{start}{' and ' if rest < 100 else ' '}{_small_number(rest, 'en', form)}"


def _german(number: int, form: Form) -> str:
    """A number below a million in German words: "einhunderteintausend", where num2words has "einhunderteinstausend"."""
    if number <= 1000:
        return _small_number(number, "de", form)
    thousands, rest = divmod(number, 1000)
    start = _small_number(thousands, "de", "cardinal")
    start = f"{start[:-1] if start.endswith('eins') else start}tausend"
    if rest == 0:
        return f"{start}ste" if form == "ordinal" else start
    # The hundredth is "hundertste" when it stands alone, and counts its one hundred behind thousands.
    one = "ein" if rest == 100 and form == "ordinal" else ""
    return f"{start}{one}{_small_number(rest, 'de', form)}"


@cache
def _small_number(number: int, language: Language, form: Form) -> str:
    """Numbers to 1000 and years; remembered, as num2words takes a fifth of a millisecond for each."""
    try:
        from num2words import num2words  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtraError("num2words", "demo", "making numbers in words") from error
    return str(num2words(number, lang=language, to=form))


@cache
def _calendar(language: Language) -> tuple[dict[int, str], dict[int, str]]:
    """Names of the months from 1 and of the days of the week from Monday, 0."""
    try:
        from babel.dates import get_day_names, get_month_names  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtraError("babel", "demo", "making dates in words") from error
    months, weekdays = get_month_names("wide", locale=language), get_day_names("wide", locale=language)
    return {month: str(months[month]) for month in range(1, 13)}, {day: str(weekdays[day]) for day in range(7)}
