import math

import pytest
import torch

from transduce.lab.experiments.heads.two_position_task import (
    LENGTH,
    NUM_TOKENS,
    Examples,
    OneLayerAttention,
    compute_entropy,
    train_and_test,
)


def test_examples_name_two_different_places() -> None:
    examples = Examples.draw(500, torch.Generator().manual_seed(1))
    assert (examples.positions[:, 0] != examples.positions[:, 1]).all()
    assert set(examples.positions.flatten().tolist()) == set(range(LENGTH))
    assert set(examples.tokens.flatten().tolist()) == set(range(NUM_TOKENS))
    for tokens, positions, answers in zip(examples.tokens, examples.positions, examples.answers, strict=True):
        assert [int(tokens[position]) for position in positions] == answers.tolist()


def test_an_average_does_not_tell_which_token_is_where() -> None:
    layer = OneLayerAttention(1)
    examples = Examples.draw(20, torch.Generator().manual_seed(1))
    exchanged = Examples(examples.tokens.scatter(1, examples.positions, examples.answers.flip(1)), examples.positions)
    assert torch.equal(exchanged.answers, examples.answers.flip(1))
    with torch.no_grad():
        assert not torch.allclose(layer(examples), layer(exchanged), atol=1e-4)
        layer.attention.projection.weight[: layer.attention.query_width] = 0  # all weights are the same
        torch.testing.assert_close(layer.compute_weights(examples), torch.full((20, 1, LENGTH), 1 / LENGTH))
        torch.testing.assert_close(layer(examples), layer(exchanged))


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
def test_any_number_of_heads_has_as_many_parameters(num_heads: int) -> None:
    assert sum(one.numel() for one in OneLayerAttention(num_heads).parameters()) == sum(
        one.numel() for one in OneLayerAttention(1).parameters()
    )


def test_entropy() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    assert compute_entropy(weights).tolist() == pytest.approx([0.0, math.log(2), math.log(4)])


def test_what_is_measured_are_shares() -> None:
    found = train_and_test(2, 2, seed=1)
    assert found == train_and_test(2, 2, seed=1) != train_and_test(2, 2, seed=2)
    assert 0 < found["entropy"] < math.log(LENGTH)
    assert all(0 <= found[name] <= 1 for name in ("right", "two positions", "preference"))


@pytest.mark.exhaustive
def test_two_heads_learn_it() -> None:
    found = train_and_test(2, 700, seed=1)
    assert found["right"] > 0.9
    assert found["preference"] > 0.8
