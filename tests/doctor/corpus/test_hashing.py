from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.doctor.corpus import texts as texts_module
from transduce.doctor.corpus.hashing import HashLookup, hash_lines, hash_whole_lines, mix
from transduce.doctor.corpus.texts import Text

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=30)


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_equal_words_have_equal_hashes(
    read: Callable[..., Text], at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts_module, "LINES_AT_A_TIME", at_a_time)
    lines = ["a b c d", "b c d", "", "a b c d", "d c b a", "a b d", "a x c d", "a", "c a b c"]
    side = read([(line, "x") for line in lines]).source
    whole = dict(zip(lines, hash_whole_lines(side).tolist(), strict=True))
    assert len(set(whole.values())) == len(set(lines))
    parts = list(hash_lines(side, min_words=3))
    rows = np.concatenate([part.rows for part in parts]).tolist()
    without_one = np.concatenate([part.after_deletion for part in parts]).tolist()
    here = np.concatenate([part.with_gap for part in parts]).tolist()
    assert rows == [row for row, line in enumerate(lines) for _ in line.split() if len(line.split()) >= 3]
    described: dict[int, set[str]] = {}
    placed: dict[int, set[tuple[str, int]]] = {}
    positions = [position for line in lines if len(line.split()) >= 3 for position in range(len(line.split()))]
    for row, position, one, with_place in zip(rows, positions, without_one, here, strict=True):
        words = lines[row].split()
        rest = " ".join(words[:position] + words[position + 1 :])
        described.setdefault(one, set()).add(rest)
        placed.setdefault(with_place, set()).add((rest, position))
        assert whole.get(rest, one) == one
    assert all(len(rests) == 1 for rests in described.values())
    assert all(len(rests) == 1 for rests in placed.values())
    assert len(described) == len({next(iter(rests)) for rests in described.values()})


@given(HASHES, HASHES)
def test_a_lookup_gives_every_key_an_item(keys: list[int], others: list[int]) -> None:
    lookup = HashLookup(np.array(keys, np.uint64))
    expected: dict[int, int] = {}
    for first, values in ((0, others), (100, keys[1::2])):
        found = lookup.add(np.array(values, np.uint64), first + np.arange(len(values)))
        assert found.tolist() == [place for place, value in enumerate(values) if value in keys]
        expected |= {value: first + place for place, value in enumerate(values)}
    assert lookup.items.tolist() == [expected.get(key, -1) for key in keys]


@given(st.lists(st.integers(0, 2**63 - 1), unique=True))
def test_different_numbers_have_different_hashes(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    assert len(np.unique(mix(array.astype(np.uint64)))) == len(numbers)
