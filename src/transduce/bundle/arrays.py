"""The weights of a bundle as NumPy arrays, for the compiled kernels, which need no PyTorch; and matrices in int8.

Only files with the usual tensors are read; all others are left to PyTorch, which reads them or reports the error.

In a bundle with the precision int8, each matrix `NAME.weight` [outputs, inputs] is stored as integers from -127 to 127,
and `NAME.weight_scale` [outputs] has the scale of each row. All other tensors are float32.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from transduce.config import TransformerConfig
from transduce.errors import BundleError
from transduce.kernels.native.packing import quantize_rows

Shape = tuple[int, ...]


def list_shapes(config: TransformerConfig) -> dict[str, Shape]:
    """Names and shapes of the tensors of a network, a shared one under the first of its names.

    The network has dot products as attention scores, layer normalisation and plain feed-forward networks; others have
    other tensors.
    """
    d_model, width = config.d_model, config.num_heads * config.d_v
    table = (config.vocabulary, d_model)
    shapes: dict[str, Shape] = {"source_embedding.weight": table}
    if config.tied_embeddings != "three_way":
        shapes["target_embedding.weight"] = table
    if config.tied_embeddings == "none":
        shapes["projection.weight"] = table
    if config.output_bias:
        shapes["projection.bias"] = (config.vocabulary,)
    if config.positions == "learned":
        shapes["positions.table"] = (config.max_positions, d_model)
    for stack, num_layers, attentions in (
        ("encoder", config.num_encoder_layers, ("self_attention",)),
        ("decoder", config.num_decoder_layers, ("self_attention", "cross_attention")),
    ):
        for layer in (f"{stack}.layers.{number}" for number in range(num_layers)):
            for attention in attentions:
                projected = 2 * config.num_heads * config.d_k + width
                shapes |= _list_linear(f"{layer}.{attention}.projection", projected, d_model)
                shapes |= _list_linear(f"{layer}.{attention}.output", d_model, width)
                shapes |= _list_norm(f"{layer}.{attention}_residual.normalization", d_model)
            shapes |= _list_linear(f"{layer}.feed_forward.inner", config.d_ff, d_model)
            shapes |= _list_linear(f"{layer}.feed_forward.outer", d_model, config.d_ff)
            shapes |= _list_norm(f"{layer}.feed_forward_residual.normalization", d_model)
        if config.norm_order == "pre":
            shapes |= _list_norm(f"{stack}.final", d_model)
    return shapes


def _list_linear(name: str, num_outputs: int, num_inputs: int) -> dict[str, Shape]:
    return {f"{name}.weight": (num_outputs, num_inputs), f"{name}.bias": (num_outputs,)}


def _list_norm(name: str, d_model: int) -> dict[str, Shape]:
    return {f"{name}.gain": (d_model,), f"{name}.bias": (d_model,)}


SCALE_SUFFIX = "_scale"
"""Suffix of the name of an int8 matrix that gives the name of its scales."""


def has_usual_weights(path: Path, config: TransformerConfig) -> bool:
    """Whether a file has exactly the tensors of `list_shapes`, in float32 or with all matrices in int8.

    Also false if it cannot be read.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
            found = {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
    except (OSError, SafetensorError):
        return False
    expected = {name: ("F32", shape) for name, shape in list_shapes(config).items()}
    matrices = {name: shape for name, (_, shape) in expected.items() if _is_matrix(name, shape)}
    in_int8 = {name: ("I8", shape) for name, shape in matrices.items()}
    scales = {name + SCALE_SUFFIX: ("F32", shape[:1]) for name, shape in matrices.items()}
    return found in (expected, expected | in_int8 | scales)


def read_arrays(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The tensors of a file with usual weights, as float32.

    They are copies, not a mapping of the file, so that a model keeps working when its folder changes.
    """
    arrays: dict[str, npt.NDArray[Any]] = load_file(path)
    scales = {name: arrays.pop(name + SCALE_SUFFIX) for name in list(arrays) if name + SCALE_SUFFIX in arrays}
    with np.errstate(over="ignore", invalid="ignore"):  # scales of damaged weights: reported by the search
        return arrays | {name: arrays[name] * of_rows[:, None] for name, of_rows in scales.items()}


def find_precision(names: Iterable[str]) -> str:
    """The type of the stored matrices: int8 if one of the tensors with these names has scales, else float32."""
    return "int8" if any(name.endswith(SCALE_SUFFIX) for name in names) else "float32"


def list_names(path: Path) -> list[str]:
    """The names of the tensors in a file, of which no tensor is read.

    Raises:
        BundleError: the file cannot be read.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{path}: cannot be read as safetensors: {error!s:.300}") from None


def quantize_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The arrays with every matrix in int8, as `kernels.native.packing` rounds it, and with its scales.

    Quantising the result of `read_arrays` again gives the same integers.
    """
    rounded = dict(arrays)
    for name, array in arrays.items():
        if _is_matrix(name, array.shape):
            rounded[name], rounded[name + SCALE_SUFFIX] = quantize_rows(array)
    return rounded


def _is_matrix(name: str, shape: Shape) -> bool:
    return name.endswith(".weight") and len(shape) == 2
