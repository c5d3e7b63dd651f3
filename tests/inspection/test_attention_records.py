from collections.abc import Callable
from typing import Any

import torch

from transduce.inspection.attention_records import AttentionRecord, Recorder
from transduce.inspection.head_switches import HeadSwitches
from transduce.inspection.network_parts import Head
from transduce.inspection.passes import Place, forced
from transduce.model import Transformer

SOURCE, TARGET = [5, 9, 7, 30, 1], [11, 12, 40, 1]
MODULES = {
    "encoder": "encoder.layers.{}.self_attention",
    "decoder": "decoder.layers.{}.self_attention",
    "encoder_decoder": "decoder.layers.{}.memory_attention",
}


def recorded(model: Transformer, off: list[Head]) -> dict[Place, AttentionRecord]:
    recorder = Recorder(HeadSwitches.off(model.config, [off]))
    forced(model, torch.tensor([SOURCE]), torch.tensor([TARGET]), recorder)
    return recorder.records


def test_what_the_heads_add_is_what_fused_attention_gives(model: Transformer, watch: Callable[..., Any]) -> None:
    seen = watch(model, SOURCE, TARGET)
    for place, record in recorded(model, []).items():
        added = (record.attended[0] @ record.outputs).sum(dim=0) + record.attention.output.bias
        (own,) = seen[MODULES[place.attention].format(place.layer) + ".output"].outputs
        torch.testing.assert_close(added, own[0], rtol=1e-5, atol=2e-6)


def test_queries_keys_and_values_are_the_models(model: Transformer, watch: Callable[..., Any]) -> None:
    seen = watch(model, SOURCE, TARGET)
    for place, record in recorded(model, []).items():
        # Queries first, then keys and values; the encoder-decoder attention computes the two apart.
        projected = seen[MODULES[place.attention].format(place.layer) + ".projection"].outputs
        by_width = {part.size(-1): part for part in projected}
        heads, d_k, d_v = record.attention.num_heads, record.attention.d_k, record.attention.d_v
        if place.attention == "encoder_decoder":
            assert len(projected) == 2
            queries, rest = by_width[heads * d_k], by_width[heads * (d_k + d_v)]
            keys, values = rest.split([heads * d_k, heads * d_v], dim=-1)
        else:
            (whole,) = projected
            queries, keys, values = whole.split([heads * d_k, heads * d_k, heads * d_v], dim=-1)
        given = record.queries, *record.keys_and_values
        for own, found in zip((queries, keys, values), given, strict=True):
            assert torch.equal(own, found.transpose(1, 2).flatten(2))


def test_weights_are_shares_of_what_may_be_seen(model: Transformer) -> None:
    for place, record in recorded(model, []).items():
        weights = record.weights[0]
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:2]))
        if place.attention == "decoder":
            assert not weights.triu(diagonal=1).any()
            assert (weights[:, 0, 0] == 1).all()


def test_norms_are_the_lengths_of_what_is_added(model: Transformer) -> None:
    for record in recorded(model, []).values():
        values, weights, rows = record.keys_and_values.values[0], record.weights[0], record.attention.output.weight
        d_v = record.attention.d_v
        for head in range(record.attention.num_heads):
            of_head = rows[:, head * d_v : (head + 1) * d_v]
            added = (weights[head, :, :, None] * values[head]) @ of_head.T
            torch.testing.assert_close(record.added_norms[0, head], added.norm(dim=-1), rtol=1e-5, atol=1e-6)


def test_a_head_that_is_off_adds_nothing(make_model: Callable[..., Transformer]) -> None:
    off = Head(attention="encoder_decoder", layer=0, head=2)
    norms = recorded(make_model(), [off])[Place("encoder_decoder", 0)].added_norms[0]
    assert not norms[2].any()
    assert (norms[[0, 1, 3]] > 0).all()
