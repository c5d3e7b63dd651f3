import pytest
import torch

from transduce.config import SearchConfig
from transduce.interop.bundle_tensors import (
    TokenRows,
    arrange_token_matrices,
    make_search_config,
    parse_tensor_name,
    select_rows,
)
from transduce.model import EXCLUDED_TOKEN_BIAS


def test_rows_are_taken_and_what_is_missing_is_said() -> None:
    matrix, vector = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])
    assert select_rows(matrix, [1, -1, 0]).tolist() == [[3, 4], [0, 0], [1, 2]]
    assert select_rows(vector, [-1, 0, 0, 1], -9.0).tolist() == [-9, 5, 5, 6]


def test_ids_that_targets_lack_are_never_predicted() -> None:
    sources, targets = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])
    found = arrange_token_matrices(
        sources, targets, targets, torch.tensor([5.0, 6.0]), TokenRows([1, 0, -1], [0, -1, -1])
    )
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        "source_embedding.weight": [[2], [1], [0]],
        "target_embedding.weight": [[3], [0], [0]],
        "projection.weight": [[3], [0], [0]],
        "projection.bias": [5, EXCLUDED_TOKEN_BIAS, 0],
    }


def test_names_say_stack_layer_part_and_kind() -> None:
    assert parse_tensor_name("decoder.layers.2.feed_forward.inner.bias") == ("decoder", 2, "feed_forward.inner", "bias")
    assert parse_tensor_name("encoder.final.gain") == ("encoder", None, "final", "gain")
    with pytest.raises(KeyError, match=r"source_embedding\.weight"):
        parse_tensor_name("source_embedding.weight")


def test_searches_stay_within_positions() -> None:
    assert make_search_config(10_000) == SearchConfig()
    for num_positions in (30, 100, 256):
        search = make_search_config(num_positions, beam=2)
        assert search.beam == 2
        assert search.compute_max_target_length(search.max_pieces + 1) <= num_positions
