from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TextConfig
from transduce.text import Cleaner, write_standard_input

Write = Callable[[str, bytes | str], Path]


def test_standard_input_is_kept_as_it_is(tmp_path: Path, write: Write) -> None:
    content = b"a\tb\r\n\xff\t\x00" * 100_000
    with write("piped", content).open("rb") as stream:
        write_standard_input(stream, tmp_path / "spooled.tsv")
    assert (tmp_path / "spooled.tsv").read_bytes() == content


def broken(
    source: str,
    target: str,
    source_pieces: int = 5,
    target_pieces: int = 5,
    *,
    is_repeated: bool = False,
    **config: object,
) -> str:
    """The rule under which a pair is counted."""
    cleaner = Cleaner(TextConfig(**config))
    kept = cleaner.keeps(source, target, source_pieces, target_pieces, is_repeated=is_repeated)
    [rule] = [rule for rule, count in cleaner.counts.items() if count]
    assert kept == (rule == "kept")
    return rule


def test_every_rule_has_a_count_from_the_start() -> None:
    rules = ["blank", "control_characters", "copy", "too_long", "ratio", "duplicate", "kept"]
    assert list(Cleaner(TextConfig()).counts.items()) == [(rule, 0) for rule in rules]


@pytest.mark.parametrize("side", ["", " ", "\t", "\u00a0\u3000", "\u200b\ufeff", "\u2028", "\x00"])
def test_a_side_that_shows_nothing_is_blank(side: str) -> None:
    assert broken(side, "b") == broken("a", side) == "blank"


def test_a_side_without_pieces_is_blank() -> None:
    assert broken("▁", "b", 0, 1) == broken("a", "▁", 1, 0) == "blank"


@pytest.mark.parametrize("side", ["。", "☃", "\u0915\u094d", ".", "\ue000"])
def test_a_side_that_shows_anything_is_not_blank(side: str) -> None:
    assert broken(side, "b") == broken("a", side) == "kept"


@pytest.mark.parametrize("character", ["\x00", "\x07", "\n", "\r", "\x1b", "\x7f", "\x85", "\x9f"])
def test_control_characters_are_left_out(character: str) -> None:
    assert broken(f"a{character}b", "c") == broken("a", f"{character}c") == "control_characters"


@pytest.mark.parametrize("character", ["\t", "\u200d", "\u00ad", "\ufffd", "\u2028", "\u00a0"])
def test_tabs_and_format_characters_stay(character: str) -> None:
    assert broken(f"a{character}b", "c") == "kept"


def test_copies_are_left_out_if_asked() -> None:
    assert broken("same ", "\tsame") == "copy"
    assert broken("same", "same", drop_copies=False) == "kept"
    assert broken("same", "Same") == "kept"


def test_repetitions_are_left_out_if_asked() -> None:
    assert broken("a", "b", is_repeated=True) == "duplicate"
    assert broken("a", "b", is_repeated=True, drop_duplicates=False) == "kept"


@pytest.mark.parametrize("side", ["", "a\x00", "b", "long"])
def test_what_is_left_out_by_itself_counts_under_its_rule_every_time(side: str) -> None:
    rules = [broken(side, "b", 300 if side == "long" else 5, is_repeated=is_repeated) for is_repeated in (False, True)]
    assert rules[0] == rules[1] != "duplicate"


@pytest.mark.parametrize("pieces", [(20, 21), (21, 20)])
def test_the_longer_side_decides_the_length(pieces: tuple[int, int]) -> None:
    assert broken("a", "b", *pieces, max_pieces=20) == "too_long"
    assert broken("a", "b", *pieces, max_pieces=21) == "kept"


@pytest.mark.parametrize(
    ("pieces", "rule"), [((2, 8), "kept"), ((1, 8), "kept"), ((1, 9), "ratio"), ((3, 12), "kept"), ((3, 13), "ratio")]
)
def test_lengths_must_be_alike_unless_both_are_short(pieces: tuple[int, int], rule: str) -> None:
    assert broken("a", "b", *pieces, max_ratio=4.0) == broken("a", "b", *reversed(pieces), max_ratio=4.0) == rule


def test_the_first_broken_rule_counts() -> None:
    assert broken("\x00", "", 900, 1) == "blank"
    assert broken("\x00a", "\x00a", 900, 1) == "control_characters"
    assert broken("a", "a", 900, 1) == "copy"
    assert broken("a", "b", 900, 1) == "too_long"


SIDES = st.sampled_from(["", "a", "b", "c\x00", "d"])
COUNTS = st.integers(0, 300)


@given(st.lists(st.tuples(SIDES, SIDES, COUNTS, COUNTS, st.booleans())))
def test_every_pair_is_counted_once(pairs: list[tuple[str, str, int, int, bool]]) -> None:
    cleaner = Cleaner(TextConfig())
    kept = [cleaner.keeps(*pair, is_repeated=is_repeated) for *pair, is_repeated in pairs]
    assert sum(cleaner.counts.values()) == len(pairs)
    assert cleaner.counts["kept"] == sum(kept)
