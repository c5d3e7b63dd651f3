from typing import Any

import numpy as np
import pytest
import torch

from transduce.errors import MissingExtraError
from transduce.interop.onnx.graph import CONSTANT, Graph

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
