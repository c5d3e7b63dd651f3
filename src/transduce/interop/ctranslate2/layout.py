"""The file `model.bin` of a CTranslate2 folder: its variables, and which tensors of a bundle and settings they hold.

Little-endian, as `Model::load` in CTranslate2's src/models/model.cc reads it:

    version of the file (4 bytes), kind of model (a text), revision of the kind (4)
    number of variables (4), and of each: name (a text), number of axes (1), their lengths (4 each), type (1),
        size in bytes (4), numbers
    number of aliases (4), and of each: its name (a text), the name of the variable that it stands for (a text)

A text is its length in bytes (2), its bytes, and a zero that counts in the length.

Matrices have the same layout in both programs, [outputs, inputs], and both stack the projections of an attention in one
matrix; CTranslate2 has two only for cross-attention, as it projects the memory once. Its vocabulary has no `<pad>`: the
last row is left out of every matrix with a row for each token, unless that row is the vector of the start symbol of
targets.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import count, product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError
from transduce.interop.bundle_tensors import ROWS_ARE_TOKENS, gather_tensors, parse_tensor_name
from transduce.interop.channel_order import classify_positions, compute_tensor2tensor_sinusoids

MODEL_FILE = "model.bin"
FILE_VERSIONS = (3, 4, 5, 6)
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
"""Types of numbers, by their code in the file."""

_TYPES_BEFORE_4 = {4: torch.float32, 2: torch.int16, 1: torch.int8}
"""Types of numbers in older files, by the number of bytes."""

_MAX_AXES = 8


def read_model_file(path: Path) -> "Variables":
    """Read the file at `path`."""
    try:
        reader = _Reader(path.read_bytes(), path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    version = reader.read_number(4)
    if version not in FILE_VERSIONS:
        reader.refuse(f"has file version {version}; supported are {FILE_VERSIONS[0]} to {FILE_VERSIONS[-1]}")
    kind, revision = reader.read_string(), reader.read_number(4)
    found: dict[str, Tensor] = {}
    for _ in range(reader.read_number(4)):
        name = reader.read_string()
        if name in found:
            reader.refuse(f"has the variable {name!r} twice")
        found[name] = reader.read_tensor(name, version)
    scales: dict[str, Tensor] = {}
    for _ in range(reader.read_number(4)):
        alias, name = reader.read_string(), reader.read_string()
        if name not in found:
            reader.refuse(f"has the alias {alias!r} of {name!r}, which is missing")
        if alias in found:
            reader.refuse(f"has the variable {alias!r} twice")
        found[alias] = found[name]
        if (scale := found.get(f"{name}_scale", scales.get(f"{name}_scale"))) is not None:  # the alias stands for both
            scales[f"{alias}_scale"] = scale
    if reader.left:
        reader.refuse(f"has {reader.left:,} extra bytes after its end")
    return Variables(path, kind, revision, scales | found)


class _Reader:
    """Reads consecutive values from `data`, never beyond its end."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._data = data
        self._path = path
        self._offset = 0

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return len(self._data) - self._offset

    def read_number(self, num_bytes: int) -> int:
        """The next bytes as a number that is not negative."""
        return int.from_bytes(self._data[self._take(num_bytes)], "little")

    def read_string(self) -> str:
        """The next text."""
        raw = self._data[self._take(self.read_number(2))]
        try:
            text = raw.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        if not text or not raw.endswith(b"\0") or not text.isprintable():
            self.refuse(f"has {raw[:40]!r} in place of a name")
        return text

    def read_tensor(self, name: str, version: int) -> Tensor:
        """The next variable, whose `name` has been read."""
        num_axes = self.read_number(1)
        if num_axes > _MAX_AXES:
            self.refuse(f"{name!r} has {num_axes} axes")
        shape = struct.unpack(f"<{num_axes}I", self._data[self._take(4 * num_axes)])
        if 0 in shape:
            self.refuse(f"{name!r} has the empty shape {list(shape)}")
        code = self.read_number(1)
        if version < 4:
            kind = _TYPES_BEFORE_4.get(code)
            num_bytes = self.read_number(4) * code
        else:
            kind = TYPES[code] if code < len(TYPES) else None
            num_bytes = self.read_number(4)
        if kind is None:
            self.refuse(f"{name!r} has the unknown type {code}")
        if num_bytes != prod(shape) * kind.itemsize:
            self.refuse(
                f"{name!r} has {num_bytes:,} bytes, but its shape {list(shape)} needs {prod(shape) * kind.itemsize:,}"
            )
        numbers = bytearray(self._data[self._take(num_bytes)])
        return torch.frombuffer(numbers, dtype=kind).view(shape)

    def refuse(self, finding: str) -> NoReturn:
        """Say what is wrong."""
        raise BundleError(
            f"{self._path}: {finding}: it is not a CTranslate2 model, or is damaged; use an undamaged copy"
        )

    def _take(self, num_bytes: int) -> slice:
        if num_bytes > self.left:
            self.refuse(f"ends after {len(self._data):,} bytes, where {num_bytes - self.left:,} more should follow")
        taken = slice(self._offset, self._offset + num_bytes)
        self._offset = taken.stop
        return taken


_SCALE = "_scale"


class Variables:
    """The variables of a model file in float32, by their current names, with a record of which were read.

    Integers are divided by the scale of their row.

    Args:
        path: the file, for error messages.
        kind: the specification, as in "TransformerSpec".
        revision: its version.
        variables: numbers by name, as in "encoder/layer_0/ffn/linear_0/weight"; single numbers have no axes.
    """

    def __init__(self, path: Path, kind: str, revision: int, variables: Mapping[str, Tensor]) -> None:
        self.kind = kind
        self._path, self._revision, self._variables = path, revision, variables
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._find_stored_name(name) is not None

    def _find_stored_name(self, name: str) -> str | None:
        """The name in this file; before revision 5, both stacks shared their settings, and embeddings had no number."""
        names = [name, name.replace("embeddings_0/", "embeddings/")]
        if self._revision < 5:
            names.append(name.partition("/")[2])
        return next((one for one in names if one in self._variables), None)

    def raw(self, name: str) -> Tensor:
        """The variable in its own type."""
        stored_name = self._find_stored_name(name)
        if stored_name is None:
            raise BundleError(
                f"{self._path}: has no variable {name!r}, which is required: it is a model of another kind"
            )
        self._read.add(stored_name)
        return self._variables[stored_name]

    def __getitem__(self, name: str) -> Tensor:
        """The variable in float32: the numbers that CTranslate2 computes with in that precision."""
        numbers = self.raw(name)
        if numbers.is_floating_point():
            return numbers.float()
        scale = self.raw(name + _SCALE)
        num_rows = len(numbers) if numbers.ndim else 1
        if scale.dtype != torch.float32 or scale.ndim > 1 or (scale.ndim and len(scale) != num_rows):
            raise BundleError(
                f"{self._path}: {name + _SCALE!r} has the shape {list(scale.shape)}, which does not match the rows"
            )
        return numbers.float() / scale.view(-1, *(1,) * (numbers.ndim - 1))

    def matrix(self, name: str) -> Tensor:
        """A matrix in its own type."""
        found = self.raw(name)
        if found.ndim != 2 or not found.numel():
            raise BundleError(f"{self._path}: {name!r} has the shape {list(found.shape)}, but must be a matrix")
        return found

    def rows(self, name: str, num_rows: int) -> Tensor:
        """A matrix with `num_rows` rows of the width of the network, or a vector of so many numbers, in float32."""
        found = self[name]
        if found.shape not in {(num_rows,), (num_rows, self.d_model)}:
            raise BundleError(
                f"{self._path}: {name!r} has the shape {list(found.shape)}, but must have a row of {self.d_model} "
                f"numbers for each of the {num_rows:,} tokens of the vocabulary"
            )
        return found

    @property
    def d_model(self) -> int:
        """The width of the network, by its first normalisation."""
        return self.raw("encoder/layer_0/self_attention/layer_norm/gamma").numel()

    def number(self, name: str, default: float) -> float:
        """A single number: a setting, or a switch that is 0 or 1."""
        if name not in self:
            return default
        value = self.raw(name)
        if value.numel() != 1 or not value.isfinite().all():
            raise BundleError(f"{self._path}: {name!r} has the shape {list(value.shape)}, but must be a single number")
        return float(value)

    def unread(self) -> list[str]:
        """Names of the variables that were not read, sorted."""
        return sorted(self._variables.keys() - self._read)


EMBEDDINGS = ("encoder/embeddings_0/weight", "decoder/embeddings/weight")
PROJECTION = "decoder/projection/weight"
POSITIONS = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")
OUTPUT_BIAS = "decoder/projection/bias"

_PARTS = {
    "self_attention.projection": ("self_attention/linear_0",),
    "self_attention.output": ("self_attention/linear_1",),
    "self_attention_residual.normalization": ("self_attention/layer_norm",),
    "cross_attention.projection": ("attention/linear_0", "attention/linear_1"),
    "cross_attention.output": ("attention/linear_2",),
    "cross_attention_residual.normalization": ("attention/layer_norm",),
    "feed_forward.inner": ("ffn/linear_0",),
    "feed_forward.outer": ("ffn/linear_1",),
    "feed_forward_residual.normalization": ("ffn/layer_norm",),
    "final": ("layer_norm",),
}
_OUTSIDE_LAYERS = {
    "source_embedding.weight": EMBEDDINGS[0],
    "target_embedding.weight": EMBEDDINGS[1],
    "projection.weight": PROJECTION,
    "projection.bias": OUTPUT_BIAS,
    "positions.table": POSITIONS[0],
}

NUM_POSITIONS = 2048
"""The smallest number of rows of an exported table of sinusoids; CTranslate2 reads 1,024 by default."""


def count_positions(config: TransformerConfig, search: SearchConfig) -> int:
    """The largest number of tokens of a source or target: of learned positions, or more than any search needs."""
    if config.positions == "learned":
        return config.max_positions
    return max(NUM_POSITIONS, search.max_pieces + 1 + search.max_extra_length)


def list_variables(name: str) -> tuple[str, ...]:
    """The variables whose rows, stacked, are the rows of the bundle's tensor."""
    if name in _OUTSIDE_LAYERS:
        return (_OUTSIDE_LAYERS[name],)
    stack, layer, part, kind = parse_tensor_name(name)
    if part.endswith(("normalization", "final")):
        kind = "gamma" if kind == "gain" else "beta"
    prefix = stack if layer is None else f"{stack}/layer_{layer}"
    return tuple(f"{prefix}/{one}/{kind}" for one in _PARTS[part])


def map_copies(config: TransformerConfig) -> dict[str, str]:
    """Further variables that equal a tensor of a bundle, each with the name of that tensor."""
    shared = {"three_way": "source_embedding.weight", "two_way": "target_embedding.weight"}.get(config.tied_embeddings)
    found = {} if shared is None else {"decoder/projection/weight": shared}
    if config.tied_embeddings == "three_way":
        found["decoder/embeddings/weight"] = "source_embedding.weight"
    if config.positions == "learned":
        found[POSITIONS[1]] = "positions.table"
    return found


def has_zero_start_embedding(tensors: Mapping[str, Tensor]) -> bool:
    """Whether targets begin with the zero vector, as in all but imported models."""
    embedding = tensors.get("target_embedding.weight", tensors["source_embedding.weight"])
    return not embedding[-1].any()


def to_variables(config: TransformerConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The variables of a model with these weights; a shared one is the same tensor under each of its names."""
    found: dict[str, Tensor] = {}
    tokens = slice(None, -1) if has_zero_start_embedding(tensors) else slice(None)
    for name, whole in tensors.items():
        variables, tensor = list_variables(name), whole[tokens] if name in ROWS_ARE_TOKENS else whole
        query_width = config.num_heads * config.d_k
        rows = [query_width, len(tensor) - query_width] if len(variables) == 2 else [len(tensor)]
        found |= zip(variables, torch.split(tensor, rows), strict=True)
    for variable, name in map_copies(config).items():
        found[variable] = found[list_variables(name)[0]]
    if not has_zero_start_embedding(tensors):  # and is never predicted
        bias = found.get(OUTPUT_BIAS, torch.zeros(config.vocabulary))
        found[OUTPUT_BIAS] = torch.cat([bias[:-1], torch.full((1,), -torch.inf)])
    return found


def from_variables(
    config: TransformerConfig, variable: Callable[[str], Tensor], matrices: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The tensors of a bundle from the function that returns a variable; a missing row of `<pad>` is zero.

    `matrices` are those with a row for each token, unless the rows of the variables are the bundle's.
    """
    given = matrices or {}
    for copy, name in map_copies(config).items():
        (first,) = list_variables(name)
        if name not in given and not torch.equal(variable(copy), variable(first)):
            raise BundleError(f"{copy} and {first} differ, but are shared in this model")

    def find_parts(name: str) -> list[Tensor]:
        parts = [variable(one) for one in list_variables(name)]
        lacks_pad = name in ROWS_ARE_TOKENS and len(parts[0]) < config.vocabulary
        return [*parts, torch.zeros_like(parts[0][:1])] if lacks_pad else parts

    return gather_tensors(config, given, find_parts)


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
    """Read the positions of the encoder, which must also be the decoder's.

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


_STACKS = ("encoder", "decoder")
_ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}
_DEFAULTS = {"num_heads": 8.0, "pre_norm": 1.0, "activation": 0.0}
"""CTranslate2's defaults for settings that a model does not have."""

_MUST_BE = {
    "decoder/alibi": (0.0, "linear biases for positions (ALiBi)"),
    "encoder/multi_query_attention": (0.0, "keys and values shared by heads"),
    "decoder/scale_outputs": (1.0, "scaled logits"),
}
"""Settings with the only supported value, and the meaning of other values."""

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


def find_unsupported_settings(variables: Variables) -> Iterator[str]:
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
        yield f"{POSITIONS[0]} and {POSITIONS[1]} differ: a bundle has a single table of positions"
    if "encoder/layer_0/self_attention/layer_norm/beta" not in variables:
        yield "encoder/layer_0/self_attention/layer_norm has no beta: root mean square normalisation (RMSNorm)"
    for stack in _STACKS:
        if _read_number(variables, "pre_norm") and f"{stack}/layer_norm/gamma" not in variables:
            yield f"{stack}/layer_norm is missing: with pre-norm, a final normalisation is required"
    yield from _find_unlike_attentions(variables)


def find_unknown_variables(variables: Variables) -> Iterator[str]:
    """The variables that were not read: those of models of another kind."""
    for name in _HARMLESS:
        variables.number(name, 0.0)
    left = variables.unread()
    for name in left[:5]:
        yield f"{name}: {next((words for part, words in _FEATURES.items() if part in name), 'is not supported')}"
    if len(left) > 5:
        yield f"and {len(left) - 5:,} more unsupported variables"


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
        for layer, part in product(range(_count_layers(variables, stack)), parts):
            name = f"{stack}/layer_{layer}/{part}"
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
