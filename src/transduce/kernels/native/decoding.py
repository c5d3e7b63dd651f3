"""The compiled Transformer: its packed layers, the encoder, and the decoder's steps with their cache."""

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_float, c_int32, c_uint8
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.errors import TransduceError, UserError
from transduce.kernels.native.library import (
    AttentionStructure,
    BestTask,
    DecoderTask,
    EncoderTask,
    LayerStructure,
    Library,
    LinearStructure,
    NormalizationStructure,
    TransformerStructure,
)
from transduce.kernels.native.packing import (
    ACTIVATIONS,
    Floats,
    PackedMatrix,
    PackedNormalization,
    Places,
    address,
    check_floats,
    round_up,
)

Integers = npt.NDArray[Any]

_UNKNOWN_ID = 2
_FIRST_STEPS = 24
"""Steps for which a cache has room at first; then it grows by half."""
_FIRST_WIDTH = 4
"""Hypotheses of each sentence for which there is room at first: a search begins with one, and goes on with its beam."""


@dataclass(frozen=True)
class PackedAttention:
    """The packed weights of an attention.

    Args:
        projection: gives queries, keys and values in self-attention, and queries alone in cross-attention.
        output: W^O (paper 3.2.2).
        norm: the layer normalisation of the sub-layer.
        memory: gives keys and values of the memory in cross-attention; None in self-attention.
    """

    projection: PackedMatrix
    output: PackedMatrix
    norm: PackedNormalization
    memory: PackedMatrix | None = None

    @property
    def structure(self) -> AttentionStructure:
        """The addresses of the weights: `attention_layer` in transformer.h."""
        memory = LinearStructure() if self.memory is None else self.memory.structure
        return AttentionStructure(self.projection.structure, memory, self.output.structure, self.norm.structure)


@dataclass(frozen=True)
class PackedLayer:
    """The packed weights of a layer of the encoder or, with `cross_attention`, of the decoder."""

    self_attention: PackedAttention
    inner: PackedMatrix
    outer: PackedMatrix
    norm: PackedNormalization
    cross_attention: PackedAttention | None = None

    @property
    def structure(self) -> LayerStructure:
        """The addresses of the weights: `transformer_layer` in transformer.h."""
        cross = AttentionStructure() if self.cross_attention is None else self.cross_attention.structure
        return LayerStructure(
            self.self_attention.structure, cross, self.inner.structure, self.outer.structure, self.norm.structure
        )


@dataclass(frozen=True)
class PackedStack:
    """The packed weights of the encoder or of the decoder: layers, embedding and, with pre-norm, the final norm."""

    layers: Sequence[PackedLayer]
    embedding: Floats
    """[vocabulary, d_model]."""
    norm: PackedNormalization | None


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes that all attentions of a model have in common.

    Args:
        num_heads: heads side by side.
        d_k: width of a query or a key in one head.
        d_v: width of a value in one head.
        scale: factor of the scores.
    """

    num_heads: int
    d_k: int
    d_v: int
    scale: float

    @property
    def queries(self) -> Places:
        """Indices of the queries, or of the keys, of all heads in a padded row."""
        return Places.in_heads(self.num_heads, self.d_k)

    @property
    def values(self) -> Places:
        """Indices of the values of all heads in a padded row."""
        return Places.in_heads(self.num_heads, self.d_v)


class PackedTransformer:
    """All weights of a Transformer, and its encoder.

    Args:
        library: the level for which the weights were packed.
        encoder: the encoder.
        decoder: the decoder.
        projection: linear layer from the decoder's outputs to logits; outputs that are only padding have the bias -inf.
        attention: the sizes of the attentions.
        embedding_scale: factor of the embeddings.
        activation: a key of `ACTIVATIONS`.
        is_pre_norm: whether sub-layers normalise their inputs, and not their outputs.
    """

    def __init__(
        self,
        library: Library,
        *,
        encoder: PackedStack,
        decoder: PackedStack,
        projection: PackedMatrix,
        attention: AttentionSizes,
        embedding_scale: float,
        activation: str,
        is_pre_norm: bool,
    ) -> None:
        self.library, self.attention = library, attention
        vocabulary, d_model = decoder.embedding.shape
        self.vocabulary, self.d_model = vocabulary, d_model
        self._parts = (encoder, decoder, projection)  # their arrays are read as long as this object lives
        self._embeddings = [check_floats(stack.embedding, (vocabulary, d_model)) for stack in (encoder, decoder)]
        self._layers = [
            (LayerStructure * len(stack.layers))(*(layer.structure for layer in stack.layers))
            for stack in (encoder, decoder)
        ]
        norms = [NormalizationStructure() if one.norm is None else one.norm.structure for one in (encoder, decoder)]
        self.num_decoder_layers = len(decoder.layers)
        self.query_width, self.value_width = attention.queries.width, attention.values.width
        self.structure = TransformerStructure(
            d_model=d_model,
            model_width=Places.in_order(d_model).width,
            inner_width=decoder.layers[0].inner.outputs.width,
            num_heads=attention.num_heads,
            d_k=round_up(attention.d_k, 16),
            d_v=round_up(attention.d_v, 16),
            query_width=self.query_width,
            value_width=self.value_width,
            vocabulary=vocabulary,
            logit_width=projection.outputs.width,
            activation=ACTIVATIONS[activation],
            is_pre_norm=is_pre_norm,
            num_encoder_layers=len(encoder.layers),
            num_decoder_layers=len(decoder.layers),
            score_scale=attention.scale,
            embedding_scale=embedding_scale,
            source_embedding=address(self._embeddings[0]),
            target_embedding=address(self._embeddings[1]),
            encoder=self._layers[0],
            decoder=self._layers[1],
            encoder_norm=norms[0],
            decoder_norm=norms[1],
            projection=projection.structure,
        )

    def make_room(self, rows: int, keys: int, count: int) -> npt.NDArray[np.uint8]:
        """Working memory for a call with these numbers of rows, keys and continuations."""
        return np.empty(self.library.functions["count_room"](byref(self.structure), rows, keys, count), dtype=np.uint8)

    def check_ids(self, least: int, greatest: int) -> None:
        """Check that ids are in the vocabulary, before they are cut to the 32 bits that the library reads.

        Raises:
            IndexError: they are not.
        """
        if least < 0 or greatest >= self.vocabulary:
            raise IndexError(f"ids from {least} to {greatest} are not in the vocabulary of {self.vocabulary}")

    def read_source(self, ids: Integers, places: Integers, lengths: Integers, positions: Floats) -> "DecoderCache":
        """Run the encoder, and give the decoder's cache before the first token.

        Args:
            ids: [tokens], of one sentence after the other, without padding.
            places: [tokens], the position of each token, as a row of `positions`.
            lengths: [sentences], of which none is 0.
            positions: [longest, d_model].

        Raises:
            IndexError: an id is not in the vocabulary.
            UserError: the arrays do not fit together.
        """
        if len(ids):
            self.check_ids(int(ids.min()), int(ids.max()))
        ids, places, lengths = (np.ascontiguousarray(part, dtype=np.int32) for part in (ids, places, lengths))
        positions = check_floats(positions, (None, self.d_model))
        starts = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        if not (len(ids) == len(places) == starts[-1] and lengths.min(initial=1) > 0):
            raise UserError(f"{len(ids)} ids and {len(places)} positions for sentences of {lengths.tolist()} tokens")
        if len(places) and not (places.min() >= 0 and places.max() < len(positions)):
            raise UserError(f"positions from {places.min()} to {places.max()} in a table of {len(positions)} rows")
        sizes = self.structure
        head_keys = -(-lengths.astype(np.int64) // self.library.panel) * self.library.panel
        key_starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(head_keys * (sizes.num_heads * sizes.d_k), out=key_starts[1:])
        keys = np.empty((self.num_decoder_layers, int(key_starts[-1])), dtype=np.float32)
        values = np.empty((self.num_decoder_layers, len(ids), self.value_width), dtype=np.float32)
        longest = int(lengths.max(initial=0))
        room = self.make_room(min(len(ids), max(longest, self.library.group_rows)), longest, 0)
        task = EncoderTask(
            num_sentences=len(lengths),
            ids=address(ids),
            starts=address(starts),
            positions=address(positions),
            places=address(places),
            key_starts=address(key_starts),
            memory_keys=address(keys),
            memory_values=address(values),
            room=address(room),
            room_bytes=room.nbytes,
        )
        _check(self.library.functions["run_encoder"](byref(self.structure), byref(task)))
        return DecoderCache(self, keys, values, (starts[:-1], lengths, key_starts[:-1]))


def _check(problem: int) -> None:
    if problem == _UNKNOWN_ID:
        raise IndexError("an id is not in the vocabulary")
    if problem:
        raise TransduceError("a compiled kernel was not given the memory that it asked for")


class DecoderCache:
    """The key-value cache of a batch: of its memory and of all hypotheses so far; no key or value is ever moved.

    Every hypothesis of every step has a slot for its key and value; a table of ancestors says which slots a hypothesis
    attends to. A sentence or hypothesis that is not continued is left out of the table, and its slots stay unused.

    Args:
        model: the weights.
        memory_keys: packed keys of the memory, [layers, numbers].
        memory_values: [layers, tokens, value_width].
        sources: for each sentence, where its tokens begin in `memory_values`, their number, and where its keys begin.
    """

    def __init__(
        self,
        model: PackedTransformer,
        memory_keys: Floats,
        memory_values: Floats,
        sources: tuple[Integers, Integers, Integers],
    ) -> None:
        self.model, self.length = model, 0
        self.num_sentences, self.width = len(sources[0]), 1
        self._memory, self._run = (memory_keys, memory_values), model.library.functions["run_decoder"]
        self._longest, self._used, self._num_slots, self._stride = int(sources[1].max(initial=0)), 0, 0, 0
        self._past_keys = self._past_values = np.empty((model.num_decoder_layers, 0, 0), dtype=np.float32)
        self._ancestors = self._next_ancestors = np.empty((self.num_sentences, 0), dtype=np.int32)
        self._parents: Sequence[int] = range(self.num_sentences)
        """The row of `_ancestors` of the parent of each hypothesis of the next step."""
        self._task = DecoderTask(
            memory_keys=address(memory_keys),
            memory_values=address(memory_values),
            num_memory_keys=memory_keys.shape[1],
            num_memory_tokens=memory_values.shape[1],
        )
        self._model_reference, self._task_reference = byref(model.structure), byref(self._task)
        self._set_sources(sources)
        self._inputs = _make_inputs(0)
        self._best: BestTask | None = None
        self._found: tuple[Floats, Integers, Integers] | None = None
        self._room_for = (0, 0, 0)

    def select(self, sentences: Sequence[int] | None, parents: Sequence[Sequence[int]]) -> None:
        """Let hypothesis j of sentence i of the next step continue hypothesis `parents[i][j]` of `sentences[i]`.

        Raises:
            IndexError: there is no such sentence or hypothesis.
        """
        width, before = self.width, self._parents
        places = range(self.num_sentences) if sentences is None else sentences
        if len(places) != len(parents):
            raise IndexError(f"parents of {len(parents)} sentences for {len(places)}")
        flat = list(chain.from_iterable(parents))
        if (flat and (min(flat) < 0 or max(flat) >= width)) or len(flat) % max(1, len(parents)):
            raise IndexError(f"parents {parents}: each sentence has {width} hypotheses")
        if sentences is not None:
            if not all(0 <= place < self.num_sentences for place in sentences):
                raise IndexError(f"sentences {sentences}: there are {self.num_sentences}")
            index = np.array(sentences, dtype=np.int64)
            starts, lengths, key_starts = (part[index] for part in self._sources)
            self._set_sources((starts, lengths, key_starts))
        self._parents = [
            before[place * width + parent] for place, own in zip(places, parents, strict=True) for parent in own
        ]
        self.num_sentences, self.width = len(parents), len(flat) // max(1, len(parents))

    def step(self, last_ids: Sequence[int], position: int, log_probs: int) -> None:
        """Write the log-probabilities of each hypothesis' next token, [rows, vocabulary], to the address `log_probs`.

        Args:
            last_ids: [rows], the last token of each hypothesis, sentence by sentence.
            position: the address of the d_model numbers that mark the position of these tokens.
            log_probs: an address with room for them.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        self.model.check_ids(min(last_ids, default=0), max(last_ids, default=0))
        self._prepare(last_ids, position, 0)
        self._finish(self._run(self._model_reference, self._task_reference, log_probs, None))

    def step_best(
        self,
        last_ids: Sequence[int],
        position: int,
        *,
        sums: Sequence[float],
        limits: Sequence[int],
        count: int,
        end_id: int,
    ) -> tuple[Floats, Integers, Integers]:
        """The `count` best continuations of each sentence: log-probabilities, parents and ids, each [sentences, count].

        They are ordered by the sum of `sums` and log-probability; of equal ones comes first that of the lower parent,
        then id. Where a sentence has fewer, others with the log-probability -inf fill up. The arrays are overwritten by
        the next step.

        Args:
            last_ids: [rows], as in `step`.
            position: as in `step`.
            sums: [rows], the log-probability of each hypothesis; -inf: it is not continued.
            limits: [sentences], ANYTHING, NO_END or END_ALONE of `library`.
            count: continuations of a sentence.
            end_id: `</s>`.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        if not 0 <= end_id < self.model.vocabulary or count < 1:
            raise IndexError(f"end_id {end_id} in a vocabulary of {self.model.vocabulary}, {count} continuations")
        self._prepare(last_ids, position, count)
        num_rows, num_sentences = len(last_ids), self.num_sentences
        _, _, of_rows, of_sentences = self._inputs
        if len(sums) != num_rows or len(limits) != num_sentences:
            raise IndexError(f"{len(sums)} sums, {len(limits)} limits: {num_rows} rows of {num_sentences} sentences")
        of_rows[:num_rows] = sums
        of_sentences[:num_sentences] = limits
        found = self._found
        if found is None or found[0].shape != (num_sentences, count):
            shape = (num_sentences, count)
            found = (np.empty(shape, np.float32), np.empty(shape, np.int32), np.empty(shape, np.int32))
            self._found = found
            self._best = None
        if self._best is None:
            self._best = BestTask(
                count, end_id, ctypes.addressof(of_rows), ctypes.addressof(of_sentences), *map(address, found)
            )
        self._best.end_id = end_id
        self._finish(self._run(self._model_reference, self._task_reference, None, byref(self._best)))
        return found

    def _prepare(self, last_ids: Sequence[int], position: int, count: int) -> None:
        num_rows, task = len(last_ids), self._task
        if num_rows != self.num_sentences * self.width:
            raise IndexError(f"{num_rows} ids for {self.num_sentences} sentences of {self.width} hypotheses")
        if (
            self._used + num_rows > self._num_slots
            or self.length >= self._stride
            or num_rows > len(self._next_ancestors)
        ):
            self._grow(num_rows)
        if num_rows > len(self._inputs[0]):
            self._inputs = _make_inputs(num_rows)
            task.last_ids, task.parents = map(ctypes.addressof, self._inputs[:2])
            self._best = None
        self._inputs[0][:num_rows] = last_ids
        self._inputs[1][:num_rows] = self._parents
        group = max(self.width, min(self._expect_rows(num_rows), self.model.library.group_rows))
        needed = (group, task.most_keys, max(1, count))
        rows, keys, most = self._room_for
        if needed[0] > rows or needed[1] > keys or needed[2] > most:
            self._room_for = (max(needed[0], rows), max(needed[1], keys), max(needed[2], most))
            self._room = self.model.make_room(*self._room_for)
            task.room, task.room_bytes = address(self._room), self._room.nbytes
        task.num_sentences, task.width, task.length, task.used = self.num_sentences, self.width, self.length, self._used
        task.position = position

    def _finish(self, problem: int) -> None:
        _check(problem)
        num_rows, task = self.num_sentences * self.width, self._task
        self._used, self.length = self._used + num_rows, self.length + 1
        self._ancestors, self._next_ancestors = self._next_ancestors, self._ancestors
        task.ancestors, task.next_ancestors = task.next_ancestors, task.ancestors
        self._parents = range(num_rows)

    def _expect_rows(self, num_rows: int) -> int:
        """Rows of the next steps, of which there are `num_rows` in this one."""
        return max(num_rows, _FIRST_WIDTH * self.num_sentences) if self.length == 0 else num_rows

    def _grow(self, num_rows: int) -> None:
        """Make room for at least one more step with this number of rows."""
        model, task = self.model, self._task
        num_rows = self._expect_rows(num_rows)
        if self.length >= self._stride or num_rows > min(len(self._ancestors), len(self._next_ancestors)):
            rows = max(num_rows, len(self._ancestors))
            if self.length >= self._stride:
                self._stride = max(_FIRST_STEPS, self._stride * 3 // 2)
            before, self._ancestors, self._next_ancestors = (
                self._ancestors,
                *np.zeros((2, rows, self._stride), np.int32),
            )
            self._ancestors[: len(before), : self.length] = before[:, : self.length]
            task.ancestors, task.next_ancestors = address(self._ancestors), address(self._next_ancestors)
            task.ancestor_stride, task.most_keys = self._stride, max(self._longest, self._stride)
        if self._used + num_rows > self._num_slots:
            before_slots = (self._past_keys, self._past_values)
            self._num_slots = max(self._used + num_rows * _FIRST_STEPS, self._num_slots * 3 // 2)
            self._past_keys, self._past_values = (
                np.empty((model.num_decoder_layers, self._num_slots, width), dtype=np.float32)
                for width in (model.query_width, model.value_width)
            )
            if self._used:
                for old, new in zip(before_slots, (self._past_keys, self._past_values), strict=True):
                    new[:, : self._used] = old[:, : self._used]
            task.num_slots = self._num_slots
            task.past_keys, task.past_values = address(self._past_keys), address(self._past_values)

    def _set_sources(self, sources: tuple[Integers, Integers, Integers]) -> None:
        self._sources = sources
        self._task.source_starts, self._task.source_lengths, self._task.key_starts = map(address, sources)


def _make_inputs(num_rows: int) -> tuple[Any, Any, Any, Any]:
    """Buffers for last ids, parents, sums and limits of a number of rows."""
    return (c_int32 * num_rows)(), (c_int32 * num_rows)(), (c_float * num_rows)(), (c_uint8 * num_rows)()
