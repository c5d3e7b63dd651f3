"""The network of a CTranslate2 model: which variables hold which tensors of a bundle, positions, and settings.

Matrices have the same layout in both programs, [outputs, inputs], and both stack the projections of an attention in
one matrix; CTranslate2 has two only for cross-attention, as it projects the memory once. Its vocabulary has no `<pad>`:
the last row is left out of every matrix with a row for each token, unless targets begin behind the vector of that row,
which is then the start symbol's.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import count, product
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError
from transduce.interop.conversion import classify_positions, compute_tensor2tensor_sinusoids
from transduce.interop.ctranslate2.model_file import Variables

ROWS_ARE_TOKENS = ("source_embedding.weight", "target_embedding.weight", "projection.weight", "projection.bias")
POSITIONS = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")

OUTPUT_BIAS = "decoder/projection/bias"

_LINEAR = (("weight", "weight"), ("bias", "bias"))
_NORMALIZATION = (("gain", "gamma"), ("bias", "beta"))


NUM_POSITIONS = 2048
"""The smallest number of rows of an exported table of sinusoids; CTranslate2 reads 1,024 unless told otherwise."""


def num_positions(config: TransformerConfig, search: SearchConfig) -> int:
    """The largest number of tokens of a source or target: of learned positions, or more than any search needs."""
    if config.positions == "learned":
        return config.max_positions
    return max(NUM_POSITIONS, search.max_pieces + 1 + search.max_extra_length)


def map_tensors_to_variables(config: TransformerConfig) -> dict[str, tuple[str, ...]]:
    """For each tensor of a bundle, the variables whose rows, stacked, are its rows."""
    found: dict[str, tuple[str, ...]] = {"source_embedding.weight": ("encoder/embeddings_0/weight",)}
    if config.tied_embeddings != "three_way":
        found["target_embedding.weight"] = ("decoder/embeddings/weight",)
    if config.tied_embeddings == "none":
        found["projection.weight"] = ("decoder/projection/weight",)
    if config.output_bias:
        found["projection.bias"] = (OUTPUT_BIAS,)
    if config.positions == "learned":
        found["positions.table"] = POSITIONS[:1]
    for stack, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        parts = list(_list_layer_parts(is_decoder=stack == "decoder"))
        for layer, (ours, theirs) in product(range(num_layers), parts):
            for our_name, their_name in _NORMALIZATION if ours.endswith("normalization") else _LINEAR:
                found[f"{stack}.layers.{layer}.{ours}.{our_name}"] = tuple(
                    f"{stack}/layer_{layer}/{part}/{their_name}" for part in theirs
                )
        if config.norm_order == "pre":
            found |= {f"{stack}.final.{ours}": (f"{stack}/layer_norm/{theirs}",) for ours, theirs in _NORMALIZATION}
    return found


def map_copies(config: TransformerConfig) -> dict[str, str]:
    """Further variables that equal a tensor of a bundle, each with the name of that tensor."""
    shared = {"three_way": "source_embedding.weight", "two_way": "target_embedding.weight"}.get(config.tied_embeddings)
    found = {} if shared is None else {"decoder/projection/weight": shared}
    if config.tied_embeddings == "three_way":
        found["decoder/embeddings/weight"] = "source_embedding.weight"
    if config.positions == "learned":
        found[POSITIONS[1]] = "positions.table"
    return found


def starts_from_zero(tensors: Mapping[str, Tensor]) -> bool:
    """Whether targets begin behind the zero vector, as all but imported models do."""
    embedding = tensors.get("target_embedding.weight", tensors["source_embedding.weight"])
    return not embedding[-1].any()


def to_variables(config: TransformerConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The variables of a model with these weights; a shared one is the same tensor under each of its names."""
    found: dict[str, Tensor] = {}
    tokens = slice(None, -1) if starts_from_zero(tensors) else slice(None)
    for name, variables in map_tensors_to_variables(config).items():
        tensor = tensors[name][tokens] if name in ROWS_ARE_TOKENS else tensors[name]
        query_width = config.num_heads * config.d_k
        rows = [query_width, len(tensor) - query_width] if len(variables) == 2 else [len(tensor)]
        found |= zip(variables, torch.split(tensor, rows), strict=True)
    for variable, name in map_copies(config).items():
        found[variable] = found[map_tensors_to_variables(config)[name][0]]
    if not starts_from_zero(tensors):  # and is never predicted
        bias = found.get(OUTPUT_BIAS, torch.zeros(config.vocabulary))
        found[OUTPUT_BIAS] = torch.cat([bias[:-1], torch.full((1,), -torch.inf)])
    return found


def from_variables(config: TransformerConfig, variable: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """The tensors of a bundle from the function that returns a variable; a missing row of `<pad>` is zero."""
    places = map_tensors_to_variables(config)
    for copy, name in map_copies(config).items():
        if not torch.equal(variable(copy), variable(places[name][0])):
            raise BundleError(f"{copy} and {places[name][0]} differ, and in this model they are one")
    found = {}
    for name, variables in places.items():
        tensor = torch.cat([variable(one) for one in variables])
        lacks_pad = name in ROWS_ARE_TOKENS and len(tensor) < config.vocabulary
        found[name] = torch.cat([tensor, torch.zeros_like(tensor[:1])]) if lacks_pad else tensor
    return found


def _list_layer_parts(*, is_decoder: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "self_attention.projection", ("self_attention/linear_0",)
    yield "self_attention.output", ("self_attention/linear_1",)
    yield "self_attention_residual.normalization", ("self_attention/layer_norm",)
    if is_decoder:
        yield "cross_attention.projection", ("attention/linear_0", "attention/linear_1")
        yield "cross_attention.output", ("attention/linear_2",)
        yield "cross_attention_residual.normalization", ("attention/layer_norm",)
    yield "feed_forward.inner", ("ffn/linear_0",)
    yield "feed_forward.outer", ("ffn/linear_1",)
    yield "feed_forward_residual.normalization", ("ffn/layer_norm",)


_LENGTH = 2048
"""Rows of a table that is computed by CTranslate2's own formula."""


class PositionTable(NamedTuple):
    """A table of positions.

    Args:
        kind: "sinusoidal"; "none", of zeros alone; or "learned", any other table.
        rows: the table, in float32.
        is_split: whether these are sinusoids with all sines before all cosines.
        precision: the precision of rounded sinusoids.
    """

    kind: str
    rows: Float[Tensor, "positions d_model"]
    is_split: bool = False
    precision: str = "float32"


def read_positions(variables: Variables) -> PositionTable:
    """Read the positions of the encoder, which must be the decoder's, too.

    A model without a table has CTranslate2's own, which is Tensor2Tensor's: half sines, half cosines, from position 1
    on, and frequencies down to 1/10000 itself.
    """
    if POSITIONS[0] not in variables:
        return PositionTable("learned", compute_tensor2tensor_sinusoids(_LENGTH, variables.d_model, start=1))
    raw, table = variables.matrix(POSITIONS[0]), variables[POSITIONS[0]]
    if raw.is_floating_point() and table.size(1) == variables.d_model:
        rounding = 0.0 if raw.dtype == torch.float32 else torch.finfo(raw.dtype).eps
        for is_split in (False, True):
            if classify_positions(table, is_split=is_split, rounding=rounding) == "sinusoidal":
                return PositionTable("sinusoidal", table, is_split, str(raw.dtype).removeprefix("torch."))
    return PositionTable("learned" if table.any() else "none", table)


def has_shared_positions(variables: Variables) -> bool:
    """Whether encoder and decoder have the same table, or neither has one."""
    encoder, decoder = (variables.raw(name) if name in variables else None for name in POSITIONS)
    if encoder is None or decoder is None:
        return encoder is decoder
    return torch.equal(encoder, decoder)


EMBEDDINGS = ("encoder/embeddings_0/weight", "decoder/embeddings/weight")
PROJECTION = "decoder/projection/weight"

_STACKS = ("encoder", "decoder")
_ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}
_DEFAULTS = {"num_heads": 8.0, "pre_norm": 1.0, "activation": 0.0}
"""CTranslate2's defaults for settings that a model does not have."""

_MUST_BE = {
    "decoder/alibi": (0.0, "linear biases for positions (ALiBi)"),
    "encoder/multi_query_attention": (0.0, "keys and values shared by heads"),
    "decoder/scale_outputs": (1.0, "scaled logits"),
}
"""Settings with the only value that a bundle can express, and the meaning of other values."""

_HARMLESS = (
    *("decoder/alignment_heads", "decoder/alignment_layer", "decoder/scale_alibi"),
    *("decoder/alibi_use_positive_positions", "encoder/embeddings_merge"),
)
"""Settings without effect on a model that a bundle can express."""

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
"""Features that a bundle cannot express, by parts of the names of their variables."""


def read_network_settings(variables: Variables) -> dict[str, Any]:
    """The fields of `TransformerConfig` that variables decide, without positions and vocabulary."""
    attention = _read_attention(variables, "encoder/layer_0/self_attention")
    return {
        "num_encoder_layers": _count_layers(variables, "encoder"),
        "num_decoder_layers": _count_layers(variables, "decoder"),
        "d_model": variables.d_model,
        "d_ff": variables.matrix("encoder/layer_0/ffn/linear_0/weight").size(0),
        "num_heads": _read_number(variables),
        "d_k": int(attention["head_dim"]),
        "d_v": int(attention["head_dim"]),
        "attention_score": "dot" if attention["queries_scale"] == 1 and attention["head_dim"] > 1 else "scaled_dot",
        "activation": _ACTIVATIONS[_read_number(variables, "activation")],
        "norm_order": "pre" if _read_number(variables, "pre_norm") else "post",
    }


def find_obstacles(variables: Variables) -> Iterator[str]:
    """Settings that a bundle cannot express."""
    for name in _DEFAULTS:
        values = sorted({_read_number(variables, name, stack) for stack in _STACKS})
        if len(values) > 1:
            yield f"{name} = {' and '.join(map(str, values))}: must be the same in encoder and decoder"
    if (activation := _read_number(variables, "activation")) not in _ACTIVATIONS:
        yield f"activation = {activation}: must be 0 (ReLU), 2 (Swish) or 3 (GELU)"
    for name, (expected, meaning) in _MUST_BE.items():
        if (value := variables.number(name, expected)) != expected:
            yield f"{name} = {value:g}: {meaning}"
    if not has_shared_positions(variables):
        yield f"{POSITIONS[0]} and {POSITIONS[1]} differ: ours has one table of positions"
    if "encoder/layer_0/self_attention/layer_norm/beta" not in variables:
        yield "encoder/layer_0/self_attention/layer_norm has no beta: root mean square normalisation (RMSNorm)"
    for stack in _STACKS:
        if _read_number(variables, "pre_norm") and f"{stack}/layer_norm/gamma" not in variables:
            yield f"{stack}/layer_norm is missing: ours normalises after the last layer where it does before each"
    yield from _find_unlike_attentions(variables)


def find_unknown_variables(variables: Variables) -> Iterator[str]:
    """The variables that were not read: those of models of another kind."""
    for name in _HARMLESS:
        variables.number(name, 0.0)
    left = variables.unread()
    for name in left[:5]:
        yield f"{name}: {next((words for part, words in _FEATURES.items() if part in name), 'ours has no such thing')}"
    if len(left) > 5:
        yield f"and {len(left) - 5:,} more variables that ours has no place for"


def read_embedding_scale(variables: Variables, embedding: str) -> float:
    """The factor of the rows of `embedding`; usually the square root of the width."""
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


def _find_unlike_attentions(variables: Variables) -> Iterator[str]:
    first = _read_attention(variables, "encoder/layer_0/self_attention")
    usual = first["head_dim"] ** -0.5 if first["head_dim"] > 0 else 0.0
    if first["head_dim"] < 1 or first["head_dim"] % 1:
        yield f"num_heads = {_read_number(variables)}: must divide the width, {variables.d_model}"
    elif first["queries_scale"] != 1 and not math.isclose(first["queries_scale"], usual, rel_tol=1e-6):
        yield f"queries_scale = {first['queries_scale']:g}: must be {usual:g}, for heads as wide as these, or 1"
    for stack, parts in (("encoder", ("self_attention",)), ("decoder", ("self_attention", "attention"))):
        for place in product(range(_count_layers(variables, stack)), parts):
            name = f"{stack}/layer_{place[0]}/{place[1]}"
            for setting, value in _read_attention(variables, name).items():
                if not math.isclose(value, first[setting], rel_tol=1e-6):
                    yield f"{name}/{setting} = {value:g}: must be {first[setting]:g}, as in other attentions"


def _read_attention(variables: Variables, name: str) -> dict[str, float]:
    width = variables.number(f"{name}/head_dim", variables.d_model / max(1, _read_number(variables)))
    scale = variables.number(f"{name}/queries_scale", width**-0.5 if width > 0 else 0.0)
    return {"head_dim": width, "queries_scale": scale}


def _count_layers(variables: Variables, stack: str) -> int:
    return next(number for number in count() if f"{stack}/layer_{number}/ffn/linear_0/weight" not in variables)


def _read_number(variables: Variables, name: str = "num_heads", stack: str = "encoder") -> int:
    return int(variables.number(f"{stack}/{name}", _DEFAULTS[name]))
