import math
from collections.abc import Callable

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.model import OutputProjection, TokenEmbedding, Transformer
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
