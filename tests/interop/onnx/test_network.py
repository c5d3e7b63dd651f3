"""The graphs in ONNX Runtime against the model, whose whole-sentence decoding they take step by step."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.errors import MissingExtraError
from transduce.interop.onnx.network import (
    CONSTANT,
    Graph,
    Weights,
    build_decoder_step_graph,
    build_encoder_graph,
    list_cache_names,
    make_weights,
)
from transduce.model import KeysAndValues, Transformer

pytest.importorskip("onnx")

onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, np.ndarray]

STRUCTURES: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "num_decoder_layers": 3, "tied_embeddings": "two_way"},
    {"tied_embeddings": "none", "output_bias": True, "activation": "swish"},
    {"attention_score": "additive", "positions": "learned", "max_positions": 9},
    {"attention_score": "dot", "normalization": "batch", "positions": "none"},
    {"normalization": "batch", "norm_order": "pre", "activation": "gelu", "num_heads": 1},
    {"normalization": "rms", "norm_order": "pre"},
    {"feed_forward": "gated"},
    {"feed_forward": "gated", "activation": "swish"},
    {"positions": "rotary", "d_k": 6},
    {"normalization": "rms", "norm_order": "pre", "feed_forward": "gated", "positions": "rotary"},
    {"attention_score": "additive", "d_k": 5, "d_v": 3, "num_heads": 3, "output_bias": True},
]
# Of sentences in a batch.
LENGTHS = [(7,), (1, 1), (3, 9, 1, 6)]


class Graphs:
    def __init__(self, encoder: bytes, decoder_step: bytes) -> None:
        self.encoder, self.decoder_step = map(self.session, (encoder, decoder_step))

    @staticmethod
    def session(content: bytes) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    @staticmethod
    def run(session: Any, inputs: Arrays) -> Arrays:
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))

    def read(self, source_ids: Tensor) -> Arrays:
        return self.run(self.encoder, {"source_ids": source_ids.numpy()})

    def steps(self, memory: Arrays, target_ids: Tensor, pad_id: int) -> Iterator[np.ndarray]:
        """The log-probabilities of every token, given those before."""
        caches = [cache for cache in self.decoder_step.get_inputs() if cache.name.startswith("past")]
        rows, _ = target_ids.shape
        past = {cache.name: np.zeros((rows, cache.shape[1], 0, cache.shape[3]), np.float32) for cache in caches}
        last_ids = torch.full((rows,), pad_id)
        for next_ids in target_ids.T:
            found = self.run(self.decoder_step, {"last_ids": last_ids.numpy(), **memory, **past})
            yield found.pop("log_probabilities")
            past = {name.replace("present", "past"): value for name, value in found.items()}
            last_ids = next_ids


def graphs_of(model: Transformer, precision: str = "float32") -> Graphs:
    return Graphs(build_encoder_graph(model, precision), build_decoder_step_graph(model, precision))


def sources(model: Transformer, lengths: tuple[int, ...]) -> Tensor:
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(0, model.pad_id, (len(lengths), max(lengths)), generator=random)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], model.pad_id)


def targets(model: Transformer, rows: int, length: int) -> Tensor:
    return torch.randint(0, model.pad_id, (rows, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def with_statistics(model: Transformer) -> Transformer:
    """The running statistics of batch normalisation as they are in training, so that it normalises."""
    model.train()
    for _ in range(20 if model.config.normalization == "batch" else 0):
        source_ids, target_ids = sources(model, (9,) * 8), targets(model, 8, 9)
        model(source_ids, source_ids != model.pad_id, target_ids, torch.ones_like(target_ids).bool())
    return model.eval()


@torch.no_grad()
def expected(model: Transformer, source_ids: Tensor, target_ids: Tensor) -> np.ndarray:
    real = torch.ones_like(target_ids).bool()
    found: np.ndarray = model(source_ids, source_ids != model.pad_id, target_ids, real).log_softmax(-1).numpy()
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", STRUCTURES, ids=str)
def test_equals_the_model_for_every_structure_and_shape(
    random_model: Callable[..., Transformer], settings: dict[str, Any]
) -> None:
    model = with_statistics(random_model(**settings))
    graphs, exact_model = graphs_of(model), copy.deepcopy(model).double()
    for lengths in LENGTHS:
        source_ids = sources(model, lengths)
        memory = graphs.read(source_ids)
        assert np.array_equal(memory["source_mask"], (source_ids != model.pad_id).numpy())
        for width in (1, 3):
            target_ids = targets(model, len(lengths) * width, 9)
            sentences = source_ids.repeat_interleave(width, dim=0), target_ids
            exact = expected(exact_model, *sentences)[..., :-1]
            # Some structures, as products of queries and keys that are not scaled, make much of a rounding error: the
            # model's own result in float32 is then as far from what its formula says.
            tolerance = max(1e-5, 4 * np.abs(expected(model, *sentences)[..., :-1] - exact).max())
            for place, found in enumerate(graphs.steps(memory, target_ids, model.pad_id)):
                assert np.isneginf(found[:, -1]).all()
                assert np.abs(found[:, :-1] - exact[:, place]).max() <= tolerance


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_positions_have_no_end(random_model: Callable[..., Transformer], positions: str) -> None:
    model = random_model(num_encoder_layers=1, positions=positions)
    graphs = graphs_of(model)
    source_ids = sources(model, (1500,))
    mask = torch.ones_like(source_ids).bool()
    with torch.no_grad():
        state = model.start(model.encode(source_ids, mask), mask)
    memory = graphs.read(source_ids)
    for ours, names in zip(state.memory, list_cache_names("memory", 1), strict=True):
        for tensor, name in zip(ours, names, strict=True):
            assert np.allclose(memory[name], tensor.numpy(), atol=1e-5, rtol=0)

    length = 50_000
    random = torch.Generator().manual_seed(1)
    past = KeysAndValues(*(torch.randn(1, 2, length, 8, generator=random) for _ in range(2)))
    with torch.no_grad():
        logits, _ = model.decode_step(torch.tensor([5]), type(state)(state.memory, (past,), mask, length))
    given = dict(zip(*list_cache_names("past", 1), map(Tensor.numpy, past), strict=True))
    found = graphs.run(graphs.decoder_step, {"last_ids": np.array([5]), **memory, **given})
    assert np.allclose(found["log_probabilities"], logits.log_softmax(-1).numpy(), atol=1e-5, rtol=0)


def test_learned_positions_end_with_an_error(random_model: Callable[..., Transformer]) -> None:
    model = random_model(positions="learned", max_positions=4)
    graphs = graphs_of(model)
    with pytest.raises(Exception, match="broadcast an axis"):
        graphs.read(sources(model, (5,)))
    memory = graphs.read(sources(model, (4,)))
    with pytest.raises(Exception, match="out of data bounds"):
        list(graphs.steps(memory, targets(model, 1, 5), model.pad_id))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_smaller_weights_are_close_and_pad_is_still_nothing(
    random_model: Callable[..., Transformer], precision: str
) -> None:
    model = random_model(output_bias=True)
    rough, exact = graphs_of(model, precision), graphs_of(model)
    source_ids, target_ids = sources(model, (3, 9, 1, 6)), targets(model, 4, 9)
    memory = rough.read(source_ids)
    pairs = zip(
        rough.steps(memory, target_ids, model.pad_id),
        exact.steps(exact.read(source_ids), target_ids, model.pad_id),
        strict=True,
    )
    differences = np.concatenate([found[:, :-1] - wanted[:, :-1] for found, wanted in pairs])
    assert 1e-5 < np.abs(differences).mean() < {"float16": 5e-3, "int8": 0.1}[precision]
    assert all(np.isneginf(found[:, -1]).all() for found in rough.steps(memory, target_ids, model.pad_id))


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_the_same_model_gives_the_same_bytes(random_model: Callable[..., Transformer], precision: str) -> None:
    first, second = (
        (build_encoder_graph(model, precision), build_decoder_step_graph(model, precision))
        for model in (random_model(), random_model())
    )
    assert first == second


def test_smaller_weights_make_smaller_files(random_model: Callable[..., Transformer]) -> None:
    model = random_model(d_model=64, d_ff=256)
    sizes = [len(build_encoder_graph(model, precision)) for precision in ("float32", "float16", "int8")]
    assert sizes[1] < 0.6 * sizes[0]
    assert sizes[2] < 0.4 * sizes[0]


onnx = pytest.importorskip("onnx")


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
    found = weights.add_gather(graph.input("ids", np.int64, ["rows"]), weight)
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
    product = make_weights(graph, precision).add_matmul(
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
    graph.output(weights.add_gather(ids, weight), "found", np.float32, [2, 16])
    graph.output(weights.add_matmul(x, weight, bias), "product", np.float32, [2, 7])
    initializers = onnx.load_from_string(graph.to_bytes("")).graph.initializer
    return {one.name: onnx.numpy_helper.to_array(one) for one in initializers}


def test_a_matrix_is_kept_once_in_its_precision(weight: torch.nn.Parameter) -> None:
    for precision, dtype in (("float32", np.float32), ("float16", np.float16), ("int8", np.uint8)):
        arrays = kept(precision, weight)
        assert [name for name, array in arrays.items() if array.size == weight.numel()] == ["weight"]
        assert arrays["weight"].dtype == dtype
    assert np.array_equal(kept("float32", weight)["weight"], weight.detach().numpy())
