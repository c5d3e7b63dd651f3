from typing import Any

import numpy as np
import pytest
import torch

from transduce.errors import MissingExtraError
from transduce.interop.onnx.graph import CONSTANT, Graph, Weights, make_weights

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def opened(graph: Graph) -> Any:
    return onnx.load_from_string(graph.to_bytes("a test"))


def test_operations_give_each_other_names_and_outputs_have_their_own() -> None:
    graph = Graph("sum", {})
    x = graph.input("x", np.float32, ["rows", 2])
    first, second = graph.operations("Split", x, num_results=2, axis=1)
    total = graph.operation("Add", first, graph.operation("Mul", second, graph.constant([10], np.float32)))
    twice = graph.operation("Add", total, total)
    graph.output(total, "total", np.float32, ["rows", 1])
    graph.output(twice, "twice", np.float32, ["rows", 1])
    session = onnxruntime.InferenceSession(graph.to_bytes("a test"), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["rows", 2]
    found = session.run(["total", "twice"], {"x": np.array([[1, 2], [3, 4]], np.float32)})
    assert [part.tolist() for part in found] == [[[21], [43]], [[42], [86]]]
    assert not [node for node in opened(graph).graph.node if node.op_type == "Identity"]


def test_weights_have_the_names_of_the_bundle_and_are_kept_once() -> None:
    weight = torch.nn.Parameter(torch.arange(6.0).view(3, 2))
    graph = Graph("weights", {"a.weight": weight})
    whole = graph.weight(weight)
    assert graph.weight(weight) == whole == "a.weight"
    rows = graph.weight(weight, slice(1, 3))
    graph.output(graph.operation("Gemm", rows, whole, transB=1), "product", np.float32, [2, 3])
    initializers = {one.name: onnx.numpy_helper.to_array(one).tolist() for one in opened(graph).graph.initializer}
    assert initializers == {"a.weight": [[0, 1], [2, 3], [4, 5]], "a.weight[1:3]": [[2, 3], [4, 5]]}


def test_constants_are_told_from_weights() -> None:
    graph = Graph("constants", {})
    names = [graph.constant(value, np.int64) for value in ([1, 2], 3)]
    assert all(name.startswith(CONSTANT) for name in names)
    assert len(set(names)) == 2


def test_a_wrong_graph_is_noticed() -> None:
    graph = Graph("wrong", {})
    x = graph.input("x", np.float32, [2, 3])
    graph.output(graph.operation("MatMul", x, x), "y", np.float32, [2, 3])
    with pytest.raises(onnx.shape_inference.InferenceError, match="MatMul"):
        graph.to_bytes("")


def test_without_onnx_the_message_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'transduce\[onnx\]'"):
        Graph("none", {})


# Of the largest number of a row, or of the inputs.
STEPS = {"float32": 0.0, "float16": 2**-11, "int8": 1 / 254}


@pytest.fixture
def weight() -> torch.nn.Parameter:
    weight = torch.randn(7, 16, generator=torch.Generator().manual_seed(1)) * torch.arange(7.0)[:, None] ** 3
    return torch.nn.Parameter(weight)


def run(graph: Graph, **inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(graph.to_bytes(""), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, inputs)[0]
    return found


@pytest.mark.parametrize("precision", STEPS)
def test_rows_are_looked_up(weight: torch.nn.Parameter, precision: str) -> None:
    graph = Graph("lookup", {"weight": weight})
    weights = make_weights(graph, precision)
    assert isinstance(weights, Weights)
    found = weights.lookup(graph.input("ids", np.int64, ["rows"]), weight)
    graph.output(found, "found", np.float32, ["rows", 16])
    exact = weight.detach().numpy()
    rows = run(graph, ids=np.array([6, 0, 2]))
    assert not rows[1].any()  # the row of zeros, as <pad> has it
    step = STEPS[precision] * np.abs(exact[[6, 0, 2]]).max(axis=1, keepdims=True)
    assert (np.abs(rows - exact[[6, 0, 2]]) <= step * 1.001).all()


@pytest.mark.parametrize("rows", [None, slice(2, 7)])
@pytest.mark.parametrize("precision", STEPS)
def test_products(weight: torch.nn.Parameter, precision: str, rows: slice | None) -> None:
    graph = Graph("product", {"weight": weight})
    exact = weight.detach().numpy()[rows or slice(None)]
    bias = np.arange(len(exact), dtype=np.float32)
    x = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    product = make_weights(graph, precision).product(
        graph.input("x", np.float32, ["rows", 16]), weight, graph.constant(bias, np.float32), rows
    )
    graph.output(product, "product", np.float32, ["rows", len(exact)])
    found, wanted = run(graph, x=x), x @ exact.T + bias
    # What rounding can do at most: 16 products, each of two rounded numbers.
    step = STEPS[precision] * np.abs(exact).max(axis=1)
    input_step = (np.ptp(x) / 510 if precision == "int8" else 0.0) * 1.001
    most = np.abs(x).sum(axis=1)[:, None] * step + (np.abs(exact).sum(axis=1) + 16 * step) * input_step
    assert (np.abs(found - wanted) <= most + 1e-4).all()


def kept(precision: str, weight: torch.nn.Parameter) -> dict[str, Any]:
    graph = Graph("kept", {"weight": weight})
    weights = make_weights(graph, precision)
    ids, x = graph.input("ids", np.int64, [2]), graph.input("x", np.float32, [2, 16])
    bias = graph.constant(np.zeros(7), np.float32)
    graph.output(weights.lookup(ids, weight), "found", np.float32, [2, 16])
    graph.output(weights.product(x, weight, bias), "product", np.float32, [2, 7])
    initializers = onnx.load_from_string(graph.to_bytes("")).graph.initializer
    return {one.name: onnx.numpy_helper.to_array(one) for one in initializers}


def test_a_matrix_is_kept_once_in_its_precision(weight: torch.nn.Parameter) -> None:
    for precision, dtype in (("float32", np.float32), ("float16", np.float16), ("int8", np.uint8)):
        arrays = kept(precision, weight)
        assert [name for name, array in arrays.items() if array.size == weight.numel()] == ["weight"]
        assert arrays["weight"].dtype == dtype
    assert np.array_equal(kept("float32", weight)["weight"], weight.detach().numpy())
