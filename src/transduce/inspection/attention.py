"""What goes into every attention of a forward pass, and what is made of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.inspection.document import AllMaps, AttentionName, Head, HeadArithmetic, Maps, exact, shares, sizes
from transduce.inspection.forward_pass import Place
from transduce.inspection.head_mask import HeadSwitches, num_layers
from transduce.model import DotScore, KeysAndValues, MultiHeadAttention, attention_weights
from transduce.model.attention import Attended, Mask, Queries, Scores


@dataclass(frozen=True)
class AttentionRecord:
    """One attention of one sentence, which is a batch.

    Args:
        attention: of the model.
        queries: of all heads.
        keys_and_values: likewise.
        mask: True where a query may look at a key.
        on: for each head 1, or 0 if it is switched off.
    """

    attention: MultiHeadAttention
    queries: Queries
    keys_and_values: KeysAndValues
    mask: Mask
    on: Float[Tensor, " heads"]

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
        """The rows of W^O that belong to each head (paper 3.2.2); zeros for a head that is off."""
        weight = self.attention.output.weight
        rows = weight.T.reshape(self.attention.num_heads, self.attention.d_v, weight.size(0))
        return rows * self.on[:, None, None]

    @property
    def added_norms(self) -> Float[Tensor, "1 heads query key"]:
        """|| weight * value W^O ||: the length of what a key adds to a query by a head (Kobayashi et al. 2020, eq. 4).

        The weight is a number from 0 to 1, so that it is the weight times the length of value W^O.
        """
        lengths = (self.keys_and_values.values @ self.outputs).norm(dim=-1)
        norms: Tensor = self.weights * lengths[:, :, None]
        return norms


@dataclass(frozen=True)
class Recorder:
    """Attends as the switches say, and keeps what went in; of one sentence."""

    switches: HeadSwitches
    records: dict[Place, AttentionRecord] = field(default_factory=dict)

    def __call__(
        self,
        place: Place,
        attention: MultiHeadAttention,
        queries: Queries,
        keys_and_values: KeysAndValues,
        mask: Mask,
    ) -> Float[Tensor, "batch query d_model"]:
        on = self.switches.on[place.attention][0, place.layer]
        self.records[place] = AttentionRecord(attention, queries, keys_and_values, mask, on)
        return self.switches(place, attention, queries, keys_and_values, mask)


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


MOST_CHARACTERS = 2_000_000
"""What as many heads as fit may take in a document."""


def arithmetic(
    records: Mapping[Place, AttentionRecord],
    asked: Sequence[Head],
    config: TransformerConfig,
    *,
    as_many_as_fit: bool = False,
) -> list[HeadArithmetic]:
    """That of the heads that are asked for; and if wanted of others, from all attentions and layers, as many as fit.

    Raises:
        UserError: the model compares queries and keys otherwise than by products, and a head is asked for.
    """
    found = [head_arithmetic(records, head) for head in asked]
    if not as_many_as_fit or config.attention_score == "additive":
        return found
    size = sum(map(_size, found))
    for head in in_turn(config):
        if head not in asked:
            one = head_arithmetic(records, head)
            size += _size(one)
            if found and size > MOST_CHARACTERS:
                break
            found.append(one)
    return found


def in_turn(config: TransformerConfig) -> Iterator[Head]:
    """All heads, so that the first of them are of all attentions and layers, with different numbers."""
    most = max(num_layers(config).values())
    for turn in range(config.num_heads * most):
        layer, head = turn % most, (turn % most + turn // most) % config.num_heads
        for attention, layers in num_layers(config).items():
            if layer < layers:
                yield Head(attention=attention, layer=layer, head=head)


def head_arithmetic(records: Mapping[Place, AttentionRecord], head: Head) -> HeadArithmetic:
    """That of a batch of one sentence (paper eq. 1, and W^O of 3.2.2).

    Raises:
        UserError: the model compares queries and keys otherwise than by products.
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
        attention=head.attention,
        layer=head.layer,
        head=head.head,
        d_k=record.attention.d_k,
        d_v=record.attention.d_v,
        scale=score.scale,
        query=exact(queries),
        keys=exact(keys[0, head.head]),
        values=exact(values[0, head.head]),
        output=exact(output),
        weights=exact(record.weights[0, head.head]),
        attended=exact(attended),
        contribution_norms=[round(norm, 6) for norm in (attended @ output).norm(dim=-1).tolist()],
    )


def _size(one: HeadArithmetic) -> int:
    arrays = one.query, one.keys, one.values, one.output, one.weights, one.attended
    return sum(len(array.data) for array in arrays)
