"""The settings of a CTranslate2 model in our words, and what of them ours cannot express."""

import math
from collections.abc import Iterator
from itertools import count, product
from typing import Any

from transduce.interop.ctranslate2.layout import POSITIONS
from transduce.interop.ctranslate2.positions import are_shared
from transduce.interop.ctranslate2.variables import Variables

EMBEDDINGS = ("encoder/embeddings_0/weight", "decoder/embeddings/weight")
PROJECTION = "decoder/projection/weight"

_STACKS = ("encoder", "decoder")
_ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}
_DEFAULTS = {"num_heads": 8.0, "pre_norm": 1.0, "activation": 0.0}
"""What CTranslate2 takes for settings that a model does not have."""

_MUST_BE = {
    "decoder/alibi": (0.0, "linear biases for positions (ALiBi)"),
    "encoder/multi_query_attention": (0.0, "keys and values shared by heads"),
    "decoder/scale_outputs": (1.0, "scaled logits"),
}
"""Of settings, the only value that ours can express, and what others mean."""

_HARMLESS = (
    *("decoder/alignment_heads", "decoder/alignment_layer", "decoder/scale_alibi"),
    *("decoder/alibi_use_positive_positions", "encoder/embeddings_merge"),
)
"""Settings of what ours does not have, or needs not to be told."""

_FEATURES = {
    "relative_": "relative positions",
    "rotary": "rotary positions",
    "linear_0_noact": "gated linear units (GLU)",
    "layernorm_embedding": "a normalisation of the embeddings",
    "project_": "projections around the decoder",
    "_norm/": "a normalisation in another place",
    "num_heads_kv": "keys and values shared by heads",
    "/embeddings_": "several source embeddings",
    "sliding_window": "a window of attention",
    "weight_zero": "quantisation with zero points",
    "softcapping": "capped logits",
}
"""What variables are of, by parts of their names."""


def network_settings(variables: Variables) -> dict[str, Any]:
    """All that the variables tell but for positions and vocabulary, by the names of `TransformerConfig`."""
    attention = _attention(variables, "encoder/layer_0/self_attention")
    return {
        "num_encoder_layers": _num_layers(variables, "encoder"),
        "num_decoder_layers": _num_layers(variables, "decoder"),
        "d_model": variables.d_model,
        "d_ff": variables.matrix("encoder/layer_0/ffn/linear_0/weight").size(0),
        "num_heads": _number(variables),
        "d_k": int(attention["head_dim"]),
        "d_v": int(attention["head_dim"]),
        "attention_score": "dot" if attention["queries_scale"] == 1 and attention["head_dim"] > 1 else "scaled_dot",
        "activation": _ACTIVATIONS[_number(variables, "activation")],
        "norm_order": "pre" if _number(variables, "pre_norm") else "post",
    }


def obstacles(variables: Variables) -> Iterator[str]:
    """What the settings say that ours cannot express."""
    for name in _DEFAULTS:
        values = sorted({_number(variables, name, stack) for stack in _STACKS})
        if len(values) > 1:
            yield f"{name} = {' and '.join(map(str, values))}: must be the same in encoder and decoder"
    if (activation := _number(variables, "activation")) not in _ACTIVATIONS:
        yield f"activation = {activation}: must be 0 (ReLU), 2 (Swish) or 3 (GELU)"
    for name, (expected, meaning) in _MUST_BE.items():
        if (value := variables.number(name, expected)) != expected:
            yield f"{name} = {value:g}: {meaning}"
    if not are_shared(variables):
        yield f"{POSITIONS[0]} and {POSITIONS[1]} differ: ours has one table of positions"
    if "encoder/layer_0/self_attention/layer_norm/beta" not in variables:
        yield "encoder/layer_0/self_attention/layer_norm has no beta: root mean square normalisation (RMSNorm)"
    for stack in _STACKS:
        if _number(variables, "pre_norm") and f"{stack}/layer_norm/gamma" not in variables:
            yield f"{stack}/layer_norm is missing: ours normalises after the last layer where it does before each"
    yield from _odd_attentions(variables)


def unknown(variables: Variables) -> Iterator[str]:
    """What is left when all the rest has been read: variables of models of another kind."""
    for name in _HARMLESS:
        variables.number(name, 0.0)
    left = variables.unread()
    for name in left[:5]:
        yield f"{name}: {next((words for part, words in _FEATURES.items() if part in name), 'ours has no such thing')}"
    if len(left) > 5:
        yield f"and {len(left) - 5:,} more variables that ours has no place for"


def embedding_scale(variables: Variables, embedding: str) -> float:
    """What the rows of `embedding` are multiplied by; as a rule the root of the width."""
    root = math.sqrt(variables.d_model)
    stack = embedding.partition("/")[0]
    names = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"  # the latter is older
    name = next((one for one in names if one in variables), None)
    if name is None:
        return root
    value = variables.number(name, 1.0)
    is_switch = not variables.raw(name).is_floating_point()
    if (is_switch and value) or math.isclose(value, root, rel_tol=1e-6):
        return root
    return 1.0 if is_switch else value


def _odd_attentions(variables: Variables) -> Iterator[str]:
    """What differs from the first attention of the encoder."""
    first = _attention(variables, "encoder/layer_0/self_attention")
    usual = first["head_dim"] ** -0.5 if first["head_dim"] > 0 else 0.0
    if first["head_dim"] < 1 or first["head_dim"] % 1:
        yield f"num_heads = {_number(variables)}: must divide the width, {variables.d_model}"
    elif first["queries_scale"] != 1 and not math.isclose(first["queries_scale"], usual, rel_tol=1e-6):
        yield f"queries_scale = {first['queries_scale']:g}: must be {usual:g}, for heads as wide as these, or 1"
    for stack, parts in (("encoder", ("self_attention",)), ("decoder", ("self_attention", "attention"))):
        for place in product(range(_num_layers(variables, stack)), parts):
            name = f"{stack}/layer_{place[0]}/{place[1]}"
            for setting, value in _attention(variables, name).items():
                if not math.isclose(value, first[setting], rel_tol=1e-6):
                    yield f"{name}/{setting} = {value:g}: must be {first[setting]:g}, as in other attentions"


def _attention(variables: Variables, name: str) -> dict[str, float]:
    """Its settings, or what CTranslate2 takes for those that it does not have."""
    width = variables.number(f"{name}/head_dim", variables.d_model / max(1, _number(variables)))
    scale = variables.number(f"{name}/queries_scale", width**-0.5 if width > 0 else 0.0)
    return {"head_dim": width, "queries_scale": scale}


def _num_layers(variables: Variables, stack: str) -> int:
    return next(number for number in count() if f"{stack}/layer_{number}/ffn/linear_0/weight" not in variables)


def _number(variables: Variables, name: str = "num_heads", stack: str = "encoder") -> int:
    return int(variables.number(f"{stack}/{name}", _DEFAULTS[name]))
