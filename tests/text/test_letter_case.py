import unicodedata

import pytest

from transduce.text.letter_case import fold_case, to_lower_case, to_upper_case


def test_capitals_are_those_of_the_language() -> None:
    assert to_upper_case("Işık istasyon", "tr") == "IŞIK İSTASYON"
    assert to_lower_case("IŞIK İSTASYON", "tr-TR") == "ışık istasyon"
    assert to_upper_case("Die Straße", "de") == "DIE STRASSE"
    assert to_upper_case("مرحبا 你好", "ar") == "مرحبا 你好"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_i_may_be_decomposed(form: str) -> None:
    capitals, small = (unicodedata.normalize(form, text) for text in ("ISPARTA İSTANBUL", "ısparta istanbul"))
    assert to_lower_case(capitals, "tr") == small
    assert unicodedata.normalize("NFC", to_upper_case(small, "tr")) == "ISPARTA İSTANBUL"
    assert fold_case(capitals, "tr") == fold_case(small, "tr")


def test_a_dot_that_is_written_twice_is_none_of_its_own() -> None:
    assert to_upper_case("i\u0307", "tr") == "İ"
    assert to_lower_case("I\u0323\u0307", "tr") == "i\u0323"
    assert to_lower_case("I\u0307", "de") == "i\u0307"
