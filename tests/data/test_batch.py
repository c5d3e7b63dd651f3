import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.data import Batch

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
    silenced = batch.silenced()
    assert silenced.num_target_tokens == 0
    assert silenced.target_ids is batch.target_ids
    assert (silenced.source_ids is batch.source_ids, silenced.source_mask is batch.source_mask) == (True, True)


def test_to_a_device_moves_every_tensor() -> None:
    batch = Batch.from_ids([[1]], [[2, 1]], PAD).to("meta")
    assert {value.device.type for value in vars(batch).values()} == {"meta"}


@given(pairs, st.integers(1, 30))
def test_parts_hold_the_same_rows_and_no_more_tokens_than_they_may(
    pairs: list[tuple[list[int], list[int]]], most_tokens: int
) -> None:
    sources, targets = zip(*pairs, strict=True)
    batch = Batch.from_ids(sources, targets, PAD)
    parts = batch.split(most_tokens)
    rows = []
    for part in parts:
        assert len(part.source_ids) == 1 or max(part.source_ids.numel(), part.target_ids.numel()) <= most_tokens
        sides = (part.source_ids, part.source_mask), (part.target_ids, part.target_mask)
        assert all(mask.any(dim=0).all() for _, mask in sides)
        rows += zip(*([row[real].tolist() for row, real in zip(*side, strict=True)] for side in sides), strict=True)
    assert rows == [(list(source), list(target)) for source, target in pairs]
    if most_tokens >= max(batch.source_ids.numel(), batch.target_ids.numel()):
        assert parts == [batch]


@given(pairs, st.integers(1, 8))
def test_divided_it_has_as_many_rows_in_each_part_as_can_be(
    pairs: list[tuple[list[int], list[int]]], count: int
) -> None:
    sources, targets = zip(*pairs, strict=True)
    parts = Batch.from_ids(sources, targets, PAD).divide(count)
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
