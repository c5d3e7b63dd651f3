"""ONNX graphs, built operation by operation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transduce import __version__
from transduce.interop.onnx.package import import_onnx

OPSET = 17
"""Version of ONNX's operators: the first with LayerNormalization."""

IR_VERSION = 8
"""Version of the file format that belongs to it."""

CONSTANT = "constant."
"""What the names of numbers begin with that are no weights."""

Array = NDArray[Any]
Type = type[np.generic]


class Graph:
    """A graph in the making. Values go by their names: an operation adds a node and returns the name of its result.

    Args:
        name: of the graph.
        weights: the model's tensors by their names in a bundle, which their initializers have, too.

    Raises:
        MissingExtraError: ONNX is not installed.
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
        """An input; an axis is a size or, where it may have any, what it counts."""
        self._inputs.append(self._described(name, dtype, axes))
        return name

    def output(self, value: str, name: str, dtype: Type, axes: Sequence[str | int]) -> None:
        """Hands the result `value` out, which is called `name` from then on."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [name if one == value else one for one in names]
        self._outputs.append(self._described(name, dtype, axes))

    def operation(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 - as the operator has them
        """The result of an operator of ONNX, whose specification says which attributes it has."""
        (result,) = self.operations(operator, *inputs, num_results=1, **attributes)
        return result

    def operations(self, operator: str, *inputs: str, num_results: int, **attributes: Any) -> list[str]:  # noqa: ANN401 - likewise
        """The results of an operator that has several."""
        name = f"{operator}_{len(self._nodes)}"
        results = [name] if num_results == 1 else [f"{name}.{number}" for number in range(num_results)]
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, results, name=name, **attributes))
        return results

    def cast(self, value: str, dtype: Type) -> str:
        """The same numbers in another type."""
        return self.operation("Cast", value, to=self._number_of(dtype))

    def constant(self, value: Any, dtype: Type) -> str:  # noqa: ANN401 - whatever numpy makes an array of
        """Numbers that belong to the formulas."""
        return self.initializer(f"{CONSTANT}{len(self._initializers)}", np.asarray(value, dtype))

    def name_of(self, weight: Tensor, rows: slice | None = None) -> str:
        """What a weight is called in the bundle; of some of its rows, with their numbers behind the name."""
        name = self._weight_names[id(weight)]
        return name if rows is None else f"{name}[{rows.start}:{rows.stop}]"

    def weight(self, weight: Tensor, rows: slice | None = None) -> str:
        """A weight of the model, or some of its rows, as they are."""
        return self.initializer(self.name_of(weight, rows), values_of(weight, rows))

    def initializer(self, name: str, array: Array) -> str:
        """Numbers that the file keeps under `name`, once."""
        if name not in self._initializers:
            self._initializers[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def to_bytes(self, description: str) -> bytes:
        """The file, after ONNX's own checker has read it; the same for the same graph."""
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

    def _described(self, name: str, dtype: Type, axes: Sequence[str | int]) -> Any:  # noqa: ANN401 - ONNX's message
        return self._onnx.helper.make_tensor_value_info(name, self._number_of(dtype), list(axes))

    def _number_of(self, dtype: Type) -> int:
        number: int = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return number


def values_of(weight: Tensor, rows: slice | None = None) -> Array:
    """The numbers of a weight, or of some of its rows."""
    kept: Array = (weight if rows is None else weight[rows]).detach().numpy()
    return kept
