from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from transduce.model import MultiHeadAttention, Transformer, memory_attention_weights

Examples = Callable[..., Any]
Models = Callable[..., Transformer]


class Attended(NamedTuple):
    """One call of a layer's own attention to the memory."""

    attention: MultiHeadAttention
    values: Tensor
    output: Tensor


@pytest.fixture
def attended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Attended]]:
    """Every call of fused attention, as it happens."""
    calls: list[Attended] = []
    fused = MultiHeadAttention.attend

    def spied(self: MultiHeadAttention, queries: Tensor, keys_and_values: Any, mask: Tensor) -> Tensor:
        output = fused(self, queries, keys_and_values, mask)
        calls.append(Attended(self, keys_and_values.values, output))
        return output

    monkeypatch.setattr(MultiHeadAttention, "attend", spied)
    return calls


@torch.no_grad()
def test_weights_times_values_are_what_the_layer_itself_puts_out(
    variant: dict[str, Any], make_model: Models, make_example: Examples, attended: list[Attended]
) -> None:
    model, example = make_model(**variant), make_example([3, 7, 1], [4, 2, 6])
    model(*example)
    own = {layer.memory_attention for layer in model.decoder.layers}
    calls = [call for call in attended if call.attention in own]
    records = list(memory_attention_weights(model, *example))
    assert len(records) == len(calls) == model.config.num_decoder_layers
    for weights, call in zip(records, calls, strict=True):
        assert weights.shape == (3, model.config.num_heads, 6, 7)
        output = call.attention.output((weights @ call.values).transpose(1, 2).flatten(2))
        torch.testing.assert_close(output, call.output, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_weights_are_shares_of_the_real_source(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    example = make_example([3, 7, 1], [4, 2, 6])
    for weights in memory_attention_weights(make_model(**variant), *example):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
        assert (weights[~example.source_mask[:, None, None, :].expand_as(weights)] == 0).all()


@torch.no_grad()
def test_a_row_belongs_to_the_token_that_it_predicts(make_model: Models, make_example: Examples) -> None:
    """Changing token t changes rows from t + 1 on, which read it, and none up to t."""
    model, example = make_model(), make_example([5], [6])
    changed_ids = example.target_ids.clone()
    changed_ids[:, 3] = (changed_ids[:, 3] + 5) % 22
    both = zip(
        memory_attention_weights(model, *example),
        memory_attention_weights(model, *example._replace(target_ids=changed_ids)),
        strict=True,
    )
    for before, after in both:
        assert torch.equal(before[:, :, :4], after[:, :, :4])
        assert ((before - after)[:, :, 4:].abs().amax(dim=-1) > 1e-6).all()
