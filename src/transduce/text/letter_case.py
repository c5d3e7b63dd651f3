"""Capitals and small letters by the rules of a language: Turkish and some others write i with and without a dot."""

import re
from functools import lru_cache

from transduce.text.languages import get_base_code

_DOT_ABOVE = "\u0307"
_CAPITAL_I_WITH_DOT = re.compile(f"I([\u0323-\u0328]*){_DOT_ABOVE}")  # in normal form D, marks below come first


@lru_cache  # is asked for each letter
def has_dotless_i(language: str) -> bool:
    """Whether the language writes i with and without a dot in upper and in lower case, as Turkish and Azerbaijani."""
    return get_base_code(language) in {"tr", "tur", "az", "aze", "azj", "crh"}


def to_upper_case(text: str, language: str) -> str:
    """The text in capitals, as its language writes them."""
    if has_dotless_i(language):
        text = text.replace(f"i{_DOT_ABOVE}", "i").replace("i", "İ")
    return text.upper()


def to_lower_case(text: str, language: str) -> str:
    """The text in small letters, as its language writes them, in either normal form of Unicode."""
    if has_dotless_i(language):
        text = _CAPITAL_I_WITH_DOT.sub(r"i\1", text).replace("İ", "i").replace("I", "ı")
    return text.lower()


def fold_case(text: str, language: str) -> str:
    """The text without the difference between capitals and small letters of its language, for comparison."""
    return to_lower_case(text, language).casefold()
