"""Which arrays of a Marian model of the type `transformer` hold which tensors of ours.

Marian's matrices are [inputs, outputs] and its vectors [1, width]; queries, keys and values are apart, and the channels
between the layers are in halves. Its tokens begin with `</s>` and `<unk>`, and it has no `<pad>`.
"""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from transduce.bundle import blank_model, model_tensors
from transduce.config import TransformerConfig
from transduce.interop.marian.settings import MarianSettings
from transduce.interop.residual_channels import in_halves, in_turn
from transduce.interop.token_rows import numbered

POSITIONS = "Wpos"
OUTPUT_BIAS = "decoder_ff_logit_out_b"
OUTPUT = "decoder_ff_logit_out_Wt"
OLD_OUTPUT = "decoder_ff_logit_out_W"  # transposed, as older Marians have it

ROWS_ARE_TOKENS = ("source_embedding.weight", "target_embedding.weight", "projection.weight", "projection.bias")

# In braces: W or b for matrices and biases, scale or bias for normalisation.
_PARTS = {
    "self_attention.projection": ("self_{}q", "self_{}k", "self_{}v"),
    "self_attention.output": ("self_{}o",),
    "self_attention_residual.normalization": ("self_Wo_ln_{}",),
    "memory_attention.projection": ("context_{}q", "context_{}k", "context_{}v"),
    "memory_attention.output": ("context_{}o",),
    "memory_attention_residual.normalization": ("context_Wo_ln_{}",),
    "feed_forward.inner": ("ffn_{}1",),
    "feed_forward.outer": ("ffn_{}2",),
    "feed_forward_residual.normalization": ("ffn_ffn_ln_{}",),
}
_ALONE = {
    "target_embedding.weight": "decoder_Wemb",
    "projection.weight": OUTPUT,
    "projection.bias": OUTPUT_BIAS,
    "positions.table": POSITIONS,
}
_IN_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)\.(weight|gain|bias)")
_AT_THE_TOP = re.compile(r"(encoder|decoder)\.final\.(gain|bias)")


def marian_rows(vocabulary: int) -> list[int]:
    """Of each id of ours, the row in a matrix of Marian's; -1 for `<pad>`, which has none."""
    return [1, 0, *range(2, vocabulary - 1), -1]


def to_arrays(config: TransformerConfig, tensors: Mapping[str, Tensor], table: Tensor) -> dict[str, Tensor]:
    """The arrays of a model with these weights, by name.

    Args:
        config: the network.
        tensors: its tensors, by the names of a bundle.
        table: its positions. Marian itself takes no notice of them, only CTranslate2's converter does.
    """
    bias = torch.zeros(config.vocabulary)
    found: dict[str, Tensor] = {}
    for name, tensor in in_halves({"projection.bias": bias, **tensors, "positions.table": table}).items():
        # <unk> and </s> change places both ways.
        rows = tensor[marian_rows(config.vocabulary)[:-1]] if name in ROWS_ARE_TOKENS else tensor
        names = _their_names(config, name)
        found |= {one: _turned(name, part) for one, part in zip(names, rows.chunk(len(names)), strict=True)}
    return found


def from_arrays(
    config: TransformerConfig, arrays: Mapping[str, Tensor], matrices: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of a bundle with this `config`.

    Args:
        config: the network.
        arrays: Marian's, by name.
        matrices: what has a row for each token, see `token_matrices`.

    Raises:
        KeyError: an array is missing.
    """
    found: dict[str, Tensor] = {}
    for name in model_tensors(blank_model(config)):
        if name in ROWS_ARE_TOKENS:
            found[name] = matrices[name]
        else:
            found[name] = torch.cat([_turned(name, arrays[one]) for one in _their_names(config, name)])
    return in_turn(found)


def unknown_arrays(config: TransformerConfig, arrays: Mapping[str, Tensor]) -> list[str]:
    """Names of arrays that belong to something which ours has not."""
    tensors = model_tensors(blank_model(config))
    known = {one for name in tensors for one in _their_names(config, name)}
    return sorted(arrays.keys() - known - {"Wemb", "encoder_Wemb", OUTPUT, OLD_OUTPUT, *_ALONE.values()})


def token_matrices(
    settings: MarianSettings, arrays: Mapping[str, Tensor], sources: Sequence[int], targets: Sequence[int], never: float
) -> dict[str, Tensor]:
    """Embeddings, output projection and output bias, by the names of a bundle, with a row for each id of ours.

    Args:
        settings: of the model; they say which of these are one.
        arrays: Marian's, by name.
        sources: the row of each id of ours among source embeddings, -1 where it has none.
        targets: the same among target embeddings and outputs.
        never: the output bias of what has no row.

    Raises:
        KeyError: an array is missing.
    """
    is_one = settings.flag("tied-embeddings-all")
    inputs_are_one = is_one or settings.flag("tied-embeddings-src")
    source, target = (arrays["Wemb" if inputs_are_one else f"{stack}_Wemb"] for stack in ("encoder", "decoder"))
    if is_one or settings.flag("tied-embeddings"):
        output = target
    else:
        output = arrays[OUTPUT] if OUTPUT in arrays else arrays[OLD_OUTPUT].T
    bias = arrays[OUTPUT_BIAS][0] if OUTPUT_BIAS in arrays else output.new_zeros(len(output))
    return {
        "source_embedding.weight": numbered(source, sources),
        "target_embedding.weight": numbered(target, targets),
        "projection.weight": numbered(output, targets),
        "projection.bias": numbered(bias, targets, never),
    }


def _their_names(config: TransformerConfig, name: str) -> tuple[str, ...]:
    """The names of the arrays that hold one after the other what our tensor holds."""
    if name == "source_embedding.weight":
        return ("Wemb" if config.tied_embeddings == "three_way" else "encoder_Wemb",)
    if name in _ALONE:
        return (_ALONE[name],)
    if found := _AT_THE_TOP.fullmatch(name):
        return (f"{found[1]}_top_ln_{'scale' if found[2] == 'gain' else 'bias'}",)
    found = _IN_LAYER.fullmatch(name)
    if found is None:
        raise KeyError(name)
    stack, layer, part, kind = found.groups()
    if part.endswith("normalization"):
        before = "_pre" if config.norm_order == "pre" else ""
        kind = ("scale" if kind == "gain" else "bias") + before
    else:
        kind = "W" if kind == "weight" else "b"
    return tuple(f"{stack}_l{int(layer) + 1}_{one.format(kind)}" for one in _PARTS[part])


def _turned(name: str, part: Tensor) -> Tensor:
    """From one layout to the other, either way."""
    if part.ndim == 1:
        return part[None]
    if name.endswith(("gain", "bias")):
        return part[0]
    return part if name in (*ROWS_ARE_TOKENS, "positions.table") else part.T
