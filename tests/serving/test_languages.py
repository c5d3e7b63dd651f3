import pytest

from transduce.serving.answers import LanguagePair
from transduce.serving.languages import Languages, find_language, name_of


def pair(source: str, target: str) -> LanguagePair:
    return LanguagePair(source, target, "m", "native", "float32", None, None, 40, 4)


def test_what_is_translated_into_what() -> None:
    languages = Languages([pair("en", "de"), pair("en", "fr"), pair("de", "en")])
    assert languages.sources == ("en", "de")
    assert languages.targets == ("de", "fr", "en")
    assert languages.all == ("en", "de", "fr")
    assert languages.targets_of("en") == ("de", "fr")
    assert languages.targets_of("fr") == ()
    assert languages.sources_of("en") == ("de",)


@pytest.mark.parametrize(
    ("written", "codes", "expected"),
    [
        ("de", ["en", "de"], "de"),
        ("DE", ["en", "de"], "de"),
        ("en-US", ["en", "de"], "en"),
        ("EN_us", ["en"], "en"),
        ("en", ["en-GB"], "en-GB"),
        ("en-GB", ["en", "en-GB"], "en-GB"),
        ("en-US", ["en-GB"], None),
        ("pt-BR", ["pb"], "pb"),
        ("pb", ["pt", "pt-BR"], "pt-BR"),
        ("zh-Hant", ["zh", "zh-TW"], "zh-TW"),
        ("fr", ["en", "de"], None),
        ("", ["en"], None),
        ("e", ["en"], None),
        ("\ud800", ["en"], None),
    ],
)
def test_codes_as_clients_write_them(written: str, codes: list[str], expected: str | None) -> None:
    assert find_language(written, codes) == expected


def test_names() -> None:
    assert [name_of(code) for code in ("de", "pt-BR", "x?")] == ["German", "Portuguese (Brazil)", "x?"]
