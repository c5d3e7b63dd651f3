"""The network of a Marian model: which arrays hold which tensors of a bundle, positions, and settings.

Marian's matrices are [inputs, outputs] and its vectors [1, width]; queries, keys and values are apart, and the channels
between the layers are split. Its tokens begin with `</s>` and `<unk>`, and it has no `<pad>`.

Marian has two types of a Transformer. Marian 1.12 computes the type `transformer-new` exactly as Transduce does. The
older `transformer` has sinusoids of other frequencies, adds 1e-6 to variances where Transduce adds 1e-5, and,
translating with pre-norm, does not normalise the tokens before the last one. The newer type can have a table of
positions among its weights; then Marian does not multiply embeddings by sqrt(d_model), so that they are multiplied in
the file, and apart from the output matrix.
"""

import math
import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from transduce.bundle.weights import make_empty_tensors
from transduce.config import TransformerConfig
from transduce.interop.bundle_tensors import (
    ROWS_ARE_TOKENS,
    TokenRows,
    arrange_token_matrices,
    gather_tensors,
    make_config,
    parse_tensor_name,
)
from transduce.interop.channel_order import (
    classify_positions,
    compute_tensor2tensor_sinusoids,
    interleave_channels,
    split_channels,
)
from transduce.interop.marian.files import Archive, MarianSettings

POSITIONS = "Wpos"
OUTPUT_BIAS = "decoder_ff_logit_out_b"
OUTPUT = "decoder_ff_logit_out_Wt"
OLD_OUTPUT = "decoder_ff_logit_out_W"  # transposed, as older Marians have it

# In braces: W or b for matrices and biases, scale or bias for normalisation.
_PARTS = {
    "self_attention.projection": ("self_{}q", "self_{}k", "self_{}v"),
    "self_attention.output": ("self_{}o",),
    "self_attention_residual.normalization": ("self_Wo_ln_{}",),
    "cross_attention.projection": ("context_{}q", "context_{}k", "context_{}v"),
    "cross_attention.output": ("context_{}o",),
    "cross_attention_residual.normalization": ("context_Wo_ln_{}",),
    "feed_forward.inner": ("ffn_{}1",),
    "feed_forward.outer": ("ffn_{}2",),
    "feed_forward_residual.normalization": ("ffn_ffn_ln_{}",),
}
_OUTSIDE_LAYERS = {
    "target_embedding.weight": "decoder_Wemb",
    "projection.weight": OUTPUT,
    "projection.bias": OUTPUT_BIAS,
    "positions.table": POSITIONS,
}


def map_to_marian_rows(vocabulary: int) -> list[int]:
    """For each id of a bundle, the row in a matrix of Marian; -1 for `<pad>`, which has none."""
    return [1, 0, *range(2, vocabulary - 1), -1]


def to_arrays(config: TransformerConfig, tensors: Mapping[str, Tensor], table: Tensor) -> dict[str, Tensor]:
    """The arrays of a model with these weights, by name.

    `table` are its positions, which CTranslate2's converter reads and Marian itself ignores.
    """
    bias = torch.zeros(config.vocabulary)
    found: dict[str, Tensor] = {}
    for name, tensor in split_channels({"projection.bias": bias, **tensors, "positions.table": table}).items():
        # <unk> and </s> change places both ways.
        rows = tensor[map_to_marian_rows(config.vocabulary)[:-1]] if name in ROWS_ARE_TOKENS else tensor
        names = _marian_names(config, name)
        found |= {one: _transpose_layout(name, part) for one, part in zip(names, rows.chunk(len(names)), strict=True)}
    return found


def from_arrays(
    config: TransformerConfig, arrays: Mapping[str, Tensor], matrices: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of a bundle with this `config`, from Marian's `arrays` and what `select_token_matrices` found."""

    def find_parts(name: str) -> list[Tensor]:
        return [_transpose_layout(name, arrays[one]) for one in _marian_names(config, name)]

    return interleave_channels(gather_tensors(config, matrices, find_parts))


def find_unknown_arrays(config: TransformerConfig, arrays: Mapping[str, Tensor]) -> list[str]:
    """Names of arrays of features that a bundle does not have."""
    known = {one for name in make_empty_tensors(config) for one in _marian_names(config, name)}
    return sorted(arrays.keys() - known - {"Wemb", "encoder_Wemb", OUTPUT, OLD_OUTPUT, *_OUTSIDE_LAYERS.values()})


def select_token_matrices(settings: MarianSettings, arrays: Mapping[str, Tensor], rows: TokenRows) -> dict[str, Tensor]:
    """The matrices with a row for each id, see `arrange_token_matrices`; `settings` say which of them are shared."""
    is_one = settings.flag("tied-embeddings-all")
    inputs_are_one = is_one or settings.flag("tied-embeddings-src")
    source, target = (arrays["Wemb" if inputs_are_one else f"{stack}_Wemb"] for stack in ("encoder", "decoder"))
    if is_one or settings.flag("tied-embeddings"):
        output = target
    else:
        output = arrays[OUTPUT] if OUTPUT in arrays else arrays[OLD_OUTPUT].T
    bias = arrays[OUTPUT_BIAS][0] if _has_bias(settings, arrays) else output.new_zeros(len(output))
    return arrange_token_matrices(source, target, output, bias, rows)


def _has_bias(settings: MarianSettings, arrays: Mapping[str, Tensor]) -> bool:
    return OUTPUT_BIAS in arrays and not settings.flag("output-omit-bias")


def _marian_names(config: TransformerConfig, name: str) -> tuple[str, ...]:
    """The names of the arrays that together hold a tensor of a bundle."""
    if name == "source_embedding.weight":
        return ("Wemb" if config.tied_embeddings == "three_way" else "encoder_Wemb",)
    if name in _OUTSIDE_LAYERS:
        return (_OUTSIDE_LAYERS[name],)
    stack, layer, part, kind = parse_tensor_name(name)
    of_norm = "scale" if kind == "gain" else "bias"
    if layer is None:
        return (f"{stack}_top_ln_{of_norm}",)
    if part.endswith("normalization"):
        kind = f"{of_norm}_pre" if config.norm_order == "pre" else of_norm
    else:
        kind = "W" if kind == "weight" else "b"
    return tuple(f"{stack}_l{layer + 1}_{one.format(kind)}" for one in _PARTS[part])


def _transpose_layout(name: str, part: Tensor) -> Tensor:
    """A part of a tensor in the other layout; the function is its own inverse."""
    if part.ndim == 1:
        return part[None]
    if name.endswith(("gain", "bias")):
        return part[0]
    return part if name in (*ROWS_ARE_TOKENS, "positions.table") else part.T


NEW_POSITIONS = "positionEmbedding->embeddings"
"""The ending of the names of both tables of positions."""

_LAYERS = {
    "encoder": ("TransformerEncoderLayer", "selfAttentionBlock"),
    "decoder": ("TransformerDecoderLayerWithCrossAttention", "autoRegressiveBlock"),
}
_ARRAY = re.compile(r"(encoder|decoder)_(?:l(\d+)_(\w+?)_|top_)(\w+)")
_MATRIX = re.compile(r".*_W.")


def to_new_arrays(config: TransformerConfig, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert `arrays` of the type `transformer` to the type `transformer-new`."""
    found: dict[str, Tensor] = {}
    for name, array in arrays.items():
        if name == POSITIONS:
            found |= {f"{_new_root(stack)}->{NEW_POSITIONS}": array for stack in _LAYERS}
        elif name.endswith("Wemb"):
            found[name] = array * math.sqrt(config.d_model)
        elif name.startswith("decoder_ff_logit"):
            found[name] = array
        else:
            is_matrix = _MATRIX.fullmatch(name) is not None
            found[_new_name(config, name)] = array if is_matrix else array[0]
    shared = {"three_way": "Wemb", "two_way": "decoder_Wemb"}.get(config.tied_embeddings)
    return found if shared is None else {**found, OUTPUT: arrays[shared]}


def _new_root(stack: str) -> str:
    return f"TransformerBatch{stack.title()}->{stack}"


def _new_name(config: TransformerConfig, name: str) -> str:
    found = _ARRAY.fullmatch(name)
    if found is None:
        raise KeyError(name)
    stack, layer, part, array = found.groups()
    kind = "weight" if _MATRIX.fullmatch(name) or "_ln_scale" in name else "bias"
    if layer is None:
        return f"{_new_root(stack)}->postprocessor->norm->{kind}"
    kind_of_layer, self_attention_block = _LAYERS[stack]
    block = {"self": self_attention_block, "context": "crossAttentionBlock", "ffn": "filterBlock"}[part]
    if "_ln_" in array:
        inside = f"{'pre' if config.norm_order == 'pre' else 'post'}processor->norm"
    elif part == "ffn":
        inside = _new_filter_name(config, array)
    else:
        attention = "crossAttention" if part == "context" else "selfAttention"
        inside = f"{attention}->{array[-1]}Proj"
    in_stack = f"layers->at({int(layer) - 1})->as<marian::nn::{kind_of_layer}>()"
    return f"{_new_root(stack)}->{in_stack}->{block}->{inside}->{kind}"


def _new_filter_name(config: TransformerConfig, array: str) -> str:
    """The name of a linear layer of the feed-forward network; Marian joins a relu with the layer before it."""
    has_relu = config.activation == "relu"
    if array[-1] == "1":
        return f"layers->at(0)->as<marian::nn::{'LinearReluDropout' if has_relu else 'Linear'}>()"
    return f"layers->at({1 if has_relu else 3})->as<marian::nn::Linear>()"


ACTIVATIONS = ("relu", "swish")

NUM_POSITIONS = 2048
"""Rows of a table that is computed by Marian's formula."""

_NEEDED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", ""),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("", "0", "2"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-attention-mask": ("", "default"),
    "transformer-ffn-activation": ACTIVATIONS,
    "lemma-dim-emb": ("", "0"),
}
_NEVER_SET = (
    *("transformer-no-projection", "transformer-train-position-embeddings", "transformer-disable-position-embeddings"),
    *("transformer-no-bias", "transformer-no-affine", "transformer-pool", "transformer-rnn-projection"),
    *("right-left", "ulr", "input-join-fields"),
)
_EMPTY = ("transformer-tied-layers", "input-types")


def find_unsupported_settings(archive: Archive) -> Iterator[str]:
    """Features of the model that a bundle cannot express."""
    settings, arrays = archive.settings, archive.arrays
    if found := list(_find_other_values(settings)):
        yield from found
        return
    if not settings.norm_order():
        yield (
            "transformer-preprocess, transformer-postprocess and transformer-postprocess-top must be '', 'dan' and '', "
            "or 'n', 'da' and 'n'"
        )
    if settings.text("transformer-decoder-dim-ffn", "0") not in {"0", settings.text("transformer-dim-ffn")}:
        yield "transformer-decoder-dim-ffn differs from transformer-dim-ffn: a bundle has one width for both"
    for stack, name in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        number = settings.number(name)
        if number > len(arrays) or f"{stack}_l{number}_ffn_W1" not in arrays:
            yield f"{name} = {number}: there are no arrays of so many layers"
    for name in (name for name, array in arrays.items() if array.ndim not in {1, 2}):
        yield f"{name} has {arrays[name].ndim} axes: must have one or two"


def read_config(archive: Archive, matrices: Mapping[str, Tensor]) -> TransformerConfig:
    """The settings of the network in `archive`, including positions; `matrices` are from `select_token_matrices`."""
    settings, arrays = archive.settings, archive.arrays
    inner, table = arrays["encoder_l1_ffn_W1"], arrays[POSITIONS]
    shape = {
        "num_encoder_layers": settings.number("enc-depth"),
        "num_decoder_layers": settings.number("dec-depth"),
        "d_model": inner.size(0),
        "d_ff": inner.size(1),
        "num_heads": settings.number("transformer-heads"),
        "activation": settings.text("transformer-ffn-activation"),
        "norm_order": settings.norm_order(),
        "output_bias": _has_bias(settings, arrays),
    }
    return make_config(shape, matrices, (classify_positions(table), len(table)), settings.name)


def add_positions(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays with a table of positions: by default the sinusoids that Marian computes."""
    table = {POSITIONS: compute_tensor2tensor_sinusoids(NUM_POSITIONS, arrays["encoder_l1_ffn_W1"].size(0))}
    return {**table, **arrays}


def _find_other_values(settings: MarianSettings) -> Iterator[str]:
    for name, values in _NEEDED.items():
        if (found := settings.text(name)) not in values:
            yield f"{name} = {found!r}: must be {' or '.join(repr(value) for value in values if value)}"
    for name in filter(settings.flag, _NEVER_SET):
        yield f"{name} = true: such layers are not supported"
    for name in filter(settings.texts, _EMPTY):
        yield f"{name} = {settings.texts(name)}: must be an empty list"
