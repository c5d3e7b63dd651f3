from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch

from transduce.config import RunConfig
from transduce.data import Batch, PreparedData
from transduce.training import Ranks
from transduce.training.distributed.batches import BatchPosition, iterate_batches, split_into_sequential_micro_batches

MakeConfig = Callable[..., RunConfig]


def taken(
    prepared: PreparedData, config: RunConfig, count: int, start: BatchPosition
) -> list[tuple[BatchPosition, Batch]]:
    return list(islice(iterate_batches(prepared, config.text, config.training, start), count))


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.source_ids, other.source_ids) and torch.equal(one.target_ids, other.target_ids)


@pytest.mark.exhaustive
@pytest.mark.parametrize("weight", [1.0, 1.3])
@pytest.mark.parametrize("bpe_dropout", [0.0, 0.2])
def test_goes_on_from_any_place_exactly(
    make_config: MakeConfig, prepare_for: Callable[..., PreparedData], bpe_dropout: float, weight: float
) -> None:
    corpora = [{"pairs": "train.tsv", "weight": weight}]
    config = make_config(text__bpe_dropout=bpe_dropout, data__pairs=None, data__corpora=corpora)
    prepared = prepare_for(config)
    whole = taken(prepared, config, 40, BatchPosition())
    assert whole[-1][0].epoch >= 2
    for done in (1, 2, *range(5, 40, 4)):
        later = taken(prepared, config, min(6, 40 - done), whole[done - 1][0])
        for (place, batch), (expected_place, expected) in zip(later, whole[done:], strict=False):
            assert place == expected_place
            assert same(batch, expected)


def test_epochs_hold_the_same_pairs_in_another_order(
    make_config: MakeConfig, prepare_for: Callable[..., PreparedData]
) -> None:
    config = make_config()
    prepared = prepare_for(config)
    epochs: dict[int, list[Batch]] = {}
    for place, batch in iterate_batches(prepared, config.text, config.training, BatchPosition()):
        if place.epoch == 2:
            break
        epochs.setdefault(place.epoch, []).append(batch)
    rows = [[tuple(row.tolist()) for batch in epoch for row in batch.source_ids] for epoch in epochs.values()]
    real = [
        sorted(tuple(token for token in row if token != prepared.tokenizer.pad_id) for row in epoch) for epoch in rows
    ]
    assert real[0] == real[1]
    assert len(real[0]) == len(prepared.train)
    assert rows[0] != rows[1]


def test_an_epoch_has_each_pair_as_often_as_its_corpus_weighs(
    make_config: MakeConfig, prepare_for: Callable[..., PreparedData], corpus: Path
) -> None:
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [line for line in lines if len(set(line.split("\t"))) == 2]  # cleaning drops copies
    for name, some in (("first.tsv", pairs[:40]), ("second.tsv", pairs[40:])):
        (corpus / name).write_text("".join(f"{pair}\n" for pair in some), encoding="utf-8")
    corpora = [{"pairs": "first.tsv", "weight": 2.5}, {"pairs": "second.tsv", "weight": 0.5}]
    config = make_config(data__pairs=None, data__corpora=corpora)
    prepared = prepare_for(config)
    counts: list[Counter[str]] = [Counter(), Counter()]
    for place, batch in iterate_batches(prepared, config.text, config.training, BatchPosition()):
        if place.epoch == 2:
            break
        texts = [prepared.tokenizer.decode(row[row < prepared.tokenizer.pad_id].tolist()) for row in batch.source_ids]
        counts[place.epoch].update(texts)
    for count in counts:
        first, second = (Counter(count[pair.split("\t")[0]] for pair in some) for some in (pairs[:40], pairs[40:]))
        assert first == {2: 20, 3: 20}
        assert abs(second[0] - second[1]) <= 1
        assert set(second) == {0, 1}
    assert counts[0] != counts[1]


def test_bpe_dropout_spells_each_epoch_anew(make_config: MakeConfig, prepare_for: Callable[..., PreparedData]) -> None:
    config = make_config(text__bpe_dropout=0.3)
    prepared = prepare_for(config)
    num_tokens: dict[int, int] = {}
    for place, batch in iterate_batches(prepared, config.text, config.training, BatchPosition()):
        if place.epoch == 3:
            break
        num_tokens[place.epoch] = num_tokens.get(place.epoch, 0) + batch.num_target_tokens
    assert len(set(num_tokens.values())) == 3
    assert min(num_tokens.values()) > prepared.train.lengths[:, 1].sum()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_share_the_batches_of_one_process(
    make_config: MakeConfig, prepare_for: Callable[..., PreparedData], size: int
) -> None:
    batch_tokens = 12
    planned = make_config(training__batch_tokens=size * batch_tokens)
    config = make_config(training__batch_tokens=batch_tokens)
    prepared = prepare_for(config)

    def rows(batch: Batch) -> list[tuple[int, ...]]:
        ids = zip(batch.source_ids, batch.source_mask, batch.target_mask, strict=True)
        return [tuple(source[mask].tolist()) for source, mask, target_mask in ids if target_mask.any()]

    whole = taken(prepared, planned, 40, BatchPosition())
    streams = [
        iterate_batches(prepared, config.text, config.training, BatchPosition(), Ranks(rank, size), size)
        for rank in range(size)
    ]
    shares = [list(islice(stream, 40)) for stream in streams]
    for (place, batch), *parts in zip(whole, *shares, strict=True):
        assert all(part_place == place for part_place, _ in parts)
        sizes = [len(rows(part)) for _, part in parts]
        assert sorted(row for _, part in parts for row in rows(part)) == sorted(rows(batch))
        assert max(sizes) - min(sizes) <= 1
    assert any(len(rows(batch)) < size for _, batch in whole)  # and some rank had none


def test_a_rank_with_fewer_parts_than_another_fills_up_with_silence() -> None:
    class BesideALargerShare(Ranks):
        def max(self, number: int) -> int:
            return number + 2

    given = [Batch.from_ids([[2, 3, 1], [2, 1]], [[4, 1], [5, 6, 1]], 9), Batch.from_ids([[7, 1]], [[8, 1]], 9)]
    parts = split_into_sequential_micro_batches(given, 3)
    filled = split_into_sequential_micro_batches(given, 3, BesideALargerShare())
    assert [part.source_ids.tolist() for part in parts] == [[[2, 3, 1]], [[2, 1]], [[7, 1]]]
    assert [part.num_target_tokens for part in filled] == [2, 3, 2, 0, 0]


def test_another_seed_gives_another_order(make_config: MakeConfig, prepare_for: Callable[..., PreparedData]) -> None:
    configs = [make_config(training__seed=seed) for seed in (1, 2)]
    one, other = (taken(prepare_for(config), config, 5, BatchPosition()) for config in configs)
    assert not all(same(first, second) for (_, first), (_, second) in zip(one, other, strict=True))


def test_epochs_count_the_share_that_is_done() -> None:
    assert BatchPosition(epoch=2, batch=3, num_batches=4).epochs == 2.75
    assert BatchPosition().epochs == 0
