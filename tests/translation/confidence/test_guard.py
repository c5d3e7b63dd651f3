import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.translation.confidence.guard import (
    MIN_COPIED_WORDS,
    PROBLEMS,
    SPELLED_OUT,
    GuardReport,
    add_reports,
    find_lost_numbers,
    find_problems,
    has_lost_numbers,
    has_repetition,
    is_copied_source,
    is_empty,
    is_too_long,
    is_too_short,
    measure_length,
    retry_suspects,
)

PAIRS = [
    ("Two men are walking hand in hand down the street.", "Zwei Männer gehen Hand in Hand die Straße hinunter."),
    ("The Bellingham High School band performing.", "Die Bellingham High School Band tritt auf."),
    ("It cost 1,000 dollars in 1999.", "Das kostete 1999 1.000 Dollar."),
    ("3 men and 12 dogs.", "Drei Männer und zwölf Hunde."),
    ("Ha ha ha ha ha, he said, very very funny!", "Ha ha ha ha ha, sagte er, sehr sehr lustig!"),
    ("Zoom.", "Zoooom."),
    ("New York", "New York"),
    ("Walk slowly, very slowly.", "धीरे धीरे चलो, बहुत धीरे धीरे।"),
    ("我今天下午要和我的朋友们一起去公园散步。", "I am going for a walk in the park with my friends this afternoon."),
    ("I am going for a walk in the park with my friends this afternoon.", "我今天下午要和我的朋友们一起去公园散步。"),
    ("Wikipedia, die freie Enzyklopädie, hat 2.900.000 Artikel.", "Wikipédia compte 2 900 000 articles."),
    ("On 3/4/2020 at 13:45", "2020-04-03 um 13.45 Uhr"),
    ("--------------------------------", "--------------------------------"),
    ("", ""),
    ("...", "…"),
]
WORDS = st.text(st.characters(categories=["Ll"]), min_size=2, max_size=9)
PHRASES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@pytest.mark.parametrize(("source", "translation"), PAIRS)
def test_good_translations_raise_no_alarm(source: str, translation: str) -> None:
    assert find_problems(source, translation) == []
    assert find_problems(translation, source) == []


@given(st.text(), st.text())
def test_any_text_can_be_looked_at(source: str, translation: str) -> None:
    found = find_problems(source, translation)
    assert found == [name for name, has in PROBLEMS.items() if has(source, translation)]
    assert set(found) - {"copied_source"} == set(find_problems(source, translation, is_same_language=True))


@given(st.text())
def test_a_copy_is_at_worst_a_copy(text: str) -> None:
    assert set(find_problems(text, text)) <= {"copied_source"}


@given(PHRASES, PHRASES, st.integers(6, 20))
def test_a_phrase_again_and_again_is_a_repetition(before: str, phrase: str, rounds: int) -> None:
    endless = " ".join([before, *[phrase] * rounds])
    assert has_repetition("a text without any", endless)
    assert has_repetition(before, endless)
    assert not has_repetition(endless, endless)
    assert has_repetition(endless, f"{endless} {phrase}")


@pytest.mark.parametrize(
    "endless",
    [
        "Ein Mann in einem roten Hemd und einem roten Hemd und einem roten Hemd.",
        "Der Hund rennt über die Wiese. Der Hund rennt über die Wiese.",
        "Dampfdampfdampfdampf",
        "der der der",
        "!!!!!!!!!!!!!!!!!!",
        "我们去公园我们去公园我们去公园",
        "hahahahahahaha",
    ],
)
def test_what_models_repeat(endless: str) -> None:
    assert find_problems("a source that says none of it twice, as long as", endless) == ["repetition"]


@given(st.lists(WORDS, min_size=MIN_COPIED_WORDS, max_size=12), st.randoms())
def test_the_sources_words_in_any_order_are_a_copy(words: list[str], chance: random.Random) -> None:
    shuffled = chance.sample(words, len(words))
    assert is_copied_source(" ".join(words), f"«{', '.join(shuffled)}»!")
    assert find_problems(" ".join(words), " ".join(words)) == ["copied_source"]
    assert find_problems(" ".join(words), " ".join(words), is_same_language=True) == []
    assert not is_copied_source(" ".join(words), " ".join(f"{word}en" for word in words if f"{word}en" not in words))


@given(st.lists(st.one_of(WORDS, st.integers(0).map(str)), max_size=9))
def test_short_names_and_numbers_may_be_copied(words: list[str]) -> None:
    text = " ".join(words)
    assert is_copied_source(text, text) == (len([word for word in words if word.isalpha()]) >= MIN_COPIED_WORDS)


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0\u200b", "\u00ad"])
def test_nothing_for_something_is_empty(blank: str) -> None:
    assert is_empty("A dog.", blank)
    assert "empty" in find_problems(".", blank)
    assert not is_empty(blank, blank)
    assert not is_empty(blank, "A dog.")


@given(
    st.integers(SPELLED_OUT + 1, 10**12), st.sampled_from([",", ".", "'", "’"]), st.sampled_from([",", ".", " ", ""])
)
def test_numbers_are_compared_by_their_digits(number: int, one: str, other: str) -> None:
    def written(separator: str) -> str:
        return f"The price is {number:,} euros.".replace(",", separator)

    assert not has_lost_numbers(written(one), written(other))
    arabic = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    assert not has_lost_numbers(written(one), written(other).translate(arabic))
    assert not has_lost_numbers(written(one).translate(arabic), written(other))
    assert has_lost_numbers(written(one), "The price is lost.")
    assert has_lost_numbers(written(one), written(other).replace(str(number % 10), "x"))


@given(st.integers(0, SPELLED_OUT))
def test_small_numbers_may_be_spelled_out(number: int) -> None:
    assert not has_lost_numbers(f"{number} men, {number:03}", "So many men")


@pytest.mark.parametrize(
    ("source", "translation", "lost"),
    [
        ("42 dogs", "4 Hunde, 2 Katzen", ["42"]),
        ("100 dogs", "1000 Hunde", ["100"]),
        ("42 dogs", "142 Hunde", ["42"]),
        ("at 10:30", "um 10.30 Uhr", []),
        ("at 10.30", "um 10:30 Uhr", []),
        ("on 2024-03-15", "am 15.03.2024", []),
        ("0.75 m", "0,75 m, 75 cm", []),
        ("12 500 dogs", "12.500 Hunde", []),
        ("1,00,000 dogs", "100\u202f000 Hunde", []),
        ("an A320 of the 1950s", "ein A320 der 1950er", []),
    ],
)
def test_digits_of_several_numbers_are_not_one_number(source: str, translation: str, lost: list[str]) -> None:
    assert find_lost_numbers(source, translation) == lost


def test_a_number_of_any_length_can_be_looked_for() -> None:
    assert has_lost_numbers("9" * 10_000, "9" * 9_999)
    assert not has_lost_numbers("9" * 10_000, "9" * 10_000)


def test_lost_numbers_are_named_as_they_are_written() -> None:
    source = "In 1999, 12 of 1,284 men paid 007 times 45,50 €."
    assert find_lost_numbers(source, "") == ["1999", "1,284", "45,50"]
    assert find_lost_numbers(source, "1.284 Männer, 45.50") == ["1999"]
    assert find_lost_numbers(source, source) == []


def test_a_long_table_of_numbers_is_compared_in_one_pass(time_growth: Callable[..., float]) -> None:
    def find(size: int) -> None:
        table = " ".join(map(str, range(1000, 1000 + size)))
        assert find_lost_numbers(table, table) == []

    assert time_growth(find, 2_000, 16_000) < 24


def test_wide_characters_count_as_three_letters() -> None:
    assert [measure_length(text) for text in ("", "ab c", "我喜欢", "고양이!", "かな")] == [0, 4, 9, 10, 6]


@given(PHRASES)
def test_lengths_that_cannot_be_right(phrase: str) -> None:
    text = phrase * 8
    assert is_too_short(text, text[:2]) == (len(text) > 26)
    assert is_too_long("", text) == (len(text) > 20)
    assert is_too_short(text, "") == is_too_long("", text)
    assert not is_too_short(text, text[: len(text) // 3 + 1])


def retry(lines: Sequence[tuple[str, str, str]]) -> tuple[list[str], GuardReport]:
    """The better of the first and the second translation of each source."""
    seconds = [second for _, _, second in lines]
    return retry_suspects(
        [first for _, first, _ in lines],
        lambda place, translation: find_problems(lines[place][0], translation),
        lambda places: [seconds[place] for place in places],
    )


def test_only_what_is_better_the_second_time_is_kept() -> None:
    lines = {  # source: first and second translation, and the one that is to be kept
        "A dog runs over a meadow.": ("Ein Hund rennt.", "", "Ein Hund rennt."),
        "A cat sleeps on a chair.": ("Katze " * 9, "Eine Katze schläft.", "Eine Katze schläft."),
        "In 1999 it rained a lot.": ("Es regnete viel.", "Damals regnete es.", "Es regnete viel."),
        "In 1998 the sun shone.": ("", "Die Sonne schien.", "Die Sonne schien."),
        "A bird sings in the tree.": ("bird bird bird in the tree sings a", "ein ein ein", "ein ein ein"),
    }
    found, report = retry([(source, first, second) for source, (first, second, _) in lines.items()])
    assert found == [best for _, _, best in lines.values()]
    nothing = dict.fromkeys(PROBLEMS, 0)
    assert report.before == nothing | {
        "repetition": 2,
        "copied_source": 1,
        "empty": 1,
        "numbers_lost": 2,
        "too_short": 1,
    }
    assert report.after == nothing | {"repetition": 1, "numbers_lost": 2}
    assert (report.retried, report.kept) == (4, 3)


def test_without_problems_nothing_is_retried() -> None:
    def fail(_: list[int]) -> list[str]:
        raise AssertionError

    translations = [translation for _, translation in PAIRS]
    found, report = retry_suspects(translations, lambda place, text: find_problems(PAIRS[place][0], text), fail)
    assert found == translations
    assert (report.retried, report.kept, report.before.total(), report.after.total()) == (0, 0, 0, 0)


@given(st.lists(st.tuples(PHRASES, st.text(), st.text()), max_size=5))
def test_it_never_gets_worse_and_reports_add_up(lines: list[tuple[str, str, str]]) -> None:
    found, report = retry(lines)
    for (source, first, _), best in zip(lines, found, strict=True):
        assert len(find_problems(source, best)) <= len(find_problems(source, first))
    total = add_reports(GuardReport(Counter(), Counter(), 0, 0), *(retry([line])[1] for line in lines), None)
    assert total is not None
    assert (total.retried, total.kept) == (report.retried, report.kept)
    assert +total.before == +report.before
    assert +total.after == +report.after


def test_no_report_is_not_an_empty_one() -> None:
    assert add_reports() is None
    assert add_reports(None, None) is None
