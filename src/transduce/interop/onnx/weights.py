"""Products with the weights of a model in an ONNX graph, kept in 32, 16 or 8 bits."""

from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from transduce.interop.onnx.graph import Graph, values_of

_ZERO = 128
"""The byte that stands for 0: products of signed bytes overflow on processors without instructions for them."""


@runtime_checkable
class Weights(Protocol):
    """How matrices are kept; what is small, vectors above all, is in float32 always."""

    def product(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """The `inputs` [positions, width] times W^T, plus b; with some rows of W if not with all."""
        ...

    def lookup(self, ids: str, weight: Tensor) -> str:
        """The row of W for each of `ids`, in float32."""
        ...


class FloatWeights:
    """Matrices in float32; or in float16, to be widened when the model is loaded: all is computed in float32."""

    def __init__(self, graph: Graph, dtype: type[np.floating]) -> None:
        self._graph, self._dtype = graph, dtype

    def product(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """See `Weights`."""
        return self._graph.operation("Gemm", inputs, self._wide(self._matrix(weight, rows)), bias, transB=1)

    def lookup(self, ids: str, weight: Tensor) -> str:
        """See `Weights`."""
        return self._wide(self._graph.operation("Gather", self._matrix(weight), ids))

    def _matrix(self, weight: Tensor, rows: slice | None = None) -> str:
        numbers = values_of(weight, rows).astype(self._dtype, copy=False)
        return self._graph.initializer(self._graph.name_of(weight, rows), numbers)

    def _wide(self, value: str) -> str:
        return value if self._dtype is np.float32 else self._graph.cast(value, np.float32)


class IntegerWeights:
    """Matrices in bytes, with a scale for each row; what they are multiplied with is rounded to bytes, too.

    All inputs of a product have one scale, that of the largest: a translation depends, a little, on its batch.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def product(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """See `Weights`. The order of operations is the one that ONNX Runtime computes in one piece."""
        graph = self._graph
        matrix, scale = self._matrix(weight, rows)
        rounded, input_scale, input_zero = graph.operations("DynamicQuantizeLinear", inputs, num_results=3)
        columns = graph.operation("Transpose", matrix, perm=[1, 0])
        total = graph.operation("MatMulInteger", rounded, columns, input_zero, graph.constant(_ZERO, np.uint8))
        scales = graph.operation("Mul", input_scale, scale)
        return graph.operation("Add", graph.operation("Mul", graph.cast(total, np.float32), scales), bias)

    def lookup(self, ids: str, weight: Tensor) -> str:
        """See `Weights`."""
        graph = self._graph
        matrix, scale = self._matrix(weight)
        bytes_found = graph.cast(graph.operation("Gather", matrix, ids), np.float32)
        centred = graph.operation("Sub", bytes_found, graph.constant(_ZERO, np.float32))
        scales = graph.operation("Unsqueeze", graph.operation("Gather", scale, ids), graph.constant([-1], np.int64))
        return graph.operation("Mul", centred, scales)

    def _matrix(self, weight: Tensor, rows: slice | None = None) -> tuple[str, str]:
        exact = values_of(weight, rows)
        scale = np.abs(exact).max(axis=1).clip(min=np.finfo(np.float32).tiny) / np.float32(127)
        rounded = (np.rint(exact / scale[:, None]) + _ZERO).astype(np.uint8)
        name = self._graph.name_of(weight, rows)
        return self._graph.initializer(name, rounded), self._graph.initializer(f"{name}.scale", scale)


def make_weights(graph: Graph, precision: str) -> Weights:
    """Those of `precision`: float32, float16 or int8."""
    if precision == "int8":
        return IntegerWeights(graph)
    return FloatWeights(graph, np.float16 if precision == "float16" else np.float32)
