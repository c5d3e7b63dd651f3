"""The Transformer as two ONNX graphs: an encoder, and a decoder step that extends targets by one token.

Axes: `sentences` of `source` positions, and `rows` of targets with `past` positions. The rows are the hypotheses of one
sentence after the other: as many rows as sentences, or several times as many.

Every function of `Layers` adds operations to a graph and returns the name of their result, by the formulas of `model/`.
`x` is always [positions, d_model] with the positions of one sentence after the other; `sentences`, [1], is their count.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce import __version__
from transduce.bundle import collect_model_tensors
from transduce.config import TransformerConfig
from transduce.interop.formats import import_optional
from transduce.kernels.linear import Linear
from transduce.model import (
    AdditiveScore,
    DecoderLayer,
    DotScore,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    ResidualConnection,
    RMSNormalization,
    TokenEmbedding,
    Transformer,
)
from transduce.model.attention import AttentionScore
from transduce.model.embeddings import Positions
from transduce.model.sublayers import ACTIVATIONS, EPSILON, Normalization

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
        opset: version of ONNX's operators.
    """

    def __init__(self, name: str, weights: Mapping[str, Tensor], opset: int = OPSET) -> None:
        self._onnx = import_optional("onnx", "writing an ONNX graph")
        self._name, self._opset = name, opset
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

    def to_bytes(self, description: str, metadata: Mapping[str, str] | None = None) -> bytes:
        """The content of the file, checked by ONNX's own checker; deterministic."""
        helper = self._onnx.helper
        initializers = list(self._initializers.values())
        model = helper.make_model(
            helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, initializers, description),
            producer_name="transduce",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", self._opset)],
        )
        helper.set_model_props(model, dict(metadata or {}))
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


ZERO = 128
"""The byte that stands for 0: products of signed bytes overflow on processors without instructions for them."""

SCALE = ".scale"
"""Suffix of the name of a tensor with the scales of a matrix in bytes, one for each row: the matrix "projection.weight"
has "projection.weight.scale"."""


class FloatWeights:
    """Matrices in float32, or in float16 and converted when the model is loaded; all is computed in float32."""

    def __init__(self, graph: Graph, dtype: type[np.floating]) -> None:
        self._graph, self._dtype = graph, dtype

    def add_matmul(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """`inputs` [positions, width] times W^T, plus b; with all rows of W or some."""
        return self._graph.operation("Gemm", inputs, self._add_float32_cast(self._matrix(weight, rows)), bias, transB=1)

    def add_gather(self, ids: str, weight: Tensor) -> str:
        """The row of W for each of `ids`, in float32."""
        return self._add_float32_cast(self._graph.operation("Gather", self._matrix(weight), ids))

    def _matrix(self, weight: Tensor, rows: slice | None = None) -> str:
        numbers = to_numpy(weight, rows).astype(self._dtype, copy=False)
        return self._graph.initializer(self._graph.name_of(weight, rows), numbers)

    def _add_float32_cast(self, value: str) -> str:
        return value if self._dtype is np.float32 else self._graph.cast(value, np.float32)


class IntegerWeights:
    """Matrices in bytes, with a scale for each row; the inputs of products are rounded to bytes, too.

    All inputs of a product share the scale of the largest: a translation depends, a little, on its batch.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def add_matmul(self, inputs: str, weight: Tensor, bias: str, rows: slice | None = None) -> str:
        """As in `FloatWeights`; the order of operations is the one that ONNX Runtime computes in one piece."""
        graph = self._graph
        matrix, scale = self._matrix(weight, rows)
        rounded, input_scale, input_zero = graph.operations("DynamicQuantizeLinear", inputs, num_results=3)
        columns = graph.operation("Transpose", matrix, perm=[1, 0])
        total = graph.operation("MatMulInteger", rounded, columns, input_zero, graph.constant(ZERO, np.uint8))
        scales = graph.operation("Mul", input_scale, scale)
        return graph.operation("Add", graph.operation("Mul", graph.cast(total, np.float32), scales), bias)

    def add_gather(self, ids: str, weight: Tensor) -> str:
        graph = self._graph
        matrix, scale = self._matrix(weight)
        bytes_found = graph.cast(graph.operation("Gather", matrix, ids), np.float32)
        centred = graph.operation("Sub", bytes_found, graph.constant(ZERO, np.float32))
        scales = graph.operation("Unsqueeze", graph.operation("Gather", scale, ids), graph.constant([-1], np.int64))
        return graph.operation("Mul", centred, scales)

    def _matrix(self, weight: Tensor, rows: slice | None = None) -> tuple[str, str]:
        exact = to_numpy(weight, rows)
        scale = np.abs(exact).max(axis=1).clip(min=np.finfo(np.float32).tiny) / np.float32(127)
        rounded = (np.rint(exact / scale[:, None]) + ZERO).astype(np.uint8)
        name = self._graph.name_of(weight, rows)
        return self._graph.initializer(name, rounded), self._graph.initializer(f"{name}{SCALE}", scale)


Weights = FloatWeights | IntegerWeights
"""The ways to keep matrices; vectors are always in float32."""


def make_weights(graph: Graph, precision: str) -> Weights:
    """The weights of a graph in `precision`: float32, float16 or int8."""
    if precision == "int8":
        return IntegerWeights(graph)
    return FloatWeights(graph, np.float16 if precision == "float16" else np.float32)


class Layers:
    """Adds the parts of a model to `graph`, and their `weights` with them."""

    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph = graph
        self.weights = weights

    def size(self, value: str, axis: int) -> str:
        """The size of an axis, [1]."""
        return self.graph.operation("Shape", value, start=axis, end=axis + 1)

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Add axes of size 1."""
        return self.graph.operation("Unsqueeze", value, self.graph.constant(axes, np.int64))

    def linear(self, linear: Linear, x: str, rows: slice | None = None) -> str:
        return self.weights.add_matmul(x, linear.weight, self.graph.weight(linear.bias, rows), rows)

    def embed(self, embedding: TokenEmbedding, positions: Positions, ids: str, places: str) -> str:
        """The embedding of each of `ids`, [..., length], and what marks their positions `places`, [length] or [1]."""
        graph = self.graph
        scale = graph.constant(embedding.scale, np.float32)
        embedded = graph.operation("Mul", self.weights.add_gather(ids, embedding.weight), scale)
        match positions:
            case NoPositions():
                return embedded
            case LearnedPositions():  # beyond the last row the runtime raises an error
                marks = graph.operation("Gather", graph.weight(positions.table), places)
            case _:
                marks = self._add_sinusoids(places, positions.table.size(1))
        return graph.operation("Add", embedded, marks)

    def _add_sinusoids(self, places: str, d_model: int) -> str:
        """Add nodes that compute sinusoids (paper 3.5), [length, d_model], for the position numbers `places`, [length].

        They compute in float64 and return float32.
        """
        graph = self.graph
        periods = 10_000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        position = self.unsqueeze(graph.cast(places, np.float64), -1)
        angle = graph.operation("Div", position, graph.constant(periods.numpy(), np.float64))
        pairs = [self.unsqueeze(graph.operation(function, angle), -1) for function in ("Sin", "Cos")]
        return graph.cast(self.reshape(graph.operation("Concat", *pairs, axis=-1), -1, d_model), np.float32)

    def normalize(self, normalization: Normalization, x: str) -> str:
        """Layer or RMS normalisation, or batch normalisation by the running statistics, as in evaluation."""
        graph = self.graph
        gain = graph.weight(normalization.gain)
        if isinstance(normalization, RMSNormalization):
            mean_square = graph.operation("ReduceMean", graph.operation("Mul", x, x), axes=[-1])
            root = graph.operation("Sqrt", graph.operation("Add", mean_square, graph.constant(EPSILON, np.float32)))
            return graph.operation("Mul", graph.operation("Div", x, root), gain)
        bias = graph.weight(normalization.bias)
        if isinstance(normalization, LayerNormalization):
            return graph.operation("LayerNormalization", x, gain, bias, epsilon=EPSILON)
        epsilon = graph.constant(EPSILON, np.float32)
        variance = graph.operation("Add", graph.weight(normalization.running_variance), epsilon)
        centred = graph.operation("Sub", x, graph.weight(normalization.running_mean))
        standard = graph.operation("Div", centred, graph.operation("Sqrt", variance))
        return graph.operation("Add", graph.operation("Mul", standard, gain), bias)

    def residual(self, connection: ResidualConnection, x: str, sublayer: Callable[[str], str]) -> str:
        if connection.post:
            return self.normalize(connection.normalization, self.graph.operation("Add", x, sublayer(x)))
        return self.graph.operation("Add", x, sublayer(self.normalize(connection.normalization, x)))

    def feed_forward(self, network: FeedForward | GatedFeedForward, x: str) -> str:
        hidden = self._activate(network, self.linear(network.inner, x))
        if isinstance(network, GatedFeedForward):
            hidden = self.graph.operation("Mul", hidden, self.linear(network.gate, x))
        return self.linear(network.outer, hidden)

    def _activate(self, network: FeedForward | GatedFeedForward, x: str) -> str:
        graph = self.graph
        if network.activation is ACTIVATIONS["relu"]:
            return graph.operation("Relu", x)
        if network.activation is ACTIVATIONS["swish"]:
            return graph.operation("Mul", x, graph.operation("Sigmoid", x))
        # gelu: x/2 (1 + erf(x/√2))
        error = graph.operation("Erf", graph.operation("Div", x, graph.constant(math.sqrt(2), np.float32)))
        both = graph.operation("Mul", x, graph.operation("Add", error, graph.constant(1, np.float32)))
        return graph.operation("Mul", both, graph.constant(0.5, np.float32))

    def project(self, attention: MultiHeadAttention, x: str, sentences: str, places: str) -> list[str]:
        """Queries, keys and values of every head, [sentences, heads, length, width], at positions `places`."""
        projected, widths = self.linear(attention.projection, x), (attention.d_k, attention.d_k, attention.d_v)
        queries, keys, values = self._split_heads(attention, projected, sentences, *widths)
        if attention.rotary_positions is not None:
            sinusoids = self._add_sinusoids(places, attention.d_k)
            queries, keys = (self._turn(part, sinusoids) for part in (queries, keys))
        return [queries, keys, values]

    def _turn(self, vectors: str, sinusoids: str) -> str:
        """Vectors of every head, [sentences, heads, length, d_k], as `RotaryPositions` turns them."""
        graph = self.graph

        def split_pairs(value: str) -> list[str]:
            end, axis, step = (graph.constant([number], np.int64) for number in (2**31 - 1, -1, 2))
            return [graph.operation("Slice", value, graph.constant([at], np.int64), end, axis, step) for at in (0, 1)]

        (even, odd), (sines, cosines) = split_pairs(vectors), split_pairs(sinusoids)

        def multiply(value: str, factor: str) -> str:
            return graph.operation("Mul", value, factor)

        turned = (
            graph.operation("Sub", multiply(even, cosines), multiply(odd, sines)),
            graph.operation("Add", multiply(odd, cosines), multiply(even, sines)),
        )
        pairs = graph.operation("Concat", *(self.unsqueeze(part, -1) for part in turned), axis=-1)
        return graph.operation("Reshape", pairs, graph.operation("Shape", vectors))

    def project_queries(self, attention: MultiHeadAttention, x: str, sentences: str) -> str:
        """Queries of every head."""
        projected = self.linear(attention.projection, x, slice(0, attention.query_width))
        (queries,) = self._split_heads(attention, projected, sentences, attention.d_k)
        return queries

    def project_memory(self, attention: MultiHeadAttention, memory: str, sentences: str) -> list[str]:
        """Keys and values of every head, from the memory."""
        rows = slice(attention.query_width, len(attention.projection.weight))
        projected = self.linear(attention.projection, memory, rows)
        return self._split_heads(attention, projected, sentences, attention.d_k, attention.d_v)

    def attend(
        self, attention: MultiHeadAttention, queries: str, keys: str, values: str, mask: str | None = None
    ) -> str:
        """Multi-head attention from projected queries, keys and values; without a mask, every query sees every key."""
        graph = self.graph
        scores = self._score(attention.score, queries, keys)
        if mask is not None:
            scores = graph.operation("Where", mask, scores, graph.constant(-math.inf, np.float32))
        attended = graph.operation("MatMul", graph.operation("Softmax", scores, axis=-1), values)
        side_by_side = graph.operation("Transpose", attended, perm=[0, 2, 1, 3])
        return self.linear(attention.output, self.reshape(side_by_side, -1, attention.num_heads * attention.d_v))

    def reshape(self, value: str, *sizes: int | str) -> str:
        """Reshape a value to sizes: numbers, of which one may be -1, or names of values of shape [1]."""
        graph = self.graph
        parts = [graph.constant([size], np.int64) if isinstance(size, int) else size for size in sizes]
        return graph.operation("Reshape", value, graph.operation("Concat", *parts, axis=0))

    def _split_heads(self, attention: MultiHeadAttention, projected: str, sentences: str, *widths: int) -> list[str]:
        graph, num_heads = self.graph, attention.num_heads
        sizes = graph.constant([num_heads * width for width in widths], np.int64)
        parts = graph.operations("Split", projected, sizes, num_results=len(widths), axis=1)
        return [
            graph.operation("Transpose", self.reshape(part, sentences, -1, num_heads, width), perm=[0, 2, 1, 3])
            for part, width in zip(parts, widths, strict=True)
        ]

    def _score(self, score: AttentionScore, queries: str, keys: str) -> str:
        graph = self.graph
        if isinstance(score, DotScore):
            products = graph.operation("MatMul", queries, graph.operation("Transpose", keys, perm=[0, 1, 3, 2]))
            return graph.operation("Mul", products, graph.constant(score.scale, np.float32))

        additive = cast("AdditiveScore", score)  # the only other: relative positions are an obstacle to an export

        def multiplied(value: str, weight: Tensor) -> str:
            return graph.operation("MatMul", value, graph.operation("Transpose", graph.weight(weight), perm=[1, 0]))

        for_queries = self.unsqueeze(multiplied(queries, additive.query_weight), -2)
        for_keys = self.unsqueeze(multiplied(keys, additive.key_weight), -3)
        hidden = graph.operation("Tanh", graph.operation("Add", for_queries, for_keys))
        scores = multiplied(hidden, additive.hidden_weight)
        return graph.operation("Squeeze", scores, graph.constant([-1], np.int64))


ATTENTION_SCORES_OF_GRAPHS = ("scaled_dot", "dot", "additive")
"""The values of `model.attention_score` that graphs can have."""

SOURCE_IDS = "source_ids"
SOURCE_MASK = "source_mask"
LAST_IDS = "last_ids"
LOG_PROBABILITIES = "log_probabilities"

KeysAndValues = tuple[str, str]


def list_cache_names(kind: str, num_layers: int) -> list[KeysAndValues]:
    """The names of the keys and values of each decoder layer; `kind` is memory, past or present."""
    return [(f"{kind}_keys_{number}", f"{kind}_values_{number}") for number in range(num_layers)]


def build_encoder_graph(model: Transformer, precision: str) -> bytes:
    """From `source_ids`, filled up with `<pad>`, to `source_mask`, `memory_keys_0`, `memory_values_0`..."""
    graph, layers = _start_graph("encoder", model, precision)
    source_ids = graph.input(SOURCE_IDS, np.int64, ["sentences", "source"])
    padding = graph.operation("Equal", source_ids, graph.constant(model.pad_id, np.int64))
    source_mask = graph.operation("Not", padding)
    mask = layers.unsqueeze(source_mask, 1, 2)
    length = graph.operation("Squeeze", layers.size(source_ids, 1))
    places = graph.operation("Range", graph.constant(0, np.int64), length, graph.constant(1, np.int64))
    embedded = layers.embed(model.source_embedding, model.positions, source_ids, places)
    x = layers.reshape(embedded, -1, model.config.d_model)
    for layer in model.encoder.layers:
        x = _add_encoder_layer(layers, layer, x, mask, places)
    if model.encoder.final is not None:
        x = layers.normalize(model.encoder.final, x)
    graph.output(source_mask, SOURCE_MASK, np.bool_, ["sentences", "source"])
    names = list_cache_names("memory", model.config.num_decoder_layers)
    for decoder_layer, pair in zip(model.decoder.layers, names, strict=True):
        found = layers.project_memory(decoder_layer.cross_attention, x, layers.size(mask, 0))
        for value, name, axes in zip(found, pair, _list_cache_axes(model.config, "sentences", "source"), strict=True):
            graph.output(value, name, np.float32, axes)
    return graph.to_bytes("What the decoder needs of the source.")


def build_decoder_step_graph(model: Transformer, precision: str) -> bytes:
    """From `last_ids`, the encoder's outputs and `past_keys_0`... to `log_probabilities` and `present_keys_0`..."""
    graph, layers = _start_graph("decoder_step", model, precision)
    last_ids = graph.input(LAST_IDS, np.int64, ["rows"])
    mask = layers.unsqueeze(graph.input(SOURCE_MASK, np.bool_, ["sentences", "source"]), 1, 2)
    memory = list(_add_cache_inputs(graph, model.config, "memory", "sentences", "source"))
    past = list(_add_cache_inputs(graph, model.config, "past", "rows", "past"))
    place = layers.size(past[0][0], 2)
    x = layers.embed(model.target_embedding, model.positions, last_ids, place)
    present = []
    for layer, old, remembered in zip(model.decoder.layers, past, memory, strict=True):
        x, grown = _add_decoder_layer(layers, layer, x, old, remembered, mask, place)
        present.append(grown)
    if model.decoder.final is not None:
        x = layers.normalize(model.decoder.final, x)
    graph.output(
        _add_log_probabilities(layers, model, x), LOG_PROBABILITIES, np.float32, ["rows", model.config.vocabulary]
    )
    for grown, pair in zip(present, list_cache_names("present", len(present)), strict=True):
        for value, name, axes in zip(grown, pair, _list_cache_axes(model.config, "rows", "past + 1"), strict=True):
            graph.output(value, name, np.float32, axes)
    return graph.to_bytes("Natural log-probabilities of the next token of each row.")


def _start_graph(name: str, model: Transformer, precision: str) -> tuple[Graph, Layers]:
    graph = Graph(name, collect_model_tensors(model))
    return graph, Layers(graph, make_weights(graph, precision))


def _list_cache_axes(config: TransformerConfig, rows: str, length: str) -> list[list[str | int]]:
    return [[rows, config.num_heads, length, width] for width in (config.d_k, config.d_v)]


def _add_cache_inputs(
    graph: Graph, config: TransformerConfig, kind: str, rows: str, length: str
) -> Iterator[KeysAndValues]:
    of_keys, of_values = _list_cache_axes(config, rows, length)
    for keys, values in list_cache_names(kind, config.num_decoder_layers):
        yield graph.input(keys, np.float32, of_keys), graph.input(values, np.float32, of_values)


def _add_encoder_layer(layers: Layers, layer: EncoderLayer, x: str, mask: str, places: str) -> str:
    attention, sentences = layer.self_attention, layers.size(mask, 0)

    def attend(x: str) -> str:
        queries, keys, values = layers.project(attention, x, sentences, places)
        return layers.attend(attention, queries, keys, values, mask)

    x = layers.residual(layer.self_attention_residual, x, attend)
    return layers.residual(layer.feed_forward_residual, x, lambda x: layers.feed_forward(layer.feed_forward, x))


def _add_decoder_layer(
    layers: Layers, layer: DecoderLayer, x: str, past: KeysAndValues, memory: KeysAndValues, mask: str, place: str
) -> tuple[str, KeysAndValues]:
    """Add a step of a decoder layer: its output, and the past with the keys and values of the new position."""
    grown = past

    def attend_past(x: str) -> str:
        nonlocal grown
        queries, *new = layers.project(layer.self_attention, x, layers.size(x, 0), place)
        keys, values = (layers.graph.operation("Concat", old, one, axis=2) for old, one in zip(past, new, strict=True))
        grown = keys, values
        return layers.attend(layer.self_attention, queries, keys, values)

    def attend_memory(x: str) -> str:
        # The hypotheses of a sentence are to it like positions: its memory is there once for all of them.
        queries = layers.project_queries(layer.cross_attention, x, layers.size(mask, 0))
        return layers.attend(layer.cross_attention, queries, *memory, mask)

    x = layers.residual(layer.self_attention_residual, x, attend_past)
    x = layers.residual(layer.cross_attention_residual, x, attend_memory)
    x = layers.residual(layer.feed_forward_residual, x, lambda x: layers.feed_forward(layer.feed_forward, x))
    return x, grown


def _add_log_probabilities(layers: Layers, model: Transformer, x: str) -> str:
    graph, projection = layers.graph, model.projection
    addend = graph.constant(projection.mask.numpy(), np.float32)
    if projection.bias is not None:
        addend = graph.operation("Add", graph.weight(projection.bias), addend)
    return graph.operation("LogSoftmax", layers.weights.add_matmul(x, projection.weight, addend), axis=-1)
