from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import DataConfig, TextConfig
from transduce.data import (
    Batch,
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
from transduce.data.batch import MAX_REMOVALS
from transduce.errors import RunError, WriteError

PAD = 99
sentences = st.lists(st.integers(0, PAD), min_size=1, max_size=9)
pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6)


@given(pairs, st.booleans())
def test_real_tokens_come_back_and_the_rest_is_padding(pairs: list[tuple[list[int], list[int]]], arrays: bool) -> None:
    sources, targets = zip(*pairs, strict=True)
    if arrays:
        sources = tuple(np.array(row, dtype=np.uint16) for row in sources)
    batch = Batch.from_ids(sources, targets, PAD)
    assert batch.source_ids.dtype == batch.target_ids.dtype == torch.int64
    for rows, ids, mask in (
        (sources, batch.source_ids, batch.source_mask),
        (targets, batch.target_ids, batch.target_mask),
    ):
        assert ids.shape[1] == max(len(row) for row in rows)
        for row, row_ids, row_mask in zip(rows, ids, mask, strict=True):
            assert row_ids[row_mask].tolist() == list(row)
            assert row_mask.tolist() == sorted(row_mask.tolist(), reverse=True)
        assert (ids[~mask] == PAD).all()


def test_counts() -> None:
    batch = Batch.from_ids([[5, 1], [6, 7, 8, 1]], [[2, 1], [1]], PAD)
    assert batch.num_target_tokens == 3
    assert batch.padding_share == pytest.approx(3 / 12)


def test_of_a_silenced_batch_no_target_token_counts() -> None:
    batch = Batch.from_ids([[5, 1]], [[2, 1]], PAD)
    silenced = batch.mask_loss()
    assert silenced.num_target_tokens == 0
    assert silenced.target_ids is batch.target_ids
    assert (silenced.source_ids is batch.source_ids, silenced.source_mask is batch.source_mask) == (True, True)


@given(pairs, st.integers(1, 3))
def test_repeated_rows_come_in_order_again(pairs: list[tuple[list[int], list[int]]], count: int) -> None:
    batch, repeated = (Batch.from_ids(*zip(*rows, strict=True), PAD) for rows in (pairs, pairs * count))
    found = batch.repeat(count)
    assert all(torch.equal(value, getattr(repeated, name)) for name, value in vars(found).items())


def test_to_a_device_moves_every_tensor() -> None:
    batch = Batch.from_ids([[1]], [[2, 1]], PAD).to("meta")
    assert {value.device.type for value in vars(batch).values()} == {"meta"}


@given(pairs, st.integers(1, 30))
def test_parts_hold_the_same_rows_and_no_more_tokens_than_they_may(
    pairs: list[tuple[list[int], list[int]]], max_tokens: int
) -> None:
    sources, targets = zip(*pairs, strict=True)
    batch = Batch.from_ids(sources, targets, PAD)
    parts = batch.split_by_tokens(max_tokens)
    rows = []
    for part in parts:
        assert len(part.source_ids) == 1 or max(part.source_ids.numel(), part.target_ids.numel()) <= max_tokens
        sides = (part.source_ids, part.source_mask), (part.target_ids, part.target_mask)
        assert all(mask.any(dim=0).all() for _, mask in sides)
        rows += zip(*([row[real].tolist() for row, real in zip(*side, strict=True)] for side in sides), strict=True)
    assert rows == [(list(source), list(target)) for source, target in pairs]
    if max_tokens >= max(batch.source_ids.numel(), batch.target_ids.numel()):
        assert parts == [batch]


@given(pairs, st.integers(1, 8))
def test_divided_it_has_as_many_rows_in_each_part_as_can_be(
    pairs: list[tuple[list[int], list[int]]], count: int
) -> None:
    sources, targets = zip(*pairs, strict=True)
    parts = Batch.from_ids(sources, targets, PAD).split_into(count)
    assert len(parts) == min(count, len(pairs))
    num_rows = [len(part.source_ids) for part in parts]
    assert max(num_rows) - min(num_rows) <= 1
    rows = [
        (source[is_real].tolist(), target[is_written].tolist())
        for part in parts
        for source, is_real, target, is_written in zip(*vars(part).values(), strict=True)
    ]
    assert rows == [(source, target) for source, target in pairs]
    assert all(part.source_mask.any(dim=0).all() and part.target_mask.any(dim=0).all() for part in parts)


lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80).map(np.array)
seeds = st.integers(0, 2**40)


def realistic_lengths(num_pairs: int) -> np.ndarray:
    """Log-normal, both sides correlated, as in translated news."""
    random = np.random.default_rng(7)
    common = random.lognormal(np.log(25), 0.55, num_pairs)[:, None]
    noise = np.exp(random.normal(0, (0.1, 0.13), (num_pairs, 2)))
    return np.clip(np.round(common * noise), 1, 256).astype(np.int64) + 1


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_every_pair_once_within_the_budget(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> None:
    plan = plan_batches(lengths, batch_tokens, seed, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or (len(batch) * lengths[batch].max(axis=0) <= batch_tokens).all()


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_pure_in_its_arguments(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> None:
    first, second = (plan_batches(lengths.copy(), batch_tokens, seed, epoch) for _ in range(2))
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_the_order_is_that_of_a_stable_sort(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> None:
    """Runs that were begun must go on: the batches, whatever their order, are cut from one sequence."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    order = random.permutation(len(lengths))
    longest, difference = lengths[order].max(axis=1), lengths[order, 0] - lengths[order, 1]
    expected = order[np.lexsort((np.where(longest % 2, difference, -difference), longest))].tolist()
    plan = plan_batches(lengths, batch_tokens, seed, epoch)
    place = {index: number for number, index in enumerate(expected)}
    plan.sort(key=lambda batch: place[int(batch[0])])
    assert np.concatenate(plan).tolist() == expected


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_the_type_of_the_lengths_makes_no_difference(
    lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> None:
    plans = [plan_batches(lengths.astype(dtype), batch_tokens, seed, epoch) for dtype in (np.int16, np.int64)]
    assert [batch.tolist() for batch in plans[0]] == [batch.tolist() for batch in plans[1]]


@given(lengths, st.integers(1, 200), seeds, st.data())
def test_pairs_come_as_often_as_asked(lengths: np.ndarray, batch_tokens: int, seed: int, data: st.DataObject) -> None:
    pairs = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=99)), np.int32)
    before = pairs.copy()
    plan = plan_batches(lengths, batch_tokens, seed, 0, pairs)
    assert sorted(np.concatenate(plan).tolist()) == sorted(pairs.tolist())
    assert (pairs == before).all()
    for batch in plan:
        assert len(batch) == 1 or (len(batch) * lengths[batch].max(axis=0) <= batch_tokens).all()


def test_seed_and_epoch_both_change_the_order_and_the_company() -> None:
    lengths = realistic_lengths(2000)
    plans = [plan_batches(lengths, 500, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert len({tuple(plan[0].tolist()) for plan in plans}) == 3
    companies = [{frozenset(batch.tolist()) for batch in plan} for plan in plans]
    assert len(companies[0] & (companies[1] | companies[2])) < 0.2 * len(companies[0])


def test_order_of_batches_does_not_follow_length() -> None:
    lengths = realistic_lengths(5000)
    widths = [lengths[batch].max() for batch in plan_batches(lengths, 1000, 1, 0)]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


@pytest.mark.parametrize(("num_pairs", "batch_tokens"), [(100_000, 4096), (200_000, 25_000)])
def test_little_padding_on_realistic_lengths(num_pairs: int, batch_tokens: int) -> None:
    lengths = realistic_lengths(num_pairs)
    plan = plan_batches(lengths, batch_tokens, 1, 0)
    positions = sum(len(batch) * lengths[batch].max(axis=0).sum() for batch in plan)
    assert 1 - lengths.sum() / positions < 0.05


Pairs = list[tuple[list[int], list[int]]]


@pytest.fixture
def prepared(tmp_path: Path, make_corpus: Callable[..., object]) -> PreparedData:
    make_corpus(24)
    data = DataConfig(folder=str(tmp_path), source="train.source", target="train.target")
    return prepare(data, TextConfig(vocabulary=310, bpe_dropout=0.3), tmp_path / "cache", report=lambda _: None)


def dropout(share: float) -> TextConfig:
    return TextConfig(vocabulary=310, bpe_dropout=share)


def all_pairs(store: TokenStore) -> Pairs:
    return [tuple(side.tolist() for side in store.pair(index)) for index in range(len(store))]


def test_without_dropout_it_is_the_stored_text(prepared: PreparedData) -> None:
    assert open_epoch_store(prepared, dropout(0.0), 1, 3) is prepared.train
    assert not (prepared.folder / "epochs").exists()


def test_dropout_changes_the_pieces_and_not_the_text(prepared: PreparedData) -> None:
    plain, sampled = all_pairs(prepared.train), all_pairs(open_epoch_store(prepared, dropout(0.3), 1, 0))
    decode, end = prepared.tokenizer.decode, prepared.tokenizer.end_id
    assert len(plain) == len(sampled)
    assert [[decode(ids[:-1]) for ids in pair] for pair in plain] == [
        [decode(ids[:-1]) for ids in pair] for pair in sampled
    ]
    assert {ids[-1] for pair in sampled for ids in pair} == {end}
    assert sum(before != after for before, after in zip(plain, sampled, strict=True)) > len(plain) // 2


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_augmentation_changes_the_text_of_each_epoch(prepared: PreparedData, share: float) -> None:
    text = TextConfig(vocabulary=310, bpe_dropout=share, augment_upper_case=0.5, augment_typing_errors=0.5)
    decode = prepared.tokenizer.decode
    plain = [tuple(decode(ids[:-1]) for ids in pair) for pair in all_pairs(prepared.train)]
    for epoch in range(2):
        changed = [
            tuple(decode(ids[:-1]) for ids in pair) for pair in all_pairs(open_epoch_store(prepared, text, 1, epoch))
        ]
        assert len(changed) == len(plain)
        assert any(after[1] == before[1].upper() != before[1] for before, after in zip(plain, changed, strict=True))
        assert all(after[1] in (before[1], before[1].upper()) for before, after in zip(plain, changed, strict=True))
        assert any(after[0].lower() != before[0].lower() for before, after in zip(plain, changed, strict=True))
    assert all_pairs(open_epoch_store(prepared, text, 1, 0)) != all_pairs(open_epoch_store(prepared, text, 1, 1))


def test_names_of_epochs_fit_any_file_system(prepared: PreparedData) -> None:
    augmentation = dict.fromkeys([name for name in TextConfig.model_fields if name.startswith("augment_")], 1 / 3)
    text = TextConfig(vocabulary=310, bpe_dropout=1 / 3, **augmentation)
    other = text.model_copy(update={"augment_upper_case": 0.9})
    stores = [all_pairs(open_epoch_store(prepared, one, 1, 0)) for one in (text, other)]
    names = [path.name for path in (prepared.folder / "epochs").iterdir()]
    assert stores[0] != stores[1]
    assert len(names) >= 2
    assert max(map(len, names)) < 110  # a file system has 143 bytes at least, and a lock some more than the folder
    remove_epochs(prepared, text, 1, before=1)
    assert len([*(prepared.folder / "epochs").iterdir()]) == len(names) - 1


def test_every_seed_and_epoch_has_its_own_segmentation_and_repeats_it(prepared: PreparedData) -> None:
    choices = ((1, 0), (1, 1), (2, 0))
    first = [all_pairs(open_epoch_store(prepared, dropout(0.3), seed, epoch)) for seed, epoch in choices]
    assert first[0] != first[1] != first[2] != first[0]
    for path in (prepared.folder / "epochs").rglob("*.bin"):
        path.unlink()  # so that nothing is read back, and what is damaged is made again
    assert [all_pairs(open_epoch_store(prepared, dropout(0.3), seed, epoch)) for seed, epoch in choices] == first


def test_no_pair_becomes_longer_than_the_longest(prepared: PreparedData) -> None:
    stores = [open_epoch_store(prepared, dropout(0.9), 1, epoch) for epoch in range(3)]
    assert max(int(store.lengths.max()) for store in stores) == int(prepared.train.lengths.max())
    assert all(all_pairs(store) != all_pairs(prepared.train) for store in stores)


def test_another_run_may_remove_what_it_has_left_behind(
    prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = all_pairs(open_epoch_store(prepared, dropout(0.3), 1, 0))
    opened, removals = TokenStore.open, 0

    def removed_meanwhile(folder: Path, *arguments: Any) -> TokenStore:
        nonlocal removals
        if removals < most:
            removals += 1
            remove_epochs(prepared, dropout(0.3), 1, before=1)
        return opened(folder, *arguments)

    monkeypatch.setattr(TokenStore, "open", removed_meanwhile)
    most = MAX_REMOVALS  # before it is opened, and right after it was made again
    assert all_pairs(open_epoch_store(prepared, dropout(0.3), 1, 0)) == expected
    assert removals == most
    most = removals + MAX_REMOVALS + 1
    with pytest.raises(RunError, match="missing"):
        open_epoch_store(prepared, dropout(0.3), 1, 0)


def test_an_epoch_in_progress_is_found_again_and_earlier_ones_go(prepared: PreparedData) -> None:
    epochs = prepared.folder / "epochs"
    for epoch in (0, 1, 2):
        open_epoch_store(prepared, dropout(0.3), 1, epoch)
    other_seed = open_epoch_store(prepared, dropout(0.3), 11, 0)
    assert len(other_seed) == len(prepared.train)
    assert sorted(path.name for path in epochs.iterdir()) == [
        "bpe_dropout-0.3-seed-1-epoch-2",
        "bpe_dropout-0.3-seed-11-epoch-0",
    ]
    before = (epochs / "bpe_dropout-0.3-seed-1-epoch-2" / "ids.bin").stat()
    open_epoch_store(prepared, dropout(0.3), 1, 2)
    assert (epochs / "bpe_dropout-0.3-seed-1-epoch-2" / "ids.bin").stat() == before


def test_what_epochs_have_written_can_be_removed(prepared: PreparedData) -> None:
    for seed in (1, 11):
        open_epoch_store(prepared, dropout(0.3), seed, 4)
    remove_epochs(prepared, dropout(0.3), 1, before=5)
    assert [path.name for path in (prepared.folder / "epochs").iterdir()] == ["bpe_dropout-0.3-seed-11-epoch-4"]


def test_a_full_cache_is_named_by_its_setting(prepared: PreparedData, largest_file: Callable[[int], Any]) -> None:
    with largest_file(100), pytest.raises(WriteError, match=r"^data\.cache: .*cache \(File too large\)"):
        open_epoch_store(prepared, dropout(0.3), 1, 0)


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
