"""ONNX graphs, built operation by operation, with weights in 32, 16 or 8 bits."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transduce import __version__
from transduce.errors import MissingExtraError


def import_onnx(purpose: str) -> ModuleType:
    """Import the optional package `onnx`; `purpose` says in the error what needs it."""
    try:
        import onnx  # noqa: PLC0415 - optional
        import onnx.checker  # noqa: PLC0415
        import onnx.helper  # noqa: PLC0415
        import onnx.numpy_helper  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("onnx", "onnx", purpose) from None
    package: ModuleType = onnx
    return package


OPSET = 17
"""Version of ONNX's operators: the first with LayerNormalization."""

IR_VERSION = 8
"""Version of the file format that belongs to it."""

CONSTANT = "constant."
"""The beginning of the names of numbers that are no weights."""

Array = NDArray[Any]
Type = type[np.generic]


class Graph:
    """A builder of a graph. Values are named: an operation adds a node and returns the name of its result.

    Args:
        name: the name of the graph.
        weights: the model's tensors by their names in a bundle, which are those of their initializers.
    """

    def __init__(self, name: str, weights: Mapping[str, Tensor]) -> None:
        self._onnx = import_onnx("exporting to ONNX")
        self._name = name
        self._weight_names = {id(tensor): name for name, tensor in weights.items()}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._nodes: list[Any] = []

    def input(self, name: str, dtype: Type, axes: Sequence[str | int]) -> str:
        """Add an input; an axis is a size, or the name of an axis of any size."""
        self._inputs.append(self._describe_value(name, dtype, axes))
        return name

    def output(self, value: str, name: str, dtype: Type, axes: Sequence[str | int]) -> None:
        """Make the result `value` an output, and rename it to `name`."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [name if one == value else one for one in names]
        self._outputs.append(self._describe_value(name, dtype, axes))

    def operation(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 - as the operator has them
        """Add an operator of ONNX with one result."""
        (result,) = self.operations(operator, *inputs, num_results=1, **attributes)
        return result

    def operations(self, operator: str, *inputs: str, num_results: int, **attributes: Any) -> list[str]:  # noqa: ANN401 - likewise
        """Add an operator of ONNX with several results."""
        name = f"{operator}_{len(self._nodes)}"
        results = [name] if num_results == 1 else [f"{name}.{number}" for number in range(num_results)]
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, results, name=name, **attributes))
        return results

    def cast(self, value: str, dtype: Type) -> str:
        """Convert numbers to another type."""
        return self.operation("Cast", value, to=self._type_number(dtype))

    def constant(self, value: Any, dtype: Type) -> str:  # noqa: ANN401 - whatever numpy makes an array of
        """Add numbers of a formula."""
        return self.initializer(f"{CONSTANT}{len(self._initializers)}", np.asarray(value, dtype))

    def name_of(self, weight: Tensor, rows: slice | None = None) -> str:
        """The name of a weight in the bundle, followed by the numbers of its rows if there are only some."""
        name = self._weight_names[id(weight)]
        return name if rows is None else f"{name}[{rows.start}:{rows.stop}]"

    def weight(self, weight: Tensor, rows: slice | None = None) -> str:
        """Add a weight of the model, or some of its rows, in float32."""
        return self.initializer(self.name_of(weight, rows), to_numpy(weight, rows))

    def initializer(self, name: str, array: Array) -> str:
        """Add numbers that the file keeps under `name`, once."""
        if name not in self._initializers:
            self._initializers[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def to_bytes(self, description: str) -> bytes:
        """The content of the file, checked by ONNX's own checker; deterministic."""
        helper = self._onnx.helper
        initializers = list(self._initializers.values())
        model = helper.make_model(
            helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, initializers, description),
            producer_name="transduce",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        self._onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _describe_value(self, name: str, dtype: Type, axes: Sequence[str | int]) -> Any:  # noqa: ANN401 - ONNX's message
        return self._onnx.helper.make_tensor_value_info(name, self._type_number(dtype), list(axes))

    def _type_number(self, dtype: Type) -> int:
        number: int = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return number


def to_numpy(weight: Tensor, rows: slice | None = None) -> Array:
    """The numbers of a weight, or of some of its rows."""
    kept: Array = (weight if rows is None else weight[rows]).detach().numpy()
    return kept


_ZERO = 128
"""The byte that stands for 0: products of signed bytes overflow on processors without instructions for them."""


@runtime_checkable
class Weights(Protocol):
    """The way to keep matrices; vectors are always in float32."""

    def product(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """`inputs` [positions, width] times W^T, plus b; with all rows of W or some."""
        ...

    def lookup(self, ids: str, weight: Tensor) -> str:
        """The row of W for each of `ids`, in float32."""
        ...


class FloatWeights:
    """Matrices in float32, or in float16 and converted when the model is loaded; all is computed in float32."""

    def __init__(self, graph: Graph, dtype: type[np.floating]) -> None:
        self._graph, self._dtype = graph, dtype

    def product(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        return self._graph.operation("Gemm", inputs, self._wide(self._matrix(weight, rows)), bias, transB=1)

    def lookup(self, ids: str, weight: Tensor) -> str:
        return self._wide(self._graph.operation("Gather", self._matrix(weight), ids))

    def _matrix(self, weight: Tensor, rows: slice | None = None) -> str:
        numbers = to_numpy(weight, rows).astype(self._dtype, copy=False)
        return self._graph.initializer(self._graph.name_of(weight, rows), numbers)

    def _wide(self, value: str) -> str:
        return value if self._dtype is np.float32 else self._graph.cast(value, np.float32)


class IntegerWeights:
    """Matrices in bytes, with a scale for each row; the inputs of products are rounded to bytes, too.

    All inputs of a product share the scale of the largest: a translation depends, a little, on its batch.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def product(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """The order of operations is the one that ONNX Runtime computes in one piece."""
        graph = self._graph
        matrix, scale = self._matrix(weight, rows)
        rounded, input_scale, input_zero = graph.operations("DynamicQuantizeLinear", inputs, num_results=3)
        columns = graph.operation("Transpose", matrix, perm=[1, 0])
        total = graph.operation("MatMulInteger", rounded, columns, input_zero, graph.constant(_ZERO, np.uint8))
        scales = graph.operation("Mul", input_scale, scale)
        return graph.operation("Add", graph.operation("Mul", graph.cast(total, np.float32), scales), bias)

    def lookup(self, ids: str, weight: Tensor) -> str:
        graph = self._graph
        matrix, scale = self._matrix(weight)
        bytes_found = graph.cast(graph.operation("Gather", matrix, ids), np.float32)
        centred = graph.operation("Sub", bytes_found, graph.constant(_ZERO, np.float32))
        scales = graph.operation("Unsqueeze", graph.operation("Gather", scale, ids), graph.constant([-1], np.int64))
        return graph.operation("Mul", centred, scales)

    def _matrix(self, weight: Tensor, rows: slice | None = None) -> tuple[str, str]:
        exact = to_numpy(weight, rows)
        scale = np.abs(exact).max(axis=1).clip(min=np.finfo(np.float32).tiny) / np.float32(127)
        rounded = (np.rint(exact / scale[:, None]) + _ZERO).astype(np.uint8)
        name = self._graph.name_of(weight, rows)
        return self._graph.initializer(name, rounded), self._graph.initializer(f"{name}.scale", scale)


def make_weights(graph: Graph, precision: str) -> Weights:
    """The weights of a graph in `precision`: float32, float16 or int8."""
    if precision == "int8":
        return IntegerWeights(graph)
    return FloatWeights(graph, np.float16 if precision == "float16" else np.float32)
