import pytest

from transduce.text import LANGUAGE_NAMES
from transduce.text.languages import (
    LANGUAGE_CODES,
    find_codes,
    get_base_code,
    get_language_code,
    get_language_name,
    is_right_to_left,
    make_language_tag,
)


def test_names_are_those_of_known_codes() -> None:
    assert LANGUAGE_NAMES["de"] == "German"
    assert get_language_code("DE") == get_language_code("German") == "de"
    for name, code in (
        ("Deutsch", "de"),
        ("FRANÇAIS", "fr"),
        ("Русский", "ru"),
        ("norsk bokmål", "nb"),
        ("中文", "zh"),
    ):
        assert get_language_code(name) == code
    assert {*LANGUAGE_CODES.values()} == {*LANGUAGE_NAMES}
    assert get_language_code("pt_BR") == "pt-br"
    assert get_language_code("Klingon") == "klingon"


@pytest.mark.parametrize(
    ("code", "available", "found"),
    [
        ("en", ["de", "en"], ["en"]),
        ("en", ["EN", "de"], ["EN"]),
        ("EN", ["en-US", "de"], ["en-US"]),
        ("en", ["en-US", "en_GB", "eng"], ["en-US", "en_GB"]),
        ("en", ["en-US", "en"], ["en"]),
        ("pt_br", ["pt-BR", "pt"], ["pt-BR"]),
        ("pt-BR", ["pt"], []),
        ("zh", ["zh-Hant-TW"], ["zh-Hant-TW"]),
        ("e", ["en"], []),
        ("en", [], []),
    ],
)
def test_a_code_means_itself_or_else_its_variants(code: str, available: list[str], found: list[str]) -> None:
    assert find_codes(code, available) == found


@pytest.mark.parametrize(
    ("code", "base"), [("de", "de"), ("pt_BR", "pt"), ("zh-Hant-TW", "zh"), ("pb", "pt"), ("zt", "zh"), ("", "")]
)
def test_the_base_of_a_code_has_neither_script_nor_region(code: str, base: str) -> None:
    assert get_base_code(code) == base


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *((code, True) for code in ("ar", "he", "fa_IR", "UR", "az-Arab-IR", "pa-Arab", "arb_Arab", "prs", "iw")),
        *((code, False) for code in ("uz", "ku-Latn", "ar-Latn", "en", "zh-Hant-TW", "")),
    ],
)
def test_the_direction_of_writing_follows_from_language_or_script(code: str, *, expected: bool) -> None:
    assert is_right_to_left(code) is expected


@pytest.mark.parametrize(
    ("code", "tag"),
    [("de", "de"), ("pt_BR", "pt-BR"), ("zh_Hant", "zh-Hant"), ("pb", "pt-BR"), ("ZT", "zh-Hant"), ("", "")],
)
def test_tags_are_those_of_web_pages(code: str, tag: str) -> None:
    assert make_language_tag(code) == tag


def test_names_have_regions() -> None:
    assert [get_language_name(code) for code in ("de", "pt-BR", "x?")] == ["German", "Portuguese (Brazil)", "x?"]


def test_unicode_calls_languages_so() -> None:
    names = pytest.importorskip("babel").Locale("en").languages
    own = {"pb": "Portuguese (Brazil)", "zt": "Chinese (traditional)"}
    two_letters = [first + second for first in map(chr, range(97, 123)) for second in map(chr, range(97, 123))]
    known = [code for code in two_letters if get_language_name(code) != code]
    assert len(known) == 185
    assert {code: get_language_name(code) for code in known} == {code: own.get(code) or names[code] for code in known}
