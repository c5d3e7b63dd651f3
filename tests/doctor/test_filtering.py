import random
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest

from transduce.config import TextConfig
from transduce.doctor import grouping
from transduce.doctor.checks.duplicates import find_near_lines
from transduce.doctor.checks.leakage import measure_leakage
from transduce.doctor.corpus import hashing
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.filtering import TrainingEstimate, estimate_training, find_later_duplicates, judge_sample
from transduce.doctor.findings import Finding
from transduce.doctor.line_and_pair_checks import check_lines_and_pairs
from transduce.text import Tokenizer


def keep_all(text: Text) -> dict[int, bool]:
    """What is said of a sample of all pairs if none of them is too long."""
    return dict.fromkeys(range(len(text)), True)


def find_left_out(text: Text) -> list[int]:
    return find_later_duplicates({name: find_near_lines(side) for name, side in text.sides.items()}, text).tolist()


def test_of_pairs_that_are_near_on_both_sides_the_first_stays(read: Callable[..., Text], invented: Callable) -> None:
    pairs = [pair for pair in invented(100) if min(len(side.split()) for side in pair) >= 6][:40]
    # Of every fourth pair there are two more, each with another word in the same place of both sides.
    similar = [
        tuple(" ".join([word, *side.split()[1:]]) for side in pair) for pair in pairs[::4] for word in ("Gu", "Gi")
    ]
    assert find_left_out(read([*pairs, *similar])) == [*range(len(pairs), len(pairs) + len(similar))]


def test_pairs_that_are_near_to_different_ones_on_the_two_sides_stay(read: Callable[..., Text]) -> None:
    pairs = [
        ("please press the green button now", "bitte jetzt den grünen Knopf drücken"),
        ("please press the red button now", "wir gehen heute alle ins Kino"),
        ("they come home late every night", "bitte jetzt den roten Knopf drücken"),
        ("an unrelated line of many words", "wir gehen heute alle ins Theater"),
        ("they come home late every day", "völlig andere Worte stehen hier drin"),
    ]
    assert find_left_out(read(pairs)) == []
    # Equal on one side is near enough.
    again = ("they come home late every day", "völlig andere Worte standen hier drin")
    assert find_left_out(read([*pairs, again])) == [5]


def are_near(line: str, other: str) -> bool:
    """By hand: the same words, apart from one that is replaced, inserted or left out."""
    short, long = sorted((one.lower().rstrip(".!").split() for one in (line, other)), key=len)
    if len(short) == len(long):
        return sum(one != two for one, two in zip(short, long, strict=True)) <= 1
    return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def find_later_by_hand(text: Text, pairs: list[tuple[str, str]]) -> list[int]:
    """What `find_later_duplicates` finds, by comparing each pair with each."""
    near = [find_near_lines(side).is_near for side in text.sides.values()]
    rows = [row for row in range(len(pairs)) if near[0][row] and near[1][row]]
    first = {row: row for row in rows}
    for row, other in combinations(rows, 2):
        if first[row] != first[other] and all(map(are_near, pairs[row], pairs[other])):
            joined = sorted((first[row], first[other]))
            first = {one: joined[0] if group == joined[1] else group for one, group in first.items()}
    return [row for row in rows if first[row] != row]


def vary(words: list[str], chance: random.Random) -> str:
    """A line with about these words: some in capitals, one replaced, inserted or left out, another mark at the end."""
    words = [word.upper() if chance.random() < 0.2 else word for word in words]
    at = chance.randrange(len(words))
    words[at : at + chance.randrange(2)] = chance.choices("xyz", k=chance.choice([0, 1, 1]))
    return " ".join(words) + chance.choice(["", ".", "!"])


@pytest.mark.parametrize("words_at_a_time", [30, 10**6])
@pytest.mark.parametrize("seed", range(12))
def test_all_members_of_a_group_are_found(
    read: Callable[..., Text], seed: int, words_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (grouping, hashing):
        monkeypatch.setattr(module, "WORDS_AT_A_TIME", words_at_a_time)
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    num_words = chance.randint(5, 7)
    bases = [[f"{letter}{number}" for number in range(num_words)] for letter in "abc"]
    pairs = [(vary(chance.choice(bases), chance), vary(chance.choice(bases), chance)) for _ in range(60 + 10 * seed)]
    text = read(pairs)
    assert find_left_out(text) == find_later_by_hand(text, pairs) != []


@pytest.mark.parametrize("seed", range(12))
def test_members_of_groups_are_found_where_all_lines_are_alike(read: Callable[..., Text], seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    sides = [" ".join(["a b c", *chance.choices("xyz", k=chance.randint(2, 6))]) for _ in range(60 + 20 * seed)]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    text = read(pairs)
    assert find_left_out(text) == find_later_by_hand(text, pairs) != []


@pytest.mark.parametrize(
    ("line", "other", "expected"),
    [
        ("a b c d", "a b x d", True),
        ("a b c d", "A b c d", True),
        ("a b c d", "a b d", True),
        ("a b c d", "b c d", True),
        ("a b c d", "a b c", True),
        ("a b c d", "a c b d", False),
        ("a b c d", "b c", False),
        ("a b c d", "x b c x", False),
        ("a b c d", "a x y", False),
    ],
)
def test_near_pairs_differ_by_at_most_one_word_on_each_side(
    read: Callable[..., Text], line: str, other: str, expected: bool
) -> None:
    pairs = [(f"e f {source}", f"g h {target}") for source, target in product((line, other), repeat=2)]
    assert are_near(line, other) == expected
    assert find_left_out(read(pairs)) == ([1, 2, 3] if expected else [])
    assert find_left_out(read([pairs[0], pairs[3]])) == ([1] if expected else [])
    assert find_left_out(read(pairs[1:3])) == ([1] if expected else [])


def test_it_is_foreseen_what_training_keeps_and_filters_leave_out(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    pairs = invented(1000)
    pairs[3] = pairs[2]
    pairs[4] = pairs[4][0], ""
    pairs[5] = "Anna", "Anna"
    pairs[6] = f"{pairs[6][0]}\x07", pairs[6][1]
    pairs[7] = f"<b>{pairs[7][0]}</b>", f"<b>{pairs[7][1]}</b>"
    pairs[8] = pairs[7]
    text = read(pairs)
    validation = read([pairs[100], *invented(50, seed=2)], "validation")
    config = TextConfig()
    checked = check_lines_and_pairs([text, validation], vocabulary, config, lambda _: None)
    estimate = estimate_training(
        checked.findings, checked.near_duplicates, measure_leakage(text, validation), text, config, keep_all(text)
    )
    assert estimate.num_kept == 995
    # The pair that training keeps of two with markup; the copy is left out by training itself.
    assert {name: estimate.filters[name] for name in ("markup", "leakage")} == {"markup": 1, "leakage": 1}
    assert "copies" not in estimate.filters
    config = TextConfig(drop_duplicates=False, drop_copies=False)
    estimate = estimate_training(checked.findings, checked.near_duplicates, None, text, config, keep_all(text))
    assert isinstance(estimate, TrainingEstimate)
    assert estimate.num_kept == 998
    assert {name: estimate.filters[name] for name in ("markup", "copies")} == {"markup": 2, "copies": 1}
    assert "leakage" not in estimate.filters


def test_other_languages_of_the_test_text_are_no_matter_of_training(
    read: Callable[..., Text], invented: Callable
) -> None:
    text, other = read(invented(20)), read(invented(10, seed=2), "test")
    found = [
        Finding(
            name="other_language",
            severity="minor",
            text=of,
            summary="",
            advice="",
            rows=np.arange(2),
            samples=(),
            estimated=estimated,
        )
        for of, estimated in ((text, 3), (other, 7))
    ]
    near = {name: find_near_lines(side) for name, side in text.sides.items()}
    estimate = estimate_training(found, near, None, text, TextConfig(), keep_all(text))
    assert estimate.filters["other_language"] == 3
    assert "other_language" not in estimate_training(found[1:], near, None, text, TextConfig(), keep_all(text)).filters


def test_pairs_of_wrong_lengths_are_foreseen(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(200)
    tokenizer = Tokenizer.train([line for pair in pairs for line in pair], 400, "bpe")
    pairs[:20] = [(" ".join([source] * 6), target) for source, target in pairs[:20]]
    pairs[20:30] = [(" ".join([source] * 30), " ".join([target] * 30)) for source, target in pairs[20:30]]
    pairs[30:40] = [(source, "") for source, _ in pairs[30:40]]
    sample, config = dict(enumerate(pairs)), TextConfig(max_pieces=500)
    text = read(pairs)
    judged = judge_sample(sample, tokenizer, config)
    assert [row for row, is_kept in judged.items() if not is_kept] == [*range(40)]
    assert judge_sample(sample, None, config) == keep_all(text)
    near = {name: find_near_lines(side) for name, side in text.sides.items()}
    estimate = estimate_training((), near, None, text, config, judged)
    assert estimate.num_kept == 160
    # Of a sample with every second pair.
    some = {row: is_kept for row, is_kept in judged.items() if row % 2}
    estimate = estimate_training((), near, None, text, config, some)
    assert estimate.num_kept == round(190 * 80 / 95)
