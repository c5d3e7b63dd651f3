"""Attention of one sentence: what every attention computes with, the weights of every head, and its arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.inspection.document import (
    AllMaps,
    AttentionName,
    Head,
    HeadArithmetic,
    Maps,
    pack_exact,
    pack_shares,
    pack_sizes,
)
from transduce.inspection.head_mask import HeadMask, Place, count_layers, list_attentions
from transduce.model import DotScore, KeysAndValues, MultiHeadAttention, Transformer, attention_weights
from transduce.model.attention import Attended, Mask, Queries, Scores


@dataclass(frozen=True)
class AttentionRecord:
    """One attention of one sentence, as a batch of one; `kept` is 1 for every head that is not masked, else 0."""

    attention: MultiHeadAttention
    queries: Queries
    keys_and_values: KeysAndValues
    mask: Mask
    kept: Float[Tensor, " heads"]

    @property
    def weights(self) -> Scores:
        """softmax(score(Q, K)) (paper eq. 1), [1, heads, query, key]."""
        return attention_weights(self.attention.score, self.queries, self.keys_and_values.keys, self.mask)

    @property
    def attended(self) -> Attended:
        """Weights times values, [1, heads, query, d_v]."""
        attended: Tensor = self.weights @ self.keys_and_values.values
        return attended

    @property
    def outputs(self) -> Float[Tensor, "heads d_v d_model"]:
        """The rows of W^O that belong to each head (paper 3.2.2); zeros for a masked head."""
        weight = self.attention.output.weight
        rows = weight.T.reshape(self.attention.num_heads, self.attention.d_v, weight.size(0))
        return rows * self.kept[:, None, None]

    @property
    def added_norms(self) -> Float[Tensor, "1 heads query key"]:
        """|| weight * value W^O ||: the length of what a key adds to a query by a head (Kobayashi et al. 2020, eq. 4).

        As the weight is not negative, this is the weight times the length of value W^O.
        """
        lengths = (self.keys_and_values.values @ self.outputs).norm(dim=-1)
        norms: Tensor = self.weights * lengths[:, :, None]
        return norms


class Recorder:
    """Computes attention under a head mask, and records the inputs of every attention; for one sentence."""

    def __init__(self, model: Transformer, head_mask: HeadMask) -> None:
        self.head_mask = head_mask
        self.records: dict[Place, AttentionRecord] = {}
        self._places = list_attentions(model)

    def __call__(
        self, attention: MultiHeadAttention, queries: Queries, keys_and_values: KeysAndValues, mask: Mask
    ) -> Float[Tensor, "batch query d_model"]:
        kept = self.head_mask.kept[attention][0]
        self.records[self._places[attention]] = AttentionRecord(attention, queries, keys_and_values, mask, kept)
        return self.head_mask(attention, queries, keys_and_values, mask)


def make_all_maps(records: Mapping[Place, AttentionRecord]) -> AllMaps:
    """The maps of the three attentions, for one sentence."""
    layers: dict[AttentionName, list[AttentionRecord]] = {"encoder": [], "decoder": [], "encoder_decoder": []}
    for place in sorted(records):
        layers[place.attention].append(records[place])
    return AllMaps(**{name: make_attention_maps(found) for name, found in layers.items()})


def make_attention_maps(layers: Sequence[AttentionRecord]) -> Maps:
    """The maps of one attention, from the first layer to the last."""
    weights = torch.stack([record.weights[0] for record in layers])
    norms = torch.stack([record.added_norms[0] for record in layers])
    num_layers, heads, queries, keys = weights.shape
    return Maps(
        layers=num_layers,
        heads=heads,
        queries=queries,
        keys=keys,
        weights=pack_shares(weights),
        norms=pack_sizes(norms),
    )


MOST_CHARACTERS = 2_000_000
"""Characters that the arithmetic of all heads together may take in a document."""


def collect_head_arithmetic(
    records: Mapping[Place, AttentionRecord],
    asked: Sequence[Head],
    config: TransformerConfig,
    *,
    as_many_as_fit: bool = False,
) -> list[HeadArithmetic]:
    """The arithmetic of the given heads, and of as many others as fit, from all attentions and layers.

    Raises:
        UserError: the model has additive attention scores, and a head is given.
    """
    found = [compute_head_arithmetic(records, head) for head in asked]
    if not as_many_as_fit or config.attention_score == "additive":
        return found
    size = sum(map(_count_characters, found))
    for head in rotate_heads(config):
        if head not in asked:
            one = compute_head_arithmetic(records, head)
            size += _count_characters(one)
            if found and size > MOST_CHARACTERS:
                break
            found.append(one)
    return found


def rotate_heads(config: TransformerConfig) -> Iterator[Head]:
    """All heads, ordered so that the first ones are of all attentions and layers, with different numbers."""
    most = max(count_layers(config).values())
    for turn in range(config.num_heads * most):
        layer, head = turn % most, (turn % most + turn // most) % config.num_heads
        for attention, layers in count_layers(config).items():
            if layer < layers:
                yield Head(attention=attention, layer=layer, head=head)


def compute_head_arithmetic(records: Mapping[Place, AttentionRecord], head: Head) -> HeadArithmetic:
    """Every number of one head, for a batch of one sentence (paper eq. 1, and W^O of 3.2.2).

    Raises:
        UserError: the model has additive attention scores.
    """
    record = records[Place(head.attention, head.layer)]
    score = record.attention.score
    if not isinstance(score, DotScore):
        raise UserError(
            'arithmetic: this model\'s attention_score is "additive", and what is shown is the arithmetic of products '
            "of queries and keys: ask for no head"
        )
    queries, (keys, values) = record.queries[0, head.head], record.keys_and_values
    attended, output = record.attended[0, head.head], record.outputs[head.head]
    return HeadArithmetic(
        **dict(head),
        d_k=record.attention.d_k,
        d_v=record.attention.d_v,
        scale=score.scale,
        query=pack_exact(queries),
        keys=pack_exact(keys[0, head.head]),
        values=pack_exact(values[0, head.head]),
        output=pack_exact(output),
        weights=pack_exact(record.weights[0, head.head]),
        attended=pack_exact(attended),
        contribution_norms=[round(norm, 6) for norm in (attended @ output).norm(dim=-1).tolist()],
    )


def _count_characters(one: HeadArithmetic) -> int:
    arrays = one.query, one.keys, one.values, one.output, one.weights, one.attended
    return sum(len(array.data) for array in arrays)
