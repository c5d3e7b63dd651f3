"""Which variables of a CTranslate2 model hold which tensors of ours.

Matrices have the same layout in both, [outputs, inputs], and both keep the projections of an attention below each other
in one matrix; only for the encoder-decoder attention has CTranslate2 two, as it projects the memory once. Its
vocabulary has no `<pad>`: that row, the last, is left out of every matrix that has one row for each token, unless
targets begin behind its vector, which is then the start symbol's.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product

import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import BundleError

ROWS_ARE_TOKENS = ("source_embedding.weight", "target_embedding.weight", "projection.weight", "projection.bias")
POSITIONS = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")

OUTPUT_BIAS = "decoder/projection/bias"

_LINEAR = (("weight", "weight"), ("bias", "bias"))
_NORMALIZATION = (("gain", "gamma"), ("bias", "beta"))


def variables_of(config: TransformerConfig) -> dict[str, tuple[str, ...]]:
    """For each tensor of a bundle, by name, the variables whose rows, one below the other, are its rows."""
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
        parts = list(_parts_of_layer(is_decoder=stack == "decoder"))
        for layer, (ours, theirs) in product(range(num_layers), parts):
            for our_name, their_name in _NORMALIZATION if ours.endswith("normalization") else _LINEAR:
                found[f"{stack}.layers.{layer}.{ours}.{our_name}"] = tuple(
                    f"{stack}/layer_{layer}/{part}/{their_name}" for part in theirs
                )
        if config.norm_order == "pre":
            found |= {f"{stack}.final.{ours}": (f"{stack}/layer_norm/{theirs}",) for ours, theirs in _NORMALIZATION}
    return found


def copies_of(config: TransformerConfig) -> dict[str, str]:
    """Further variables that hold the same as a tensor of ours, each with the name of that tensor."""
    shared = {"three_way": "source_embedding.weight", "two_way": "target_embedding.weight"}.get(config.tied_embeddings)
    found = {} if shared is None else {"decoder/projection/weight": shared}
    if config.tied_embeddings == "three_way":
        found["decoder/embeddings/weight"] = "source_embedding.weight"
    if config.positions == "learned":
        found[POSITIONS[1]] = "positions.table"
    return found


def starts_from_zero(tensors: Mapping[str, Tensor]) -> bool:
    """Whether targets begin behind the zero vector, as ours do; models that were imported may have another."""
    embedding = tensors.get("target_embedding.weight", tensors["source_embedding.weight"])
    return not embedding[-1].any()


def to_variables(config: TransformerConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The variables of a model with these weights, by name; a shared one is the same tensor under each of its names."""
    found: dict[str, Tensor] = {}
    tokens = slice(None, -1) if starts_from_zero(tensors) else slice(None)
    for name, variables in variables_of(config).items():
        tensor = tensors[name][tokens] if name in ROWS_ARE_TOKENS else tensors[name]
        query_width = config.num_heads * config.d_k
        rows = [query_width, len(tensor) - query_width] if len(variables) == 2 else [len(tensor)]
        found |= zip(variables, torch.split(tensor, rows), strict=True)
    for variable, name in copies_of(config).items():
        found[variable] = found[variables_of(config)[name][0]]
    if not starts_from_zero(tensors):  # and is never predicted
        bias = found.get(OUTPUT_BIAS, torch.zeros(config.vocabulary))
        found[OUTPUT_BIAS] = torch.cat([bias[:-1], torch.full((1,), -torch.inf)])
    return found


def from_variables(config: TransformerConfig, variable: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """The tensors of a bundle with these variables, asked for by name; where they have no row of `<pad>`, it is zero.

    Raises:
        BundleError: what the settings say is shared is not the same.
    """
    places = variables_of(config)
    for copy, name in copies_of(config).items():
        if not torch.equal(variable(copy), variable(places[name][0])):
            raise BundleError(f"{copy} and {places[name][0]} differ, and in this model they are one")
    found = {}
    for name, variables in places.items():
        tensor = torch.cat([variable(one) for one in variables])
        lacks_pad = name in ROWS_ARE_TOKENS and len(tensor) < config.vocabulary
        found[name] = torch.cat([tensor, torch.zeros_like(tensor[:1])]) if lacks_pad else tensor
    return found


def _parts_of_layer(*, is_decoder: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our name of each part of a layer, and theirs."""
    yield "self_attention.projection", ("self_attention/linear_0",)
    yield "self_attention.output", ("self_attention/linear_1",)
    yield "self_attention_residual.normalization", ("self_attention/layer_norm",)
    if is_decoder:
        yield "memory_attention.projection", ("attention/linear_0", "attention/linear_1")
        yield "memory_attention.output", ("attention/linear_2",)
        yield "memory_attention_residual.normalization", ("attention/layer_norm",)
    yield "feed_forward.inner", ("ffn/linear_0",)
    yield "feed_forward.outer", ("ffn/linear_1",)
    yield "feed_forward_residual.normalization", ("ffn/layer_norm",)
