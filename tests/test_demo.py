import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import chain

import pytest
from num2words import num2words

from transduce import demo
from transduce.demo import (
    UNSEEN_DIGEST,
    check_unseen_pairs,
    generate_pairs,
    generate_test_pairs,
    generate_training_pairs,
)
from transduce.errors import MissingExtraError, TransduceError
from transduce.text import Pair

KNOWN = {
    "zero": "null",
    "one": "eins",
    "seventeen": "siebzehn",
    "forty-three": "dreiundvierzig",
    "one hundred and one": "einhunderteins",
    "one thousand": "eintausend",
    "one thousand and one": "eintausendeins",
    "six thousand": "sechstausend",
    "forty-three thousand two hundred and five": "dreiundvierzigtausendzweihundertfünf",
    "one hundred and one thousand": "einhunderteintausend",
    "nine hundred and one thousand and one": "neunhunderteintausendeins",
}
KNOWN_ORDINALS = {
    1: "erste",
    3: "dritte",
    7: "siebte",
    8: "achte",
    20: "zwanzigste",
    100: "hundertste",
    101: "einhunderterste",
    200: "zweihundertste",
    1000: "tausendste",
    1100: "eintausendeinhundertste",
    100_000: "einhunderttausendste",
    101_001: "einhunderteintausenderste",
}
ONCE = generate_pairs(40_000, 3)


@pytest.mark.parametrize(("source", "target"), KNOWN.items())
def test_cardinals_that_are_easily_spelt_wrong(source: str, target: str) -> None:
    numbers = [*range(1001), 1001, 6000, 43_205, 101_000, 901_001]
    words = {demo._english(number, "cardinal"): demo._german(number, "cardinal") for number in numbers}
    assert words[source] == target


@pytest.mark.parametrize(("number", "german"), KNOWN_ORDINALS.items())
def test_ordinals_that_are_easily_spelt_wrong(number: int, german: str) -> None:
    assert demo._german(number, "ordinal") == german


@pytest.mark.parametrize("form", ["cardinal", "ordinal"])
def test_joined_numbers_are_those_of_num2words_but_for_its_comma_and_its_s(form: demo.Form) -> None:
    for number in chain(range(991, 1320), range(1001, 1_000_000, 3331)):
        english, german = (num2words(number, lang=language, to=form) for language in ("en", "de"))
        assert demo._english(number, form) == english.replace(",", "")
        assert demo._german(number, form) == german.replace("einstausend", "eintausend")


def draws(*values: int) -> Callable[[int], int]:
    """Dice that fall as told, and not beyond their faces."""
    rest = iter(values)

    def draw(bound: int) -> int:
        value = next(rest)
        assert 0 <= value < bound
        return value

    return draw


@pytest.mark.parametrize(
    ("on", "weekday", "year", "order", "pair"),
    [
        (
            1,
            1,
            1,
            0,
            ("the twentieth of July nineteen sixty-nine", "der zwanzigste Juli neunzehnhundertneunundsechzig"),
        ),
        (1, 1, 0, 1, ("July the twentieth", "der zwanzigste Juli")),
        (0, 1, 0, 0, ("on the twentieth of July", "am zwanzigsten Juli")),
        (1, 0, 0, 0, ("Sunday, the twentieth of July", "Sonntag, der zwanzigste Juli")),
        (
            0,
            0,
            1,
            1,
            (
                "on Sunday, July the twentieth, nineteen sixty-nine",
                "am Sonntag, dem zwanzigsten Juli neunzehnhundertneunundsechzig",
            ),
        ),
    ],
)
def test_a_date_that_everybody_knows(on: int, weekday: int, year: int, order: int, pair: Pair) -> None:
    days_from_year_1000_to_the_moon = 354_120
    assert demo._draw_date_pair(draws(days_from_year_1000_to_the_moon, on, weekday, year, order)) == pair


def test_years() -> None:
    assert demo._draw_year_pair(draws(984)) == ("nineteen eighty-four", "neunzehnhundertvierundachtzig")
    assert demo._draw_year_pair(draws(66)) == ("ten sixty-six", "eintausendsechsundsechzig")
    assert demo._draw_year_range_pair(draws(917, 914)) == (
        "from nineteen fourteen to nineteen eighteen",
        "von neunzehnhundertvierzehn bis neunzehnhundertachtzehn",
    )


@pytest.mark.exhaustive
def test_one_english_sentence_has_one_german_translation() -> None:
    known: dict[str, str] = {}
    for source, target in chain(ONCE, generate_pairs(40_000, 4), generate_test_pairs()):
        assert known.setdefault(source, target) == target
    for number in range(1000, 2100):
        spelt = demo._english(number, "cardinal"), demo._german(number, "cardinal")
        assert known.setdefault(*spelt) == spelt[1]


def test_sources_are_all_different_and_everything_is_plain_words() -> None:
    assert len({source for source, _ in ONCE}) == len(ONCE) == 40_000
    for source, target in ONCE:
        assert re.fullmatch(r"([A-Z]?[a-z]+(, | |-|$))+", source)
        assert re.fullmatch(r"([A-Z]?[a-zäöüß]+(, | |$))+", target)


def test_every_kind_occurs() -> None:
    patterns = ("hundert", "ste$", "^von .* bis ", "^am ", "^der ", "^Samstag, der", "dem ", "März", "tausend")
    for pattern in patterns:
        assert sum(bool(re.search(pattern, target)) for _, target in ONCE) > 200, pattern


@pytest.mark.exhaustive
def test_pure_in_the_seed_and_in_any_process() -> None:
    assert generate_pairs(500, 3) == ONCE[:500]
    assert {source for source, _ in generate_pairs(500, 4)} != {source for source, _ in ONCE[:500]}
    program = "from transduce.demo import generate_pairs; print(ascii(generate_pairs(500, 3)))"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert printed.stdout == ascii(ONCE[:500]) + "\n"


def test_what_is_excluded_does_not_occur_on_either_side() -> None:
    excluded = frozenset((ONCE[0][0], ONCE[1][1]))
    pairs = generate_pairs(2000, 3, exclude=excluded)
    assert len(pairs) == 2000
    assert not excluded & set(chain.from_iterable(pairs))
    assert pairs[:5] == [pair for pair in ONCE if not excluded & set(pair)][:5]


@pytest.fixture(scope="module")
def trained_on() -> list[tuple[str, str]]:
    return generate_training_pairs(60_000, 1)


@pytest.mark.exhaustive
def test_training_and_unseen_share_no_sentence(trained_on: list[tuple[str, str]]) -> None:
    seen, unseen = (set(chain.from_iterable(pairs)) for pairs in (trained_on, generate_test_pairs()))
    assert not seen & unseen
    assert len(generate_test_pairs()) == 1000


def test_what_cannot_be_guessed_is_seen() -> None:
    seen = {word for source, _ in generate_training_pairs(6_000, 1) for word in re.split(r"[ ,-]+", source)}
    assert {word for source, _ in generate_test_pairs() for word in re.split(r"[ ,-]+", source)} <= seen


def test_the_unseen_pairs_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    check_unseen_pairs()
    monkeypatch.setattr(demo, "_UNSEEN_SEED", 1)
    with pytest.raises(TransduceError, match=UNSEEN_DIGEST[:12]):
        check_unseen_pairs()


@pytest.mark.parametrize(("package", "memory"), [("num2words", "_small_number"), ("babel", "_calendar")])
def test_without_the_extra(package: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    getattr(demo, memory).cache_clear()
    for module in (package, f"{package}.dates"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'transduce[demo]'")):
        generate_pairs(100, 1)
