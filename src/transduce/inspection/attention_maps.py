"""The weights of every head of one attention, and how much each really adds."""

from collections.abc import Mapping, Sequence

import torch

from transduce.inspection.arrays import shares, sizes
from transduce.inspection.attention_records import AttentionRecord
from transduce.inspection.network_parts import AllMaps, AttentionName, Maps
from transduce.inspection.passes import Place


def all_maps(records: Mapping[Place, AttentionRecord]) -> AllMaps:
    """Those of the three attentions, of a batch of one sentence."""
    names: tuple[AttentionName, ...] = ("encoder", "decoder", "encoder_decoder")
    return AllMaps(**{name: attention_maps(_layers(records, name)) for name in names})


def attention_maps(layers: Sequence[AttentionRecord]) -> Maps:
    """Those of one attention, from the first layer to the last."""
    weights = torch.stack([record.weights[0] for record in layers])
    norms = torch.stack([record.added_norms[0] for record in layers])
    num_layers, heads, queries, keys = weights.shape
    return Maps(
        layers=num_layers,
        heads=heads,
        queries=queries,
        keys=keys,
        weights=shares(weights),
        norms=sizes(norms),
    )


def _layers(records: Mapping[Place, AttentionRecord], name: AttentionName) -> list[AttentionRecord]:
    return [records[place] for place in sorted(records) if place.attention == name]
