"""The network of a Marian model in our words, and what it has that ours cannot express."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor

from transduce.config import TransformerConfig, first_problem
from transduce.errors import BundleError
from transduce.interop.marian.archive import Archive
from transduce.interop.marian.layout import OUTPUT_BIAS, POSITIONS
from transduce.interop.marian.settings import MarianSettings
from transduce.interop.position_tables import position_kind

ACTIVATIONS = ("relu", "swish")

NUM_POSITIONS = 2048
"""Rows that are made of Marian's formula, which has no end."""

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


class Tokens(NamedTuple):
    """Of each id of ours, the row in matrices of Marian's, -1 where it has none.

    Args:
        sources: among source embeddings.
        targets: among target embeddings and outputs.
    """

    sources: list[int]
    targets: list[int]


def problems(archive: Archive) -> Iterator[str]:
    """What the model has that ours cannot express."""
    settings, arrays = archive.settings, archive.arrays
    if found := list(_other_values(settings)):
        yield from found
        return
    if not settings.norm_order():
        yield (
            "transformer-preprocess, transformer-postprocess and transformer-postprocess-top must be '', 'dan' and '', "
            "or 'n', 'da' and 'n'"
        )
    if settings.text("transformer-decoder-dim-ffn", "0") not in {"0", settings.text("transformer-dim-ffn")}:
        yield "transformer-decoder-dim-ffn differs from transformer-dim-ffn: ours has one width for both"
    for stack, name in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        last = f"{stack}_l{settings.number(name)}_ffn_W1"
        if last not in arrays:
            yield f"{name} = {settings.number(name)}: there is no array {last!r}"
    for name in (name for name, array in arrays.items() if array.ndim not in {1, 2}):
        yield f"{name} has {arrays[name].ndim} axes: must have one or two"


def network(archive: Archive, tokens: Tokens) -> TransformerConfig:
    """Its shape, `archive` having positions.

    Raises:
        BundleError: it is an impossible one.
        KeyError: an array is missing.
    """
    settings, arrays = archive.settings, archive.arrays
    inner = arrays["encoder_l1_ffn_W1"]
    kind = position_kind(arrays[POSITIONS])
    shape: dict[str, Any] = {
        "vocabulary": len(tokens.sources),
        "num_encoder_layers": settings.number("enc-depth"),
        "num_decoder_layers": settings.number("dec-depth"),
        "d_model": inner.size(0),
        "d_ff": inner.size(1),
        "num_heads": settings.number("transformer-heads"),
        "activation": settings.text("transformer-ffn-activation"),
        "norm_order": settings.norm_order(),
        "tied_embeddings": _tying(settings, tokens),
        "output_bias": _has_bias(archive, tokens),
        "positions": kind,
    }
    if kind == "learned":
        shape["max_positions"] = len(arrays[POSITIONS])
    try:
        return TransformerConfig(**shape)
    except ValidationError as error:
        raise BundleError(f"{settings.name}: {first_problem(error)}") from None


def with_positions(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`arrays` with a table of positions; a file that has none means the sinusoids that Marian computes."""
    table = {POSITIONS: marian_sinusoids(NUM_POSITIONS, arrays["encoder_l1_ffn_W1"].size(0))}
    return {**table, **arrays}


def marian_sinusoids(length: int, d_model: int) -> Float[Tensor, "{length} {d_model}"]:
    """What Marian adds to embeddings: in float32, sines before cosines, frequencies from 1 down to 1/10000 itself.

    The paper's last frequency is a little higher, as are those that Transformers and CTranslate2 take for Marian's.
    """
    half = d_model // 2
    steps = torch.arange(half, dtype=torch.float32) * -(math.log(10_000) / max(half - 1, 1))
    angles = torch.arange(length, dtype=torch.float32)[:, None] * steps.exp()
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _other_values(settings: MarianSettings) -> Iterator[str]:
    for name, values in _NEEDED.items():
        if (found := settings.text(name)) not in values:
            yield f"{name} = {found!r}: must be {' or '.join(repr(value) for value in values if value)}"
    for name in filter(settings.flag, _NEVER_SET):
        yield f"{name} = true: ours has no such layers"
    for name in filter(settings.texts, _EMPTY):
        yield f"{name} = {settings.texts(name)}: must be an empty list"


def _tying(settings: MarianSettings, tokens: Tokens) -> str:
    """Which matrices are one."""
    is_one = settings.flag("tied-embeddings-all")
    if not (is_one or settings.flag("tied-embeddings")):
        return "none"
    inputs_are_one = is_one or settings.flag("tied-embeddings-src")
    return "three_way" if inputs_are_one and tokens.sources == tokens.targets else "two_way"


def _has_bias(archive: Archive, tokens: Tokens) -> bool:
    """Whether there is one, or a token that targets never have; of `<pad>`, the last, nobody asks."""
    has_own = OUTPUT_BIAS in archive.arrays and not archive.settings.flag("output-omit-bias")
    return has_own or -1 in tokens.targets[:-1]
