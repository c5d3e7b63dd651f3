from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import DataConfig, TextConfig
from transduce.data import (
    PreparedCorpus,
    PreparedData,
    TokenStore,
    open_epoch_store,
    plan_batches,
    prepare,
    read_batches,
    remove_epochs,
    select_epoch_pairs,
)
from transduce.data.epochs import MOST_REMOVALS
from transduce.errors import RunError, WriteError

Pairs = list[tuple[list[int], list[int]]]


@pytest.fixture
def prepared(tmp_path: Path, make_corpus: Callable[..., object]) -> PreparedData:
    make_corpus(24)
    data = DataConfig(folder=str(tmp_path), source="train.source", target="train.target")
    return prepare(data, TextConfig(vocabulary=310, bpe_dropout=0.3), tmp_path / "cache", report=lambda _: None)


def pairs(store: TokenStore) -> Pairs:
    return [tuple(side.tolist() for side in store.pair(index)) for index in range(len(store))]


def test_without_dropout_it_is_the_stored_text(prepared: PreparedData) -> None:
    assert open_epoch_store(prepared, 0.0, 1, 3) is prepared.train
    assert not (prepared.folder / "epochs").exists()


def test_dropout_changes_the_pieces_and_not_the_text(prepared: PreparedData) -> None:
    plain, sampled = pairs(prepared.train), pairs(open_epoch_store(prepared, 0.3, 1, 0))
    decode, end = prepared.tokenizer.decode, prepared.tokenizer.end_id
    assert len(plain) == len(sampled)
    assert [[decode(ids[:-1]) for ids in pair] for pair in plain] == [
        [decode(ids[:-1]) for ids in pair] for pair in sampled
    ]
    assert {ids[-1] for pair in sampled for ids in pair} == {end}
    assert sum(before != after for before, after in zip(plain, sampled, strict=True)) > len(plain) // 2


def test_every_seed_and_epoch_has_its_own_segmentation_and_repeats_it(prepared: PreparedData) -> None:
    choices = ((1, 0), (1, 1), (2, 0))
    first = [pairs(open_epoch_store(prepared, 0.3, seed, epoch)) for seed, epoch in choices]
    assert first[0] != first[1] != first[2] != first[0]
    for path in (prepared.folder / "epochs").rglob("*.bin"):
        path.unlink()  # so that nothing is read back, and what is damaged is made again
    assert [pairs(open_epoch_store(prepared, 0.3, seed, epoch)) for seed, epoch in choices] == first


def test_no_pair_becomes_longer_than_the_longest(prepared: PreparedData) -> None:
    stores = [open_epoch_store(prepared, 0.9, 1, epoch) for epoch in range(3)]
    assert max(int(store.lengths.max()) for store in stores) == int(prepared.train.lengths.max())
    assert all(pairs(store) != pairs(prepared.train) for store in stores)


def test_another_run_may_remove_what_it_has_left_behind(
    prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pairs(open_epoch_store(prepared, 0.3, 1, 0))
    opened, removals = TokenStore.open, 0

    def removed_meanwhile(folder: Path, *arguments: Any) -> TokenStore:
        nonlocal removals
        if removals < most:
            removals += 1
            remove_epochs(prepared, 0.3, 1, before=1)
        return opened(folder, *arguments)

    monkeypatch.setattr(TokenStore, "open", removed_meanwhile)
    most = MOST_REMOVALS  # before it is opened, and right after it was made again
    assert pairs(open_epoch_store(prepared, 0.3, 1, 0)) == expected
    assert removals == most
    most = removals + MOST_REMOVALS + 1
    with pytest.raises(RunError, match="missing"):
        open_epoch_store(prepared, 0.3, 1, 0)


def test_an_epoch_in_progress_is_found_again_and_earlier_ones_go(prepared: PreparedData) -> None:
    epochs = prepared.folder / "epochs"
    for epoch in (0, 1, 2):
        open_epoch_store(prepared, 0.3, 1, epoch)
    other_seed = open_epoch_store(prepared, 0.3, 11, 0)
    assert len(other_seed) == len(prepared.train)
    assert sorted(path.name for path in epochs.iterdir()) == [
        "dropout-0.3-seed-1-epoch-2",
        "dropout-0.3-seed-11-epoch-0",
    ]
    before = (epochs / "dropout-0.3-seed-1-epoch-2" / "ids.bin").stat()
    open_epoch_store(prepared, 0.3, 1, 2)
    assert (epochs / "dropout-0.3-seed-1-epoch-2" / "ids.bin").stat() == before


def test_what_epochs_have_written_can_be_removed(prepared: PreparedData) -> None:
    for seed in (1, 11):
        open_epoch_store(prepared, 0.3, seed, 4)
    remove_epochs(prepared, 0.3, 1, before=5)
    assert [path.name for path in (prepared.folder / "epochs").iterdir()] == ["dropout-0.3-seed-11-epoch-4"]


def test_a_full_cache_is_named_by_its_setting(prepared: PreparedData, largest_file: Callable[[int], Any]) -> None:
    with largest_file(100), pytest.raises(WriteError, match=r"^data\.cache: .*cache \(File too large\)"):
        open_epoch_store(prepared, 0.3, 1, 0)


@pytest.fixture
def weighted(prepared: PreparedData) -> Callable[..., list[list[int]]]:
    """How often each pair of corpora of these sizes and weights comes, corpus by corpus."""

    def count(corpora: list[tuple[int, float]], seed: int = 1, epoch: int = 0) -> list[list[int]]:
        parts = [PreparedCorpus(str(size), weight, {"kept": size}) for size, weight in corpora]
        pairs = select_epoch_pairs(replace(prepared, corpora=parts), seed, epoch)
        sizes = [size for size, _ in corpora]
        counts = np.bincount(pairs, minlength=sum(sizes))
        return [part.tolist() for part in np.split(counts, np.cumsum(sizes)[:-1])]

    return count


def test_a_weight_is_how_often_a_pair_comes(weighted: Callable[..., list[list[int]]]) -> None:
    one, two, half, more, none = weighted([(5, 1.0), (3, 2.0), (40, 0.5), (10, 3.3), (0, 2.5)])
    assert (one, two, none) == ([1] * 5, [2] * 3, [])
    assert sorted(half) == [0] * 20 + [1] * 20
    assert sorted(more) == [3] * 7 + [4] * 3


def test_even_the_smallest_weight_brings_a_pair(weighted: Callable[..., list[list[int]]]) -> None:
    assert sum(weighted([(7, 1e-9)])[0]) == 1


def test_other_pairs_are_chosen_in_every_epoch_by_the_seed(weighted: Callable[..., list[list[int]]]) -> None:
    corpora = [(100, 0.5), (100, 0.5)]
    choices = [part for seed, epoch in ((1, 0), (1, 1), (2, 0)) for part in weighted(corpora, seed, epoch)]
    assert len({tuple(part) for part in choices}) == 6
    assert weighted(corpora, 2, 0) == choices[4:]
    means = np.mean([weighted(corpora, 1, epoch) for epoch in range(200)], axis=0)
    assert abs(means - 0.5).max() < 0.2


def test_one_corpus_of_weight_one_is_planned_as_if_there_were_no_weights(prepared: PreparedData) -> None:
    lengths = prepared.train.lengths
    plans = [plan_batches(lengths, 200, 1, 3, pairs) for pairs in (select_epoch_pairs(prepared, 1, 3), None)]
    assert [batch.tolist() for batch in plans[0]] == [batch.tolist() for batch in plans[1]]


def test_batches_hold_the_pairs_of_the_plan(prepared: PreparedData) -> None:
    store = prepared.train
    plan = plan_batches(store.lengths, 200, 1, 0)
    made = list(read_batches(store, plan, 0, prepared.tokenizer.pad_id))
    assert len(made) == len(plan) > 3
    for rows, batch in zip(plan, made, strict=True):
        for row, index in enumerate(rows.tolist()):
            source, target = store.pair(index)
            assert batch.source_ids[row][batch.source_mask[row]].tolist() == source.tolist()
            assert batch.target_ids[row][batch.target_mask[row]].tolist() == target.tolist()
    assert sum(batch.num_target_tokens for batch in made) == store.lengths[:, 1].sum()


def test_batches_go_on_where_they_are_told(prepared: PreparedData) -> None:
    plan = plan_batches(prepared.train.lengths, 200, 1, 0)
    whole, rest = (list(read_batches(prepared.train, plan, start, 0)) for start in (0, 2))
    assert len(rest) == len(whole) - 2
    for expected, found in zip(whole[2:], rest, strict=True):
        assert torch.equal(expected.source_ids, found.source_ids)
        assert torch.equal(expected.target_ids, found.target_ids)
