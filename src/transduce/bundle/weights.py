"""The tensors of a model, shared ones once, checked by name, shape and type; and averages of weights."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transduce.baselines import make_encoder_decoder
from transduce.bundle.arrays import SCALE_SUFFIX
from transduce.config import TransformerConfig
from transduce.errors import BundleError, UserError
from transduce.model import EncoderDecoder
from transduce.text import LONE_SURROGATE

_FORMER_CROSS_ATTENTION = ".memory_attention"
"""Part of tensor names in folders of format version 1."""


def collect_model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and running statistics of `model` by name; a shared tensor only under the first of its names.

    They are the model's own, not copies: writing into one changes the model.
    """
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors


def make_empty_model(config: TransformerConfig) -> EncoderDecoder:
    """A network on the CPU with uninitialised parameters in float32, for loading, whatever PyTorch's defaults are."""
    with torch.device("cpu"), _NoRandomValues():
        return make_encoder_decoder(config).float()


def make_empty_tensors(config: TransformerConfig) -> dict[str, Tensor]:
    """Tensors with the names, shapes and types of a network, without values: they take no memory."""
    with torch.device("meta"):
        return collect_model_tensors(make_encoder_decoder(config).float())


def count_parameters(config: TransformerConfig) -> int:
    """Number of trainable parameters of a network, which is not built; `sys.maxsize` if PyTorch cannot count so many.

    Shared matrices count once. All layers of a stack but the first are alike, so that one more of each is counted.
    """

    def count(num_encoder_layers: int, num_decoder_layers: int) -> int:
        layers = {"num_encoder_layers": num_encoder_layers, "num_decoder_layers": num_decoder_layers}
        with torch.device("meta"):
            return make_encoder_decoder(config.model_copy(update=layers)).num_parameters

    try:
        fewest = count(1, 1)
        of_encoder = (config.num_encoder_layers - 1) * (count(2, 1) - fewest)
        return fewest + of_encoder + (config.num_decoder_layers - 1) * (count(1, 2) - fewest)
    except RuntimeError:  # the size of a tensor in bytes is beyond 64 bits
        return sys.maxsize


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], origin: str) -> None:
    """Check that the tensors `found`, which are from `origin`, have the names, shapes and types of a model's.

    Raises:
        BundleError: they differ; names the first tensor that does.
    """
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise BundleError(
                f"{origin}: has no tensor {name!r}, which its model needs: these weights belong to another model"
            )
        if name not in expected:
            raise BundleError(
                f"{origin}: has a tensor {name!r}, which its model does not have: these weights belong to another model"
            )
        if _describe_tensor(found[name]) != _describe_tensor(expected[name]):
            raise BundleError(
                f"{origin}: {name!r} is {_describe_tensor(found[name])}, "
                f"its model needs {_describe_tensor(expected[name])}"
            )


@torch.no_grad()
def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copy `tensors` into `model`, all of them or none; shared tensors stay shared.

    Raises:
        BundleError: names, shapes or types are not the model's.
    """
    own = collect_model_tensors(model)
    check_tensors(tensors, own, origin)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def make_model(
    config: TransformerConfig, weights: Mapping[str, Tensor | npt.NDArray[np.float32]], origin: str
) -> EncoderDecoder:
    """The network with copies of these weights, ready to translate (evaluation mode).

    Raises:
        BundleError: names, shapes or types are not the network's.
    """
    model = make_empty_model(config)
    load_tensors(model, {name: torch.as_tensor(weight) for name, weight in weights.items()}, origin)
    return model.eval()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write `tensors` as a safetensors file."""
    # safetensors makes files that only their owner can read; a model is as readable as any other file.
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, metadata)
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU; read from the disk only where they are used.

    Matrices in int8 that have scales are multiplied by them, and are float32 then (see `bundle.arrays`). Tensors of
    earlier versions get their present names.

    Raises:
        BundleError: it is not a safetensors file, or matrices and scales do not match.
    """
    try:
        # It opens only paths that are UTF-8.
        tensors = load(path.read_bytes()) if LONE_SURROGATE.search(str(path)) else load_file(path)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{path}: cannot be read as safetensors: {error!s:.300}") from None
    for name in [name for name in tensors if name + SCALE_SUFFIX in tensors]:
        scales = tensors.pop(name + SCALE_SUFFIX)
        kinds = (tensors[name].dtype, tensors[name].dim(), scales.dtype)
        if kinds != (torch.int8, 2, torch.float32) or scales.shape != tensors[name].shape[:1]:
            raise BundleError(
                f"{path}: {name!r} is {_describe_tensor(tensors[name])}, and its scales are "
                f"{_describe_tensor(scales)}: they must be int8 [outputs, inputs] and float32 [outputs]"
            )
        tensors[name] = tensors[name].float() * scales[:, None]
    return {name.replace(_FORMER_CROSS_ATTENTION, ".cross_attention"): tensor for name, tensor in tensors.items()}


class _NoRandomValues(TorchFunctionMode):
    """Skips random initialisation, which takes longer than loading weights."""

    drawing = ("kaiming_uniform_", "normal_", "uniform_")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - the result of `func`
        given = kwargs or {}
        if getattr(func, "__name__", "") in self.drawing:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def _describe_tensor(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def average_weights(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, as the paper averages its last checkpoints (6.1).

    Sums are kept in float64. Integer tensors (counters) are the last model's. Models are read one at a time, so that a
    generator never holds all of them in memory.

    Raises:
        BundleError: names, shapes or types differ from the first model's.
        UserError: no model is given.
    """
    sums: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for count, tensors in enumerate(models, start=1):
        check_tensors(tensors, last or tensors, f"model {count} of those to average")
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                double = tensor.detach().to("cpu", torch.float64, copy=True)
                sums[name] = sums[name].add_(double) if name in sums else double
        last = tensors
    if not count:
        raise UserError("no weights to average: give at least one model")
    return {
        name: (sums[name] / count).to(tensor.dtype) if name in sums else tensor.detach().clone()
        for name, tensor in last.items()
    }
