import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TextConfig
from transduce.text import augment_pairs
from transduce.text.augmentation import LETTERS_PER_ERROR, cut_clauses, drop_final_marks, make_typing_errors

PAIRS = [(f"A man number {n}, in blue, is walking.", f"Ein Mann Nummer {n}, in Blau, geht.") for n in range(400)]
ALL = {
    "augment_upper_case": 0.3,
    "augment_lower_case": 0.3,
    "augment_missing_marks": 0.5,
    "augment_typing_errors": 0.5,
    "augment_clauses": 0.5,
}


def make_config(**shares: float) -> TextConfig:
    return TextConfig(**shares)  # type: ignore[arg-type]


def chance() -> random.Random:
    return random.Random(1)  # noqa: S311 - nothing here is secret


@pytest.mark.parametrize(
    ("setting", "is_changed"),
    [
        ("augment_upper_case", lambda pair: pair[0].isupper() and pair[1].isupper()),
        ("augment_lower_case", lambda pair: pair[0].islower() and pair[1].islower()),
        ("augment_missing_marks", lambda pair: pair[0].endswith("walking") and pair[1].endswith("geht")),
        ("augment_clauses", lambda pair: pair[0].endswith((pair[0].split(",")[0], "blue")) and "geht" not in pair[1]),
    ],
)
def test_the_share_of_pairs_is_changed_on_both_sides(setting: str, is_changed: object) -> None:
    assert callable(is_changed)
    changed = augment_pairs(PAIRS, make_config(**{setting: 0.25}), 7)
    differ = [pair for pair, before in zip(changed, PAIRS, strict=True) if pair != before]
    assert 70 <= len(differ) <= 130
    assert all(map(is_changed, differ))


def test_clauses_are_cut_at_the_same_mark() -> None:
    cut = {cut_clauses(*PAIRS[3], random.Random(seed)) for seed in range(20)}  # noqa: S311 - nothing here is secret
    assert cut == {
        ("A man number 3", "Ein Mann Nummer 3"),
        ("A man number 3, in blue", "Ein Mann Nummer 3, in Blau"),
    }
    for pair in (("One, two.", "Eins zwei."), ("One, two; three.", "Eins; zwei, drei."), ("1,000 men", "1,000 Männer")):
        assert cut_clauses(*pair, chance()) == pair


def test_no_clause_is_blank() -> None:
    assert cut_clauses(", said he", ", sagte er", chance()) == (", said he", ", sagte er")
    leading = {cut_clauses("; one, two", " ; eins, zwei", random.Random(seed)) for seed in range(20)}  # noqa: S311 - nothing here is secret
    assert leading == {("; one", " ; eins")}
    assert cut_clauses(", a b", "a, b", chance()) == (", a b", "a, b")


def test_a_final_mark_goes_from_both_sides_or_none() -> None:
    assert drop_final_marks("Is it? ", "Ist es so?!") == ("Is it", "Ist es so")
    assert drop_final_marks("是的。", "Yes.") == ("是的", "Yes")
    for pair in (("Yes.", "Ja"), ("Yes", "Ja."), ("...", "..."), (" .", "Ja."), ("", "")):
        assert drop_final_marks(*pair) == pair


@given(st.text(), st.integers(0, 100))
def test_typing_errors_change_few_letters_and_nothing_else(line: str, seed: int) -> None:
    changed = make_typing_errors(line, random.Random(seed))  # noqa: S311 - nothing here is secret
    letters = sum(map(str.isalpha, line))
    assert [one for one in changed if not one.isalpha()] == [one for one in line if not one.isalpha()]
    assert {*changed} <= {*line}
    assert abs(len(changed) - len(line)) <= max(1, letters // LETTERS_PER_ERROR)
    if letters < 2:
        assert changed == line


def test_targets_have_no_typing_errors_and_every_kind_of_error_occurs() -> None:
    changed = augment_pairs(PAIRS, make_config(augment_typing_errors=1.0), 3)
    assert [target for _, target in changed] == [target for _, target in PAIRS]
    sources = [(after, before) for (after, _), (before, _) in zip(changed, PAIRS, strict=True)]
    differences = {len(after) - len(before) for after, before in sources}
    assert differences == {-1, 0, 1}
    assert any(after != before and sorted(after) == sorted(before) for after, before in sources)
    assert any(len(after) == len(before) and sorted(after) != sorted(before) for after, before in sources)


@pytest.mark.parametrize("language", ["tr", "az-Latn", "tur_Latn", "TR"])
def test_turkish_letters_keep_their_dots(language: str) -> None:
    pairs = [("İki ışık.", "Iki isik.")]
    config = make_config(augment_upper_case=1.0)
    assert augment_pairs(pairs, config, 1, (language, "en")) == [("İKİ IŞIK.", "IKI ISIK.")]
    config = make_config(augment_lower_case=1.0)
    assert augment_pairs([("İKİ IŞIK.", "IKI ISIK.")], config, 1, (language, "en")) == [("iki ışık.", "iki isik.")]


def test_tags_stay() -> None:
    tagged = [(f">>bt<< {source}", target) for source, target in PAIRS]
    config = make_config(**ALL)
    assert augment_pairs(tagged, config, 1) == [
        (f">>bt<< {source}", target) for source, target in augment_pairs(PAIRS, config, 1)
    ]


def test_the_seed_decides_and_one_setting_does_not_move_another() -> None:
    config = make_config(**ALL)
    assert augment_pairs(PAIRS, config, 1) == augment_pairs(PAIRS, config, 1)
    assert augment_pairs(PAIRS, config, 1) != augment_pairs(PAIRS, config, 2)
    upper = augment_pairs(PAIRS, make_config(augment_upper_case=0.5), 1)
    both = augment_pairs(PAIRS, make_config(augment_upper_case=0.5, augment_missing_marks=0.5), 1)
    assert [source.isupper() for source, _ in upper] == [source.isupper() for source, _ in both]
    assert augment_pairs(PAIRS, make_config(), 1) == PAIRS
