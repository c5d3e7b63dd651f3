"""The beam search of a batch in one call of the compiled library, but for the memory that it asks for."""

from collections.abc import Callable, Sequence
from ctypes import byref, pointer

import numpy as np

from transduce.errors import ConfigError, UserError
from transduce.kernels.native.decoding import DecoderCache, check_result
from transduce.kernels.native.library import UNFINISHED, SearchTaskStructure
from transduce.kernels.native.packing import Floats, address

_STEPS_OF_CALL = 32
"""Steps after which a call returns, so that Python notices Ctrl-C."""
_MAX_STEPS = 2**31 - 1
_WIDEST_BEAM = 2**29

FoundHypothesis = tuple[list[int], float, list[float]]
"""Ids, the last of which is the end, score, and the log-probability of each id."""


def run_beam_search(
    cache: DecoderCache,
    find_positions: Callable[[int], Floats],
    compute_penalty: Callable[[int], float],
    *,
    ends: tuple[int, int],
    max_lengths: Sequence[int],
    min_length: int,
    beam: int,
    num_best: int,
) -> list[list[FoundHypothesis]]:
    """Up to `num_best` hypotheses of each sentence, best first: to the last bit those of `search.beam_search`.

    What `find_positions` raises is passed on.

    Args:
        cache: the cache of a batch before the first token; it cannot be used afterwards.
        find_positions: gives an array with at least this number of positions, [positions, d_model].
        compute_penalty: the length penalty of a number of tokens.
        ends: the id before the first token, and the id that ends a hypothesis.
        max_lengths: [sentences], the greatest number of tokens, the end included, at least 1.
        min_length: the least number of tokens, where the greatest is not smaller.
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
    model.check_ids(min(ends), max(ends))
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
        start_id=ends[0],
        end_id=ends[1],
        beam=beam,
        num_best=num_best,
        min_length=min(min_length, _MAX_STEPS),
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
    check_result(result)
    of_all = zip(num_found.tolist(), scores.tolist(), lengths.tolist(), ids, token_scores, strict=True)
    return [
        [
            (own_ids[:length].tolist(), score, own_scores[:length].tolist())
            for score, length, own_ids, own_scores in zip(*(part[:count] for part in found), strict=True)
        ]
        for count, *found in of_all
    ]
