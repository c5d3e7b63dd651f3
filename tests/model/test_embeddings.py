import math
from collections.abc import Callable

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.model import NEVER, OutputProjection, TokenEmbedding, Transformer
from transduce.training.loss import label_smoothed_cross_entropy


def test_a_vector_for_each_token_times_the_root_of_d_model(make_model: Callable[..., Transformer]) -> None:
    embedding = make_model().source_embedding
    ids = torch.tensor([[3, 0, 22]])
    assert torch.equal(embedding(ids), embedding.weight[ids] * math.sqrt(16))


def test_pad_is_the_zero_vector(variant: dict[str, object], small_config: Callable[..., TransformerConfig]) -> None:
    model = Transformer(small_config(**variant))
    for embedding in (model.source_embedding, model.target_embedding):
        assert (embedding(torch.tensor([[model.pad_id]])) == 0).all()
        assert (embedding(torch.tensor([list(range(model.pad_id))])) != 0).any(dim=-1).all()


def test_the_logit_of_pad_is_never_finite_and_all_others_are_products() -> None:
    config = TransformerConfig(vocabulary=7, d_model=8, num_heads=2)
    projection = OutputProjection(config, TokenEmbedding(config))
    torch.nn.init.normal_(projection.weight)
    hidden = torch.randn(3, 5, 8)
    logits = projection(hidden)
    torch.testing.assert_close(logits[..., :-1], hidden @ projection.weight[:-1].T)
    assert (logits[..., -1] == -torch.inf).all()
    assert (logits.softmax(dim=-1)[..., -1] == 0).all()


def test_a_bias_is_added_to_every_logit_but_that_of_pad() -> None:
    config = TransformerConfig(vocabulary=7, d_model=8, num_heads=2, output_bias=True)
    projection = OutputProjection(config, TokenEmbedding(config))
    torch.nn.init.normal_(projection.weight)
    torch.nn.init.normal_(projection.bias)
    hidden = torch.randn(3, 5, 8)
    logits = projection(hidden)
    torch.testing.assert_close(logits[..., :-1], hidden @ projection.weight[:-1].T + projection.bias[:-1])
    assert (logits[..., -1] == -torch.inf).all()
    logits.softmax(dim=-1)[..., 2].sum().backward()
    assert projection.bias.grad[-1] == 0
    assert projection.bias.grad[:-1].count_nonzero() == 6


def test_a_bias_is_zero_before_training_and_there_only_if_asked_for(
    make_model: Callable[..., Transformer], small_config: Callable[..., TransformerConfig]
) -> None:
    assert Transformer(small_config()).projection.bias is None
    biased = Transformer(small_config(output_bias=True))
    assert biased.projection.bias.count_nonzero() == 0
    assert biased.num_parameters == Transformer(small_config()).num_parameters + 23


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_bias_can_rule_a_token_out_in_every_precision(dtype: torch.dtype) -> None:
    config = TransformerConfig(vocabulary=7, d_model=8, num_heads=2, output_bias=True)
    projection = OutputProjection(config, TokenEmbedding(config))
    torch.nn.init.normal_(projection.weight, std=100.0)
    torch.nn.init.zeros_(projection.bias)
    with torch.no_grad():
        projection.bias[3] = NEVER
    logits = projection(torch.randn(50, 8).to(dtype))
    assert (logits.softmax(dim=-1)[:, 3] == 0).all()
    assert logits.softmax(dim=-1).isfinite().all()
    assert (logits.argmax(dim=-1) != 3).all()


@pytest.mark.parametrize("tied_embeddings", ["three_way", "two_way", "none"])
def test_training_leaves_pad_at_zero(
    make_model: Callable[..., Transformer], make_example: Callable[..., tuple[torch.Tensor, ...]], tied_embeddings: str
) -> None:
    model = make_model(tied_embeddings=tied_embeddings, dropout=0.2).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-9)
    source_ids, source_mask, target_ids, target_mask = make_example([3, 5], [4, 2])
    matrices = (model.source_embedding.weight, model.target_embedding.weight, model.projection.weight)
    before = [matrix.detach().clone() for matrix in matrices]
    for _ in range(3):
        optimizer.zero_grad()
        hidden = model.decode_hidden(target_ids, target_mask, model.encode(source_ids, source_mask), source_mask)
        losses = label_smoothed_cross_entropy(
            hidden[target_mask], model.projection.weight, target_ids[target_mask], smoothing=0.1
        )
        losses.loss.backward()
        for matrix in matrices:
            assert matrix.grad is not None
            assert (matrix.grad[-1] == 0).all()
            assert (matrix.grad[:-1] != 0).any()
        optimizer.step()
    for matrix, old in zip(matrices, before, strict=True):
        assert (matrix[-1] == 0).all()
        assert not torch.equal(matrix, old)
