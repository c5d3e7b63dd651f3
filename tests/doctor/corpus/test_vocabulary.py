import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.doctor.corpus import vocabulary as module
from transduce.doctor.corpus.vocabulary import NO_SCRIPT, STEM_LENGTH, Vocabulary, find_script


def test_words_have_numbers_in_the_order_of_their_first_occurrence(vocabulary: Vocabulary) -> None:
    words, counts = vocabulary.number_lines(["A dog, a cat.", "", "“The” DOG!"])
    assert words.tolist() == [0, 1, 0, 2, 3, 1]
    assert counts.tolist() == [4, 0, 2]
    assert vocabulary.words == ["a", "dog", "cat", "the"]
    assert vocabulary.number_lines(["cat"])[0].tolist() == [2]
    assert len(vocabulary) == 4


@given(st.lists(st.text("abÄß1é", min_size=1), min_size=1))
def test_only_case_and_punctuation_around_make_words_alike(words: list[str]) -> None:
    vocabulary = Vocabulary()
    numbers = {word: vocabulary.add(word) for word in words}
    assert len(vocabulary) == len({word.casefold() for word in words})
    for word, number in numbers.items():
        assert vocabulary.words[number] == word.casefold()
        assert vocabulary.add(f"„{word.upper()}“,") == number


def test_signs_alone_are_words(vocabulary: Vocabulary) -> None:
    words, counts = vocabulary.number_lines(["- ... -"])
    assert (words.tolist(), counts.tolist()) == ([0, 1, 0], [3])


def test_scripts_without_spaces_have_a_word_for_each_character(vocabulary: Vocabulary) -> None:
    words, counts = vocabulary.number_lines(["我爱你 我", "a dog"])
    assert (words.tolist(), counts.tolist()) == ([0, 1, 2, 0, 3, 4], [4, 2])


def test_vowel_signs_at_the_end_belong_to_the_word(vocabulary: Vocabulary) -> None:
    vocabulary.number_lines(["हिन्दी।"])
    assert vocabulary.words == ["हिन्दी"]


def test_forgotten_spellings_have_the_same_numbers(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPELLINGS", 3)
    line = " ".join(f"word{number}" for number in range(50))
    words, _ = vocabulary.number_lines([line, line])
    assert words.tolist() == [*range(50), *range(50)]


def test_stems_are_beginnings(vocabulary: Vocabulary) -> None:
    vocabulary.number_lines(["translate translation tran trans"])
    assert STEM_LENGTH == 5
    assert vocabulary.stems.tolist() == [0, 0, 1, 0]
    assert vocabulary.num_stems == 2


@pytest.mark.parametrize(
    ("word", "script"),
    [
        ("word", "Latin"), ("слово", "Cyrillic"), ("12a", "Latin"), ("12", NO_SCRIPT), ("語", "Chinese characters"),
        ("々", "Chinese characters"), ("ー", NO_SCRIPT), ("1º", NO_SCRIPT), ("\u02bbokina", "Latin"),
        ("Ａ", "Latin"), ("ｶ", "Katakana"),
    ],
)  # fmt: skip
def test_a_script_is_that_of_the_first_letter(word: str, script: str, vocabulary: Vocabulary) -> None:
    assert find_script(word) == script
    vocabulary.add(word)
    assert vocabulary.scripts[vocabulary.script_of_word[0]] == script


@given(st.lists(st.sampled_from("0123456789٣५a.,"), max_size=40))
def test_digits_are_counted_in_any_script_and_order(characters: list[str]) -> None:
    vocabulary = Vocabulary()
    lines = [" ".join(characters), "".join(characters), "".join(reversed(characters))]
    words, counts = vocabulary.number_lines(lines)
    ends = [0, *counts.cumsum().tolist()]
    digits = [unicodedata.decimal(one) for one in characters if one.isdecimal()]
    for start, end in pairwise(ends):
        assert vocabulary.digits[words[start:end]].sum() == sum(1 << 6 * digit for digit in digits)


@pytest.mark.parametrize("digit", ["0", "9", "٩"])
def test_a_number_of_a_thousand_digits_fits_into_the_counters(digit: str, vocabulary: Vocabulary) -> None:
    vocabulary.number_lines([1000 * digit, 63 * digit])
    many, most = vocabulary.digits.astype("uint64").tolist()
    assert many == most == 63 << 6 * unicodedata.decimal(digit)


def test_normal_forms_are_told_apart(vocabulary: Vocabulary) -> None:
    for word in ["cafe", "café", unicodedata.normalize("NFD", "café"), "ọ́"]:
        vocabulary.add(word)
    assert vocabulary.is_composed.tolist() == [False, True, False, True]
    assert vocabulary.is_decomposed.tolist() == [False, False, True, False]


def test_an_empty_vocabulary_has_empty_arrays(vocabulary: Vocabulary) -> None:
    words, counts = vocabulary.number_lines([""])
    assert (words.tolist(), counts.tolist()) == ([], [0])
    assert [len(one) for one in (vocabulary.stems, vocabulary.digits, vocabulary.is_composed)] == [0, 0, 0]
