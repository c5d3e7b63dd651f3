"""Loads the compiled library, chooses the level of instruction sets, and says how its functions are called."""

import ctypes
import os
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import ConfigError
from transduce.kernels.native.build import LEVELS, LIBRARY, compute_source_digest

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TRANSDUCE_KERNELS"
"""The environment variable that forces a level of instruction sets, or PyTorch with `off`."""

OFF = "off"
ROW_ALIGNMENT = 32
HEAD_ALIGNMENT = 16

ANYTHING, NO_END, END_ALONE = 0, 1, 2
"""What may come next in a sentence: anything, anything but the end, or nothing but the end."""

DONE, NO_ROOM, UNKNOWN_ID, NOT_A_NUMBER, UNFINISHED = range(5)
"""What the functions of the encoder, the decoder and the search return."""

# The following structures are those of linear.h, attention.h, transformer.h and search.h, in the same order.


class LinearStructure(Structure):
    """`linear_layer`: a packed matrix with its bias."""

    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("corrections", c_void_p),
        ("inputs", c_int32),
        ("outputs", c_int32),
    )


class NormalizationStructure(Structure):
    """`normalization`: gain and bias."""

    _fields_ = (("gain", c_void_p), ("bias", c_void_p))


class AttentionStructure(Structure):
    """`attention_layer`: the products of an attention."""

    _fields_ = (
        ("projection", LinearStructure),
        ("memory", LinearStructure),
        ("output", LinearStructure),
        ("norm", NormalizationStructure),
    )


class LayerStructure(Structure):
    """`transformer_layer`: of the encoder or the decoder."""

    _fields_ = (
        ("self_attention", AttentionStructure),
        ("cross_attention", AttentionStructure),
        ("inner", LinearStructure),
        ("outer", LinearStructure),
        ("norm", NormalizationStructure),
    )


class TransformerStructure(Structure):
    """`transformer`: all sizes and weights."""

    _fields_ = (
        ("d_model", c_int32),
        ("model_width", c_int32),
        ("inner_width", c_int32),
        ("num_heads", c_int32),
        ("d_k", c_int32),
        ("d_v", c_int32),
        ("query_width", c_int32),
        ("value_width", c_int32),
        ("vocabulary", c_int32),
        ("logit_width", c_int32),
        ("activation", c_int32),
        ("is_pre_norm", c_int32),
        ("num_encoder_layers", c_int32),
        ("num_decoder_layers", c_int32),
        ("score_scale", c_float),
        ("embedding_scale", c_float),
        ("source_embedding", c_void_p),
        ("target_embedding", c_void_p),
        ("encoder", POINTER(LayerStructure)),
        ("decoder", POINTER(LayerStructure)),
        ("encoder_norm", NormalizationStructure),
        ("decoder_norm", NormalizationStructure),
        ("projection", LinearStructure),
    )


class EncoderTask(Structure):
    """`encoder_task`: a batch of sources, and where keys and values of the memory are written."""

    _fields_ = (
        ("num_sentences", c_int32),
        ("ids", c_void_p),
        ("starts", c_void_p),
        ("positions", c_void_p),
        ("places", c_void_p),
        ("key_starts", c_void_p),
        ("memory_keys", c_void_p),
        ("memory_values", c_void_p),
        ("room", c_void_p),
        ("room_bytes", c_uint64),
    )


class DecoderTask(Structure):
    """`decoder_task`: one step, and the state that it reads and extends."""

    _fields_ = (
        ("num_sentences", c_int32),
        ("width", c_int32),
        ("length", c_int32),
        ("last_ids", c_void_p),
        ("parents", c_void_p),
        ("position", c_void_p),
        ("source_starts", c_void_p),
        ("source_lengths", c_void_p),
        ("key_starts", c_void_p),
        ("memory_keys", c_void_p),
        ("memory_values", c_void_p),
        ("num_memory_keys", c_int64),
        ("num_memory_tokens", c_int64),
        ("past_keys", c_void_p),
        ("past_values", c_void_p),
        ("num_slots", c_int64),
        ("used", c_int64),
        ("ancestors", c_void_p),
        ("next_ancestors", c_void_p),
        ("ancestor_stride", c_int32),
        ("most_keys", c_int32),
        ("room", c_void_p),
        ("room_bytes", c_uint64),
    )


class BestTask(Structure):
    """`best_task`: the best continuations that are asked for, and where they are written."""

    _fields_ = (
        ("count", c_int32),
        ("end_id", c_int32),
        ("sums", c_void_p),
        ("limits", c_void_p),
        ("scores", c_void_p),
        ("parents", c_void_p),
        ("ids", c_void_p),
    )


class SearchTask(Structure):
    """`search_task` of search.h: a beam search, and how far it has come."""

    _fields_ = (
        ("step", POINTER(DecoderTask)),
        ("positions", c_void_p),
        ("num_sentences", c_int32),
        ("start_id", c_int32),
        ("end_id", c_int32),
        ("beam", c_int32),
        ("num_best", c_int32),
        ("min_length", c_int32),
        ("pause", c_int32),
        ("limits", c_void_p),
        ("penalties", c_void_p),
        ("greatest_penalties", c_void_p),
        ("tokens", c_void_p),
        ("parents_start", c_int64),
        ("room", c_void_p),
        ("room_bytes", c_uint64),
        ("num_found", c_void_p),
        ("scores", c_void_p),
        ("lengths", c_void_p),
        ("ids", c_void_p),
        ("token_scores", c_void_p),
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "panel": (c_int32, ()),
    "group": (c_int32, ()),
    "offset": (c_int32, ()),
    "group_rows": (c_int32, ()),
    "count_room": (c_uint64, (c_void_p, c_uint64, c_uint64, c_uint64)),
    "run_encoder": (c_int32, (c_void_p, c_void_p)),
    "run_decoder": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "count_search_room": (c_uint64, (c_uint64, c_uint64)),
    "run_search": (c_int32, (c_void_p, c_void_p)),
    "apply_linear": (None, (c_void_p, c_void_p, c_uint64, c_void_p, c_void_p, c_int32, c_void_p, c_void_p)),
    "normalize_rows": (None, (c_void_p, c_void_p, c_uint64, c_int32, c_uint64, c_void_p)),
    "attend": (
        None,
        (c_void_p, c_int32, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_float, c_void_p, c_void_p),
    ),
    "attend_to_slots": (
        None,
        (c_void_p, c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_float, c_void_p, c_void_p),
    ),
    "log_softmax": (None, (c_void_p, c_int32, c_void_p)),
    "find_best": (None, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
}
"""Type of the result and types of the arguments of each function of a level."""


class Library:
    """The functions of one level of instruction sets, and the layout of weights that they want.

    Args:
        loaded: the library as ctypes has it.
        level: a key of `LEVELS`.
    """

    def __init__(self, loaded: ctypes.CDLL, level: str) -> None:
        self.level = level
        self.has_bfloat16 = bool(loaded.transduce_has_bfloat16())
        """Whether the processor, at any level, multiplies numbers of type bfloat16."""
        self.functions: dict[str, Callable[..., Any]] = {}
        """By their names in `level.c`."""
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, f"transduce_{level}_{name}")
            function.restype, function.argtypes = result, arguments
            self.functions[name] = function
        self.panel, self.group, self.offset, self.group_rows = (
            int(self.functions[name]()) for name in ("panel", "group", "offset", "group_rows")
        )


@lru_cache(maxsize=8)
def load_levels(path: Path = LIBRARY) -> dict[str, Library]:
    """The levels of the library at `path` that this processor supports, slowest first; none where there is none.

    A library that was built of other sources counts as none: its functions may be called otherwise.
    """
    try:
        loaded = ctypes.CDLL(str(path))
        digest, supported = loaded.transduce_source_digest, loaded.transduce_supported_levels
    except (OSError, AttributeError):
        return {}
    digest.restype, supported.restype = c_int64, c_int32
    if digest() != compute_source_digest():
        return {}
    bits = supported()
    return {
        level: Library(loaded, level)
        for place, level in enumerate(LEVELS)
        if bits >> place & 1 and hasattr(loaded, f"transduce_{level}_panel")
    }


def find_library() -> Library | None:
    """The library with the fastest level that this processor has, or the one that `TRANSDUCE_KERNELS` names.

    None where the library was not built, or is turned off.

    Raises:
        ConfigError: the variable names no level, or one that is not there.
    """
    levels, name = load_levels(), os.environ.get(VARIABLE, "")
    if name == OFF:
        return None
    if not name:
        return next(reversed(levels.values()), None)
    if name in levels:
        return levels[name]
    allowed = ", ".join([OFF, *levels])
    if name not in LEVELS:
        problem = "there is no such level of instruction sets"
    elif levels:
        problem = "this processor, or the compiler that built the library, does not have it"
    else:
        problem = "the library of compiled kernels was not built, or of other sources; installing the package builds it"
    raise ConfigError(f"{VARIABLE} = {name!r}: {problem}; allowed here: {allowed}")
