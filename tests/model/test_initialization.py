import math

import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.model import AdditiveScore, LearnedPositions, MultiHeadAttention, Transformer


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        TransformerConfig(
            vocabulary=3000,
            num_encoder_layers=1,
            num_decoder_layers=1,
            d_model=128,
            d_ff=512,
            num_heads=4,
            d_k=8,
            d_v=64,
            positions="learned",
            attention_score="additive",
            tied_embeddings="none",
        )
    )


def assert_glorot(matrix: Tensor) -> None:
    """Uniform between plus and minus sqrt(6 / (columns + rows)), of variance 2 / (columns + rows)."""
    bound = math.sqrt(6 / sum(matrix.shape))
    assert matrix.abs().max() <= bound
    assert matrix.abs().max() > 0.9 * bound
    if matrix.numel() > 1000:
        assert matrix.var().item() == pytest.approx(2 / sum(matrix.shape), rel=0.1)


def test_the_three_projections_have_bounds_of_their_own(model: Transformer) -> None:
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    assert len(attentions) == 3
    for attention in attentions:
        queries, keys, values = attention.projection.weight.split([4 * 8, 4 * 8, 4 * 64])
        for matrix in (queries, keys, values, attention.output.weight):
            assert_glorot(matrix)
        assert values.abs().max() < 0.8 * queries.abs().max()


def test_matrices_of_the_feed_forward_networks_and_of_additive_scores(model: Transformer) -> None:
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert_glorot(layer.feed_forward.inner.weight)
        assert_glorot(layer.feed_forward.outer.weight)
    for part in model.modules():
        if isinstance(part, AdditiveScore):
            assert_glorot(part.query_weight)
            assert_glorot(part.key_weight)
            assert part.hidden_weight.abs().max() <= math.sqrt(6 / (1 + 8))


def test_embeddings_have_variance_one_at_the_input(model: Transformer) -> None:
    for matrix in (model.source_embedding.weight, model.target_embedding.weight, model.projection.weight):
        assert matrix[:-1].var().item() == pytest.approx(1 / 128, rel=0.03)
        assert matrix[:-1].mean().item() == pytest.approx(0, abs=1e-3)
    inputs = model.source_embedding(torch.arange(2999)[None])
    assert inputs.var().item() == pytest.approx(1, rel=0.03)
    assert not torch.equal(model.source_embedding.weight, model.target_embedding.weight)
    assert isinstance(model.positions, LearnedPositions)
    assert model.positions.table.var().item() == pytest.approx(1 / 128, rel=0.03)


def test_biases_are_zero_and_normalisations_change_nothing(model: Transformer) -> None:
    vectors = {name: parameter for name, parameter in model.named_parameters() if parameter.dim() == 1}
    assert any(name.endswith("gain") for name in vectors)
    for name, vector in vectors.items():
        assert (vector == (1 if name.endswith("gain") else 0)).all(), name


def test_every_parameter_is_drawn() -> None:
    """The seed decides all of them: none is what happened to be in the memory."""
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        config = TransformerConfig(vocabulary=50, d_model=16, num_heads=2, d_ff=8, attention_score="additive")
        weights.append(Transformer(config).state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
