"""The task of recalling a token, and a network that learns it."""

import torch

from transduce.lab.experiments.path_length.recall_task import (
    BLANK,
    CUE,
    END,
    make_recall_batch,
    measure_update,
    train_recall,
)


def test_secrets_are_recalled_at_their_distance() -> None:
    batch = make_recall_batch(4, 50, torch.Generator().manual_seed(1))
    assert batch.source_ids.tolist() == [[END]] * 50
    for row in batch.target_ids.tolist():
        assert row == [row[0], BLANK, BLANK, BLANK, CUE, row[0], END]
    assert len({row[0] for row in batch.target_ids.tolist()}) > 10


def test_attention_learns_what_is_near() -> None:
    found = train_recall("transformer", 3, 120, 1)
    assert found["accuracy"] > 0.9
    assert train_recall("transformer", 3, 1, 1)["accuracy"] < 0.3


def test_time_of_an_update_is_measured() -> None:
    assert 0 < measure_update("transformer") < 60
