"""The words of a text as numbers: what is known of a word is computed once, however often it occurs."""

import unicodedata
from array import array
from collections.abc import Sequence
from functools import cache
from itertools import chain

import numpy as np
from jaxtyping import Int32, Int64, Shaped

from transduce.text import WITHOUT_SPACES

STEM_LENGTH = 5
"""Characters of a stem: words that begin alike are mostly forms of one word, which small texts do not have often."""

MAX_SPELLINGS = 500_000
"""Spellings that are kept in memory; when there are more, all are forgotten and looked up again."""

DIGIT_BITS = 6
"""Bits of the counter of each of the ten digits in `Vocabulary.digits`."""

NO_SCRIPT = "none"
"""The script of words without letters, such as numbers."""

_OTHER_NAMES = {
    "CJK": "Chinese characters",
    "IDEOGRAPHIC": "Chinese characters",
    # Letters that belong to no script, or to several: º, ª, µ, ʻ, ⁱ, ー, and those of formulas.
    **dict.fromkeys("FEMININE MASCULINE MICRO MODIFIER SUPERSCRIPT KATAKANA-HIRAGANA MATHEMATICAL".split(), NO_SCRIPT),  # noqa: SIM905 - a list of words
}
"""The scripts of letters whose names do not begin with the name of a script, by the first word."""


class Vocabulary:
    """Numbers words from 0 in the order in which they occur first, on both sides of all texts alike.

    A word stands between white space. Upper and lower case are the same, and punctuation around a word is not part of
    it. In scripts without spaces between words, every character is a word.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._spellings = _Spellings(self)
        self._stem_numbers: dict[str, int] = {}
        self._script_numbers = {NO_SCRIPT: 0}
        self._stems = array("i")
        self._scripts = array("B")
        self._digits = array("q")
        self._is_composed = array("B")
        self._is_decomposed = array("B")

    def __len__(self) -> int:
        return len(self._numbers)

    def number_lines(self, lines: Sequence[str]) -> tuple[Int32[np.ndarray, " words"], Int64[np.ndarray, " lines"]]:
        """The numbers of the words of all lines, one line after the other, and how many words each line has."""
        if any(WITHOUT_SPACES.search(line) for line in lines if not line.isascii()):
            lines = [WITHOUT_SPACES.sub(r" \g<0> ", line) for line in lines]
        spelled = [line.split() for line in lines]
        counts = np.fromiter(map(len, spelled), np.int64, len(spelled))
        numbers = map(self._spellings.__getitem__, chain.from_iterable(spelled))
        return np.fromiter(numbers, np.int32, int(counts.sum())), counts

    def add(self, spelling: str) -> int:
        """The number of the word that is spelled so in a text."""
        word = _strip_punctuation(spelling.casefold())
        number = self._numbers.setdefault(word, len(self._numbers))
        if number == len(self._stems):
            self._stems.append(self._stem_numbers.setdefault(word[:STEM_LENGTH], len(self._stem_numbers)))
            script = find_script(word)
            self._scripts.append(self._script_numbers.setdefault(script, min(255, len(self._script_numbers))))
            self._digits.append(_count_digits(word))
            composed, decomposed = _find_normal_forms(word)
            self._is_composed.append(composed)
            self._is_decomposed.append(decomposed)
        return number

    def forget_spellings(self) -> None:
        """Free the memory of spellings, once all lines are numbered."""
        self._spellings.clear()

    @property
    def words(self) -> list[str]:
        """The words, by number."""
        return list(self._numbers)

    @property
    def scripts(self) -> list[str]:
        """The names of scripts, by number."""
        return list(self._script_numbers)

    @property
    def num_stems(self) -> int:
        """Number of different stems."""
        return len(self._stem_numbers)

    @property
    def stems(self) -> Int32[np.ndarray, " vocabulary"]:
        """The number of each word's stem, its first characters."""
        return np.frombuffer(self._stems, np.int32).copy()

    @property
    def script_of_word(self) -> Shaped[np.ndarray, " vocabulary"]:
        """The number of each word's script, that of its first letter."""
        return np.frombuffer(self._scripts, np.uint8).copy()

    @property
    def digits(self) -> Int64[np.ndarray, " vocabulary"]:
        """How often each word has each of the ten digits, in any script: ten counters of six bits in one number.

        The sum over a line has the digits of the line, without their order and what separates them: 1,000 is 1.000.
        """
        return np.frombuffer(self._digits, np.int64).copy()

    @property
    def is_composed(self) -> Shaped[np.ndarray, " vocabulary"]:
        """Whether a word has letters with accents as single characters (NFC)."""
        return np.frombuffer(self._is_composed, bool).copy()

    @property
    def is_decomposed(self) -> Shaped[np.ndarray, " vocabulary"]:
        """Whether a word has letters followed by their accents as characters of their own (NFD)."""
        return np.frombuffer(self._is_decomposed, bool).copy()


class _Spellings(dict[str, int]):
    """The number of a word by its spelling, computed when it is first looked up."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, spelling: str) -> int:
        if len(self) >= MAX_SPELLINGS:
            self.clear()
        number = self._vocabulary.add(spelling)
        self[spelling] = number
        return number


def _strip_punctuation(word: str) -> str:
    """The word without punctuation, symbols and invisible characters at both ends, unless it has nothing else."""
    if word.isalnum():
        return word
    start, end = 0, len(word)
    while start < end and not _is_letter_or_digit(word[start]):
        start += 1
    while start < end and not _is_letter_or_digit(word[end - 1]):
        end -= 1
    return word[start:end] or word


@cache
def _is_letter_or_digit(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"  # accents and vowel signs are marks


def find_script(word: str) -> str:
    """The script of the first letter of a word that has one, as in "Latin"; `NO_SCRIPT` if there is none."""
    scripts = (_find_script_of_letter(character) for character in word if character.isalpha())
    return next((script for script in scripts if script != NO_SCRIPT), NO_SCRIPT)


@cache
def _find_script_of_letter(letter: str) -> str:
    if letter.isascii():
        return "Latin"
    # The standard library does not know scripts, but names begin with them.
    name = unicodedata.name(letter, NO_SCRIPT).removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    first = name.split(" ")[0]
    return first if first == NO_SCRIPT else _OTHER_NAMES.get(first, first.capitalize())


def _count_digits(word: str) -> int:
    if word.isalpha():
        return 0
    # Of more digits, as in the decimals of pi, a counter would flow over into the next one, and at last out of 64 bits.
    digits = [unicodedata.decimal(character) for character in word if character.isdecimal()]
    return sum(1 << DIGIT_BITS * digit for digit in digits[: (1 << DIGIT_BITS) - 1])


def _find_normal_forms(word: str) -> tuple[bool, bool]:
    """Whether a word has composed letters, and whether it has decomposed ones."""
    if word.isascii():
        return False, False
    composed = unicodedata.normalize("NFC", word)
    return unicodedata.normalize("NFD", word) != word, len(composed) < len(word)
