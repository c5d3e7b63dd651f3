"""Every number of some heads, so that their arithmetic can be done again elsewhere."""

from collections.abc import Iterator, Mapping, Sequence

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.inspection.arrays import exact
from transduce.inspection.attention_records import AttentionRecord
from transduce.inspection.head_switches import num_layers
from transduce.inspection.network_parts import Head, HeadArithmetic
from transduce.inspection.passes import Place
from transduce.model import DotScore

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
