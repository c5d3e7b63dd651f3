import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data import TokenStore, create_store
from transduce.errors import RunError

Pairs = list[tuple[list[int], list[int]]]
sentences = st.lists(st.integers(0, 65_535), min_size=1, max_size=9)
PAIRS: Pairs = [([5, 6, 1], [7, 1]), ([1], [8, 9, 10, 1])]


def write(folder: Path, pairs: Pairs, vocabulary: int) -> TokenStore:
    with create_store(folder, vocabulary) as writer:
        for source_ids, target_ids in pairs:
            writer.add(source_ids, target_ids)
    return TokenStore.open(folder)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8), st.sampled_from([65_536, 65_537]))
def test_round_trip(pairs: Pairs, vocabulary: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = write(Path(folder) / "store", pairs, vocabulary)
        found = [tuple(side.tolist() for side in store.pair(index)) for index in range(len(store))]
        assert found == pairs
        assert store.lengths.tolist() == [[len(source), len(target)] for source, target in pairs]


def test_lengths_of_many_and_of_long_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.data.store._PAIRS_AT_A_TIME", 2)
    lengths = [[1, 2], [3, 1], [2, 2], [1, 1], [4, 2]]
    store = write(tmp_path / "short", [([0] * source, [0] * target) for source, target in lengths], 100)
    assert store.lengths.tolist() == lengths
    assert store.lengths.dtype.itemsize == 2
    lengths[3] = [2**15, 7]
    store = write(tmp_path / "long", [([0] * source, [0] * target) for source, target in lengths], 100)
    assert store.lengths.tolist() == lengths


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin"])
def test_a_file_that_is_cut_while_it_is_read_is_noticed(tmp_path: Path, name: str) -> None:
    store = write(tmp_path / "store", PAIRS, 100)
    os.truncate(tmp_path / "store" / name, 3)
    with pytest.raises(RunError, match=rf"{name} was truncated while it was read"):
        store.pair(1)


def test_an_open_store_outlives_its_folder(tmp_path: Path) -> None:
    store = write(tmp_path / "store", PAIRS, 100)
    shutil.rmtree(tmp_path / "store")
    assert [tuple(side.tolist() for side in store.pair(index)) for index in range(2)] == PAIRS
    assert store.lengths.tolist() == [[3, 2], [1, 4]]


@pytest.mark.parametrize(("vocabulary", "num_bytes"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_while_they_fit(tmp_path: Path, vocabulary: int, num_bytes: int) -> None:
    store = write(tmp_path / "store", [([vocabulary - 1, 1], [1])], vocabulary)
    assert store.pair(0)[0].tolist() == [vocabulary - 1, 1]
    assert (tmp_path / "store" / "ids.bin").stat().st_size == 3 * num_bytes


def test_ids_are_read_only(tmp_path: Path) -> None:
    store = write(tmp_path / "store", PAIRS, 100)
    with pytest.raises(ValueError, match="read-only"):
        store.pair(0)[0][0] = 3


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "store.json"])
def test_truncated_missing_and_altered_files_are_noticed(tmp_path: Path, name: str) -> None:
    write(tmp_path / "store", PAIRS, 100)
    path = tmp_path / "store" / name
    content = path.read_bytes()
    for damaged in (content[:-2], bytes([content[0] ^ 1]) + content[1:]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=name):
            TokenStore.open(tmp_path / "store")
    path.unlink()
    with pytest.raises(RunError, match=name):
        TokenStore.open(tmp_path / "store")


def test_files_of_another_store_are_noticed(tmp_path: Path) -> None:
    write(tmp_path / "store", PAIRS, 100)
    write(tmp_path / "other", [(target, source) for source, target in PAIRS], 100)
    (tmp_path / "other" / "ids.bin").rename(tmp_path / "store" / "ids.bin")
    with pytest.raises(RunError, match="was changed"):
        TokenStore.open(tmp_path / "store")


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write(tmp_path / "store", [*PAIRS, ([70_000, 1], [1])], 100)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, largest_file: Callable[[int], Any]) -> None:
    ids = np.arange(1000).tolist()
    with pytest.raises(OSError, match="too large"), largest_file(4096):
        write(tmp_path / "store", [(ids, ids)] * 10, 1000)
    assert list(tmp_path.iterdir()) == []
