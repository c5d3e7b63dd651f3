import re

import pytest

from transduce.errors import BundleError
from transduce.interop.argos.abbreviations import _ALWAYS, _BEFORE_NUMBERS, abbreviations
from transduce.interop.argos.languages import argos_code, language_name


@pytest.mark.parametrize(
    ("code", "theirs", "name"),
    [
        ("en", "en", "English"),
        ("DE", "de", "German"),
        ("pt-BR", "pb", "Portuguese (Brazil)"),
        ("zh_Hant", "zt", "Chinese (traditional)"),
        ("zh-CN", "zh", "Chinese"),
        ("de_AT", "de-at", "German (at)"),
        ("hsb", "hsb", "Upper Sorbian"),
        ("aa", "aa", "Afar"),
        ("zu", "zu", "Zulu"),
        ("qqq", "qqq", "qqq"),
    ],
)
def test_languages_have_the_codes_and_names_of_argos(code: str, theirs: str, name: str) -> None:
    assert argos_code(code) == theirs
    assert language_name(theirs) == name


@pytest.mark.parametrize("code", ["", "e", "English", "en/de", "../en", "en de", "e1", "de-", "de\n"])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(BundleError, match=re.escape(repr(code))):
        argos_code(code)


def test_unicode_calls_languages_so() -> None:
    names = pytest.importorskip("babel").Locale("en").languages
    own = {"pb": "Portuguese (Brazil)", "zt": "Chinese (traditional)"}
    two_letters = [first + second for first in map(chr, range(97, 123)) for second in map(chr, range(97, 123))]
    known = [code for code in two_letters if language_name(code) != code]
    assert len(known) == 185
    assert {code: language_name(code) for code in known} == {code: own.get(code) or names[code] for code in known}


def test_abbreviations_are_those_of_a_language_or_its_neighbour() -> None:
    always, before_numbers = abbreviations("de")
    assert "dr" in always
    assert "abb" in before_numbers
    assert abbreviations("no") == abbreviations("nb")
    assert abbreviations("xx") == ([], [])
    assert _BEFORE_NUMBERS.keys() <= _ALWAYS.keys()
    # A single letter has a rule of its own, and an entry in both lists says the same twice.
    for language in _ALWAYS:
        always, before_numbers = abbreviations(language)
        assert all(len(word) > 1 and word == word.lower() for word in [*always, *before_numbers])
        assert len({*always, *before_numbers}) == len(always) + len(before_numbers)
