"""The Transformer as two ONNX graphs: one reads the source, once; the other takes targets one token further.

Axes: `sentences` of `source` positions, and `rows` of targets with `past` positions, which are the hypotheses of one
sentence after the other: as many rows as sentences, or several times as many.
"""

from collections.abc import Iterable, Iterator
from typing import cast

import numpy as np

from transduce.bundle import model_tensors
from transduce.config import TransformerConfig
from transduce.interop.onnx.graph import Graph
from transduce.interop.onnx.layers import Layers
from transduce.interop.onnx.weights import make_weights
from transduce.model import DecoderLayer, EncoderLayer, Transformer

SOURCE_IDS = "source_ids"
SOURCE_MASK = "source_mask"
LAST_IDS = "last_ids"
LOG_PROBABILITIES = "log_probabilities"

KeysAndValues = tuple[str, str]


def cache_names(kind: str, num_layers: int) -> list[KeysAndValues]:
    """What the graphs call the keys and values of each decoder layer; `kind` is memory, past or present."""
    return [(f"{kind}_keys_{number}", f"{kind}_values_{number}") for number in range(num_layers)]


def encoder_graph(model: Transformer, precision: str) -> bytes:
    """From `source_ids`, filled up with `<pad>`, to `source_mask`, `memory_keys_0`, `memory_values_0`...

    Raises:
        MissingExtraError: ONNX is not installed.
    """
    graph, layers = _empty("encoder", model, precision)
    source_ids = graph.input(SOURCE_IDS, np.int64, ["sentences", "source"])
    padding = graph.operation("Equal", source_ids, graph.constant(model.pad_id, np.int64))
    source_mask = graph.operation("Not", padding)
    mask = layers.unsqueezed(source_mask, 1, 2)
    length = graph.operation("Squeeze", layers.size(source_ids, 1))
    places = graph.operation("Range", graph.constant(0, np.int64), length, graph.constant(1, np.int64))
    embedded = layers.embedded(model.source_embedding, model.positions, source_ids, places)
    x = layers.reshaped(embedded, -1, model.config.d_model)
    for layer in cast("Iterable[EncoderLayer]", model.encoder.layers):
        x = _encoder_layer(layers, layer, x, mask)
    if model.encoder.final is not None:
        x = layers.normalized(model.encoder.final, x)
    graph.output(source_mask, SOURCE_MASK, np.bool_, ["sentences", "source"])
    names = cache_names("memory", model.config.num_decoder_layers)
    for decoder_layer, pair in zip(_decoder_layers(model), names, strict=True):
        found = layers.project_memory(decoder_layer.memory_attention, x, layers.size(mask, 0))
        for value, name, axes in zip(found, pair, _cache_axes(model.config, "sentences", "source"), strict=True):
            graph.output(value, name, np.float32, axes)
    return graph.to_bytes("What the decoder needs of the source.")


def decoder_step_graph(model: Transformer, precision: str) -> bytes:
    """From `last_ids`, what the encoder hands out, and `past_keys_0`... to `log_probabilities` and `present_keys_0`...

    Raises:
        MissingExtraError: ONNX is not installed.
    """
    graph, layers = _empty("decoder_step", model, precision)
    last_ids = graph.input(LAST_IDS, np.int64, ["rows"])
    mask = layers.unsqueezed(graph.input(SOURCE_MASK, np.bool_, ["sentences", "source"]), 1, 2)
    memory = list(_cache_inputs(graph, model.config, "memory", "sentences", "source"))
    past = list(_cache_inputs(graph, model.config, "past", "rows", "past"))
    place = layers.size(past[0][0], 2)
    x = layers.embedded(model.target_embedding, model.positions, last_ids, place)
    present = []
    for layer, old, remembered in zip(_decoder_layers(model), past, memory, strict=True):
        x, grown = _decoder_layer(layers, layer, x, old, remembered, mask)
        present.append(grown)
    if model.decoder.final is not None:
        x = layers.normalized(model.decoder.final, x)
    graph.output(_log_probabilities(layers, model, x), LOG_PROBABILITIES, np.float32, ["rows", model.config.vocabulary])
    for grown, pair in zip(present, cache_names("present", len(present)), strict=True):
        for value, name, axes in zip(grown, pair, _cache_axes(model.config, "rows", "past + 1"), strict=True):
            graph.output(value, name, np.float32, axes)
    return graph.to_bytes("Natural log-probabilities of the next token of each row.")


def _empty(name: str, model: Transformer, precision: str) -> tuple[Graph, Layers]:
    graph = Graph(name, model_tensors(model))
    return graph, Layers(graph, make_weights(graph, precision))


def _decoder_layers(model: Transformer) -> Iterable[DecoderLayer]:
    return cast("Iterable[DecoderLayer]", model.decoder.layers)


def _cache_axes(config: TransformerConfig, rows: str, length: str) -> list[list[str | int]]:
    """Those of keys and of values."""
    return [[rows, config.num_heads, length, width] for width in (config.d_k, config.d_v)]


def _cache_inputs(
    graph: Graph, config: TransformerConfig, kind: str, rows: str, length: str
) -> Iterator[KeysAndValues]:
    of_keys, of_values = _cache_axes(config, rows, length)
    for keys, values in cache_names(kind, config.num_decoder_layers):
        yield graph.input(keys, np.float32, of_keys), graph.input(values, np.float32, of_values)


def _encoder_layer(layers: Layers, layer: EncoderLayer, x: str, mask: str) -> str:
    """See `model.encoder`."""
    attention, sentences = layer.self_attention, layers.size(mask, 0)

    def attend(x: str) -> str:
        queries, keys, values = layers.project(attention, x, sentences)
        return layers.attend(attention, queries, keys, values, mask)

    x = layers.residual(layer.self_attention_residual, x, attend)
    return layers.residual(layer.feed_forward_residual, x, lambda x: layers.feed_forward(layer.feed_forward, x))


def _decoder_layer(
    layers: Layers, layer: DecoderLayer, x: str, past: KeysAndValues, memory: KeysAndValues, mask: str
) -> tuple[str, KeysAndValues]:
    """See `DecoderLayer.step`: the output, and the past with what the new position adds to it."""
    grown = past

    def attend_past(x: str) -> str:
        nonlocal grown
        queries, *new = layers.project(layer.self_attention, x, layers.size(x, 0))
        keys, values = (layers.graph.operation("Concat", old, one, axis=2) for old, one in zip(past, new, strict=True))
        grown = keys, values
        return layers.attend(layer.self_attention, queries, keys, values)

    def attend_memory(x: str) -> str:
        # The hypotheses of a sentence are to it like positions: its memory is there once for all of them.
        queries = layers.project_queries(layer.memory_attention, x, layers.size(mask, 0))
        return layers.attend(layer.memory_attention, queries, *memory, mask)

    x = layers.residual(layer.self_attention_residual, x, attend_past)
    x = layers.residual(layer.memory_attention_residual, x, attend_memory)
    x = layers.residual(layer.feed_forward_residual, x, lambda x: layers.feed_forward(layer.feed_forward, x))
    return x, grown


def _log_probabilities(layers: Layers, model: Transformer, x: str) -> str:
    """See `OutputProjection`."""
    graph, projection = layers.graph, model.projection
    addend = graph.constant(projection.mask.numpy(), np.float32)
    if projection.bias is not None:
        addend = graph.operation("Add", graph.weight(projection.bias), addend)
    return graph.operation("LogSoftmax", layers.weights.product(x, projection.weight, addend), axis=-1)
