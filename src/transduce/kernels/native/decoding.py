"""The compiled Transformer: its packed layers, the encoder, the decoder's steps with their cache, and the beam search
of a batch in one call.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, pointer
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transduce.errors import ConfigError, NotANumberError, TransduceError, UserError
from transduce.kernels.memory import address, allocate
from transduce.kernels.native.library import (
    NOT_A_NUMBER,
    UNFINISHED,
    UNKNOWN_ID,
    DecoderTaskStructure,
    EncoderTaskStructure,
    LayerStructure,
    Library,
    LinearStructure,
    NormalizationStructure,
    SearchTaskStructure,
    TransformerStructure,
)
from transduce.kernels.native.packing import (
    ACTIVATIONS,
    Floats,
    Integers,
    PackedMatrix,
    PackedNormalization,
    PaddedLayout,
    check_floats,
    round_up,
)

_FIRST_STEPS = 24
"""Initial capacity of a cache in steps; it then grows by half."""
_FIRST_WIDTH = 4
"""Initial capacity in hypotheses per sentence: a search begins with one, and continues with its beam."""
_STEPS_OF_CALL = 32
"""Steps after which a call returns, so that Python notices Ctrl-C."""
_MAX_STEPS = 2**31 - 1
_WIDEST_BEAM = 2**29

FoundHypothesis = tuple[list[int], float, list[float]]
"""Ids, the last of which is the end, score, and the log-probability of each id."""


class PackedStack(NamedTuple):
    """The encoder or the decoder."""

    embedding: Floats
    """[vocabulary, d_model]."""
    layers: Sequence[LayerStructure]
    """The addresses of packed weights."""
    norm: NormalizationStructure
    """The normalisation of the outputs, with pre-norm."""


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes common to all attentions of a model.

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
    def queries(self) -> PaddedLayout:
        """Indices of the queries, or of the keys, of all heads in a padded row."""
        return PaddedLayout.in_heads(self.num_heads, self.d_k)

    @property
    def values(self) -> PaddedLayout:
        """Indices of the values of all heads in a padded row."""
        return PaddedLayout.in_heads(self.num_heads, self.d_v)


class PackedTransformer:
    """All weights of a Transformer, and its encoder.

    Args:
        library: the level for which the weights were packed.
        packed: the weights that the structures below have the addresses of.
        encoder: the encoder.
        decoder: the decoder.
        projection: linear layer from the decoder's outputs to logits; outputs that are only padding have the bias -inf.
        attention: the sizes of the attentions.
        activation: a key of `ACTIVATIONS`.
        is_pre_norm: whether sub-layers normalise their inputs, and not their outputs.
    """

    def __init__(
        self,
        library: Library,
        packed: Sequence[PackedMatrix | PackedNormalization],
        *,
        encoder: PackedStack,
        decoder: PackedStack,
        projection: LinearStructure,
        attention: AttentionSizes,
        activation: str,
        is_pre_norm: bool,
    ) -> None:
        self.library = library
        vocabulary, d_model = decoder.embedding.shape
        self.vocabulary, self.d_model = vocabulary, d_model
        self._packed = packed  # read as long as this object lives
        self._embeddings = [check_floats(stack.embedding, (vocabulary, d_model)) for stack in (encoder, decoder)]
        self._layers = [(LayerStructure * len(stack.layers))(*stack.layers) for stack in (encoder, decoder)]
        self.num_decoder_layers = len(decoder.layers)
        self.query_width, self.value_width = attention.queries.width, attention.values.width
        self.structure = TransformerStructure(
            d_model=d_model,
            model_width=PaddedLayout.in_order(d_model).width,
            inner_width=decoder.layers[0].inner.outputs,
            num_heads=attention.num_heads,
            d_k=round_up(attention.d_k, 16),
            d_v=round_up(attention.d_v, 16),
            query_width=self.query_width,
            value_width=self.value_width,
            vocabulary=vocabulary,
            logit_width=projection.outputs,
            activation=ACTIVATIONS[activation],
            is_pre_norm=is_pre_norm,
            num_encoder_layers=len(encoder.layers),
            num_decoder_layers=len(decoder.layers),
            score_scale=attention.scale,
            embedding_scale=math.sqrt(d_model),  # paper 3.4
            source_embedding=address(self._embeddings[0]),
            target_embedding=address(self._embeddings[1]),
            encoder=self._layers[0],
            decoder=self._layers[1],
            encoder_norm=encoder.norm,
            decoder_norm=decoder.norm,
            projection=projection,
        )

    def allocate_workspace(self, rows: int, keys: int, count: int) -> npt.NDArray[np.uint8]:
        """Working memory for a call with these numbers of rows, keys and continuations."""
        num_bytes = self.library.functions["count_workspace"](byref(self.structure), rows, keys, count)
        return allocate((num_bytes,), np.uint8, is_temporary=True)

    def check_ids(self, min_id: int, max_id: int) -> None:
        """Check that ids are in the vocabulary, before they are cut to the 32 bits that the library reads.

        Raises:
            IndexError: they are not.
        """
        if min_id < 0 or max_id >= self.vocabulary:
            raise IndexError(f"ids from {min_id} to {max_id} are not in the vocabulary of {self.vocabulary}")

    def encode(self, ids: Integers, positions: Integers, lengths: Integers, position_table: Floats) -> "DecoderCache":
        """Run the encoder; returns the decoder's cache before the first token.

        Args:
            ids: [tokens], of one sentence after the other, without padding.
            positions: [tokens], the position of each token, a row of `position_table`.
            lengths: [sentences], of which none is 0.
            position_table: [longest, d_model].

        Raises:
            IndexError: an id is not in the vocabulary.
            UserError: the arrays do not match.
        """
        if len(ids):
            self.check_ids(int(ids.min()), int(ids.max()))
        ids, positions, lengths = (np.ascontiguousarray(part, dtype=np.int32) for part in (ids, positions, lengths))
        position_table = check_floats(position_table, (None, self.d_model))
        starts = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        if not (len(ids) == len(positions) == starts[-1] and lengths.min(initial=1) > 0):
            raise UserError(f"{len(ids)} ids and {len(positions)} positions for sentences of {lengths.tolist()} tokens")
        if len(positions) and not (positions.min() >= 0 and positions.max() < len(position_table)):
            raise UserError(
                f"positions from {positions.min()} to {positions.max()} in a table of {len(position_table)} rows"
            )
        sizes = self.structure
        lanes = self.library.panel // 2
        head_keys = -(-lengths.astype(np.int64) // lanes) * lanes
        key_starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(head_keys * (sizes.num_heads * sizes.d_k), out=key_starts[1:])
        keys = allocate((self.num_decoder_layers, int(key_starts[-1])), np.float32, is_temporary=True)
        values = allocate((self.num_decoder_layers, len(ids), self.value_width), np.float32, is_temporary=True)
        longest = int(lengths.max(initial=0))
        workspace = self.allocate_workspace(min(len(ids), max(longest, self.library.group_rows)), longest, 0)
        task = EncoderTaskStructure(
            num_sentences=len(lengths),
            ids=address(ids),
            starts=address(starts),
            position_table=address(position_table),
            positions=address(positions),
            key_starts=address(key_starts),
            memory_keys=address(keys),
            memory_values=address(values),
            workspace=address(workspace),
            workspace_bytes=workspace.nbytes,
        )
        _check_result(self.library.functions["run_encoder"](byref(self.structure), byref(task)))
        return DecoderCache(self, keys, values, (starts[:-1], lengths, key_starts[:-1]))


def _check_result(problem: int) -> None:
    """Raise the exception for the return value of a library function, unless it is DONE.

    Raises:
        IndexError: an id is not in the vocabulary.
        NotANumberError: a log-probability is NaN.
        TransduceError: there was not enough memory.
    """
    if problem == UNKNOWN_ID:
        raise IndexError("an id is not in the vocabulary")
    if problem == NOT_A_NUMBER:
        raise NotANumberError
    if problem:
        raise TransduceError("the workspace of a compiled kernel is too small, which is a bug in Transduce")


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
        self.model, self.length, self.used = model, 0, 0
        self.num_sentences, self.width = len(sources[0]), 1
        self._memory, self._run = (memory_keys, memory_values), model.library.functions["run_decoder"]
        self._longest = int(sources[1].max(initial=0))
        self._past_keys = self._past_values = np.empty((model.num_decoder_layers, 0, 0), dtype=np.float32)
        self._ancestors = np.empty((2, self.num_sentences, 0), dtype=np.int32)
        self._parents: Sequence[int] = range(self.num_sentences)
        """The row in the table of ancestors of the parent of each hypothesis of the next step."""
        self.task = DecoderTaskStructure(
            memory_keys=address(memory_keys),
            memory_values=address(memory_values),
            num_memory_keys=memory_keys.shape[1],
            num_memory_tokens=memory_values.shape[1],
        )
        self._model_reference, self._task_reference = byref(model.structure), byref(self.task)
        self._set_sources(sources)
        self._inputs = _make_inputs(0)
        self._workspace_sizes: tuple[int, ...] = (0, 0, 0)

    def select(self, sentences: Sequence[int] | None, parents: Sequence[Sequence[int]]) -> None:
        """Let hypothesis j of sentence i of the next step continue hypothesis `parents[i][j]` of `sentences[i]`.

        Raises:
            IndexError: there is no such sentence or hypothesis.
        """
        width, before = self.width, self._parents
        indices = range(self.num_sentences) if sentences is None else sentences
        if len(indices) != len(parents):
            raise IndexError(f"parents of {len(parents)} sentences for {len(indices)}")
        flat = list(chain.from_iterable(parents))
        if (flat and (min(flat) < 0 or max(flat) >= width)) or len(flat) % max(1, len(parents)):
            raise IndexError(f"parents {parents}: each sentence has {width} hypotheses")
        if sentences is not None:
            if not all(0 <= index < self.num_sentences for index in sentences):
                raise IndexError(f"sentences {sentences}: there are {self.num_sentences}")
            index = np.array(sentences, dtype=np.int64)
            starts, lengths, key_starts = (part[index] for part in self._sources)
            self._set_sources((starts, lengths, key_starts))
        self._parents = [
            before[index * width + parent] for index, own in zip(indices, parents, strict=True) for parent in own
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
        num_rows, task = len(last_ids), self.task
        if num_rows != self.num_sentences * self.width:
            raise IndexError(f"{num_rows} ids for {self.num_sentences} sentences of {self.width} hypotheses")
        expected = max(num_rows, _FIRST_WIDTH * self.num_sentences) if self.length == 0 else num_rows
        if (
            self.used + num_rows > task.num_slots
            or self.length >= task.ancestor_stride
            or num_rows > self._ancestors.shape[1]
        ):
            self.reserve(expected, self.count_new_steps())
        self.reserve_working_memory(expected, self.width, 1)
        if num_rows > len(self._inputs[0]):
            self._inputs = _make_inputs(num_rows)
            task.last_ids, task.parents = map(ctypes.addressof, self._inputs)
        self._inputs[0][:num_rows] = last_ids
        self._inputs[1][:num_rows] = self._parents
        task.num_sentences, task.width, task.length, task.used = self.num_sentences, self.width, self.length, self.used
        task.position = position
        _check_result(self._run(self._model_reference, self._task_reference, log_probs, None))
        self.used, self.length = self.used + num_rows, self.length + 1
        task.ancestors, task.next_ancestors = task.next_ancestors, task.ancestors
        self._parents = range(num_rows)

    def count_new_steps(self) -> int:
        """Number of steps by which to extend a cache: it grows by half."""
        return max(_FIRST_STEPS, self.length // 2)

    def reserve(self, num_rows: int, num_steps: int) -> None:
        """Make room for more steps with this number of rows."""
        model, task = self.model, self.task
        length, used = self.length + num_steps, self.used + num_rows * num_steps
        before = self._ancestors
        if length > before.shape[2] or num_rows > before.shape[1]:
            stride = max(length, before.shape[2])
            self._ancestors = np.zeros((2, max(num_rows, before.shape[1]), stride), dtype=np.int32)
            self._ancestors[:, : before.shape[1], : self.length] = before[:, :, : self.length]
            task.ancestor_stride, task.max_keys = stride, max(self._longest, stride)
        if used > task.num_slots:
            before_slots = (self._past_keys, self._past_values)
            self._past_keys, self._past_values = (
                allocate((model.num_decoder_layers, used, width), np.float32, is_temporary=True)
                for width in (model.query_width, model.value_width)
            )
            if self.used:
                for old, new in zip(before_slots, (self._past_keys, self._past_values), strict=True):
                    new[:, : self.used] = old[:, : self.used]
            task.num_slots = used
            task.past_keys, task.past_values = address(self._past_keys), address(self._past_values)
        tables = self._ancestors if self.length % 2 == 0 else self._ancestors[::-1]  # every step writes the other
        task.ancestors, task.next_ancestors = map(address, tables)

    def reserve_working_memory(self, num_rows: int, width: int, count: int) -> None:
        """Make room for what a step computes with up to this number of rows, `width` of each sentence.

        `count` is the number of continuations of a sentence that are asked for; at least 1.
        """
        needed = (max(width, min(num_rows, self.model.library.group_rows)), self.task.max_keys, count)
        if any(size > before for size, before in zip(needed, self._workspace_sizes, strict=True)):
            self._workspace_sizes = tuple(map(max, needed, self._workspace_sizes))
            self._workspace = self.model.allocate_workspace(*self._workspace_sizes)
            self.task.workspace, self.task.workspace_bytes = address(self._workspace), self._workspace.nbytes

    def _set_sources(self, sources: tuple[Integers, Integers, Integers]) -> None:
        self._sources = sources
        self.task.source_starts, self.task.source_lengths, self.task.key_starts = map(address, sources)


def _make_inputs(num_rows: int) -> tuple[Any, Any]:
    """Buffers for last ids and parents of a number of rows."""
    return (c_int32 * num_rows)(), (c_int32 * num_rows)()


def run_beam_search(  # noqa: PLR0913 - what a search is given
    cache: DecoderCache,
    find_positions: Callable[[int], Floats],
    compute_penalty: Callable[[int], float],
    *,
    start_id: int,
    end_id: int,
    max_lengths: Sequence[int],
    min_length: int,
    no_repeat_ngram: int,
    beam: int,
    num_best: int,
) -> list[list[FoundHypothesis]]:
    """Up to `num_best` hypotheses of each sentence, best first; bit-identical to those of `search.beam_search`.

    Args:
        cache: the cache of a batch before the first token; it cannot be used afterwards.
        find_positions: called with a number n, returns the encodings of at least the first n positions,
            [positions, d_model]; what it raises is raised here.
        compute_penalty: the length penalty of a number of tokens.
        start_id: the id before the first token.
        end_id: the id that ends a hypothesis.
        max_lengths: [sentences], the greatest number of tokens, the end included, at least 1.
        min_length: the least number of tokens, where the greatest is not smaller.
        no_repeat_ngram: no n-gram of this length is repeated in a hypothesis; 0: any may be.
        beam: hypotheses that are continued of each sentence, at least 1.
        num_best: at least 1.

    Raises:
        IndexError: an id is not in the vocabulary, or there is not one greatest number of tokens for each sentence.
        NotANumberError: a log-probability is NaN.
        ConfigError: `beam` is above 2^29.
        UserError: the cache has tokens.
    """
    if beam > _WIDEST_BEAM:
        raise ConfigError(f"beam = {beam:,} must be at most {_WIDEST_BEAM:,}")
    model, step, num_sentences = cache.model, cache.task, cache.num_sentences
    model.check_ids(min(start_id, end_id), max(start_id, end_id))
    if len(max_lengths) != num_sentences:
        raise IndexError(f"{len(max_lengths)} greatest lengths for {num_sentences} sentences")
    if cache.length or cache.width != 1:
        raise UserError(f"a search begins with a cache without tokens, and this one has {cache.length}")
    if not num_sentences:
        return []
    functions, longest = model.library.functions, max(max_lengths)
    limits = np.array([min(limit, _MAX_STEPS) for limit in max_lengths], dtype=np.int32)
    greatest_penalties = np.array([compute_penalty(limit) for limit in max_lengths])
    workspace = np.empty(functions["count_search_workspace"](num_sentences, beam), dtype=np.uint8)
    tokens = np.empty((0, 3), dtype=np.int32)
    num_best = min(num_best, 2 * beam)
    num_found = np.empty(num_sentences, dtype=np.int32)
    scores = np.empty((num_sentences, num_best))
    lengths = np.empty((num_sentences, num_best), dtype=np.int32)
    step.num_sentences, step.width, step.length, step.used = num_sentences, 1, 0, 0
    task = SearchTaskStructure(
        step=pointer(step),
        num_sentences=num_sentences,
        start_id=start_id,
        end_id=end_id,
        beam=beam,
        num_best=num_best,
        min_length=min(min_length, _MAX_STEPS),
        no_repeat_ngram=min(no_repeat_ngram, _MAX_STEPS),
        limits=address(limits),
        greatest_penalties=address(greatest_penalties),
        workspace=address(workspace),
        workspace_bytes=workspace.nbytes,
        num_found=address(num_found),
        scores=address(scores),
        lengths=address(lengths),
    )
    result = UNFINISHED
    while result == UNFINISHED:
        cache.length, cache.used, num_rows = step.length, step.used, step.num_sentences * beam
        if step.length == step.ancestor_stride or step.used + num_rows > step.num_slots:
            cache.reserve(num_rows, min(longest - step.length, cache.count_new_steps()))
            cache.reserve_working_memory(num_rows, beam, 2 * beam)
            before, tokens = tokens, np.empty((step.num_slots, 3), dtype=np.int32)
            tokens[: step.used] = before[: step.used]
        positions = find_positions(step.length + 1)
        pause = min(step.length + _STEPS_OF_CALL, step.ancestor_stride, len(positions))
        penalties = np.array([compute_penalty(length) for length in range(pause + 1)])
        ids = np.empty((num_sentences, num_best, pause), dtype=np.int32)
        token_scores = np.empty((num_sentences, num_best, pause), dtype=np.float32)
        task.position_table, task.pause, task.penalties = address(positions), pause, address(penalties)
        task.tokens, task.ids, task.token_scores = map(address, (tokens, ids, token_scores))
        result = functions["run_search"](byref(model.structure), byref(task))
    _check_result(result)
    of_all = zip(num_found.tolist(), scores.tolist(), lengths.tolist(), ids, token_scores, strict=True)
    return [
        [
            (own_ids[:length].tolist(), score, own_scores[:length].tolist())
            for score, length, own_ids, own_scores in zip(*(part[:count] for part in found), strict=True)
        ]
        for count, *found in of_all
    ]
