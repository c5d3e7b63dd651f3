"""Loads the compiled library, chooses the level of instruction sets, and declares the signatures of its functions."""

import ctypes
import os
import re
import sys
from contextlib import suppress
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import ConfigError
from transduce.kernels.native.build import (
    LEVELS,
    LIBRARY,
    SOURCES,
    compute_source_digest,
    find_levels,
    find_platform,
)

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TRANSDUCE_KERNELS"
"""The environment variable that forces a level of instruction sets, or PyTorch with `off`."""

OFF = "off"
ROW_ALIGNMENT = 32
HEAD_ALIGNMENT = 16

DONE, WORKSPACE_TOO_SMALL, UNKNOWN_ID, NOT_A_NUMBER, UNFINISHED = range(5)
"""Return codes of the functions of the encoder, the decoder and the search."""

# The following structures are those of linear.h, attention.h, transformer.h, search.h and training.h, in this order.


def _list_fields(*groups: tuple[Any, str]) -> list[tuple[str, Any]]:
    """The fields of a structure, from pairs of a type and the names of its fields, separated by spaces."""
    return [(name, kind) for kind, names in groups for name in names.split()]


class LinearStructure(Structure):
    """`linear_layer`: a packed matrix with its bias."""

    _fields_ = _list_fields((c_void_p, "weights bias scales corrections"), (c_int32, "inputs outputs"))


class NormalizationStructure(Structure):
    """`normalization`: gain and bias."""

    _fields_ = _list_fields((c_void_p, "gain bias"))


class AttentionStructure(Structure):
    """`attention_layer`: the products of an attention."""

    _fields_ = _list_fields((LinearStructure, "projection memory output"), (NormalizationStructure, "norm"))


class LayerStructure(Structure):
    """`transformer_layer`: of the encoder or the decoder."""

    _fields_ = _list_fields(
        (AttentionStructure, "self_attention cross_attention"),
        (LinearStructure, "inner outer"),
        (NormalizationStructure, "norm"),
    )


class TransformerStructure(Structure):
    """`transformer`: all sizes and weights."""

    _fields_ = _list_fields(
        (c_int32, "d_model model_width inner_width num_heads d_k d_v query_width value_width vocabulary logit_width"),
        (c_int32, "activation is_pre_norm num_encoder_layers num_decoder_layers"),
        (c_float, "score_scale embedding_scale"),
        (c_void_p, "source_embedding target_embedding"),
        (POINTER(LayerStructure), "encoder decoder"),
        (NormalizationStructure, "encoder_norm decoder_norm"),
        (LinearStructure, "projection"),
    )


class EncoderTaskStructure(Structure):
    """`encoder_task`: a batch of sources, and where keys and values of the memory are written."""

    _fields_ = _list_fields(
        (c_int32, "num_sentences"),
        (c_void_p, "ids starts position_table positions key_starts memory_keys memory_values workspace"),
        (c_uint64, "workspace_bytes"),
    )


class DecoderTaskStructure(Structure):
    """`decoder_task`: one step, and the state that it reads and extends."""

    _fields_ = _list_fields(
        (c_int32, "num_sentences width length"),
        (c_void_p, "last_ids parents position source_starts source_lengths key_starts memory_keys memory_values"),
        (c_int64, "num_memory_keys num_memory_tokens"),
        (c_void_p, "past_keys past_values"),
        (c_int64, "num_slots used"),
        (c_void_p, "ancestors next_ancestors"),
        (c_int32, "ancestor_stride max_keys"),
        (c_void_p, "workspace"),
        (c_uint64, "workspace_bytes"),
    )


class SearchTaskStructure(Structure):
    """`search_task` of search.h: a beam search and its progress."""

    _fields_ = _list_fields(
        (POINTER(DecoderTaskStructure), "step"),
        (c_void_p, "position_table"),
        (c_int32, "num_sentences start_id end_id beam num_best min_length no_repeat_ngram pause"),
        (c_void_p, "limits penalties greatest_penalties tokens"),
        (c_int64, "parents_start"),
        (c_void_p, "workspace"),
        (c_uint64, "workspace_bytes"),
        (c_void_p, "num_found scores lengths ids token_scores"),
    )


class BiasTaskStructure(Structure):
    """`bias_task` of training.h: gradients of relu(x + bias), or of x + bias."""

    _fields_ = _list_fields(
        (c_void_p, "output_gradient outputs inputs_gradient bias_gradient"),
        (c_uint64, "num_rows"),
        (c_int32, "width is_bfloat16"),
    )


class NormalizationTaskStructure(Structure):
    """`normalization_task` of training.h: the arrays of a layer normalisation, forward and backward."""

    _fields_ = _list_fields(
        (c_void_p, "inputs gain bias outputs statistics output_gradient inputs_gradient gain_gradient bias_gradient"),
        (c_uint64, "num_rows"),
        (c_int32, "width"),
        (c_float, "epsilon"),
    )


class HeadArrayStructure(Structure):
    """`head_array` of training.h: numbers [sentences, heads, positions, width]."""

    _fields_ = _list_fields((c_void_p, "numbers"), (c_int64, "sentence_stride head_stride stride"))


class AttentionTaskStructure(Structure):
    """`attention_task` of training.h: the arrays of an attention, forward and backward."""

    _fields_ = _list_fields(
        (HeadArrayStructure, "queries keys values attended"),
        (c_void_p, "mask"),
        (c_int64, "mask_sentence_stride mask_query_stride"),
        (c_void_p, "weights"),
        (HeadArrayStructure, "output_gradient queries_gradient keys_gradient values_gradient"),
        (c_int32, "num_sentences num_heads num_queries num_keys d_k d_v is_bfloat16"),
        (c_float, "scale"),
    )


class SoftmaxTaskStructure(Structure):
    """`softmax_task` of training.h: rows of logits, and what the loss needs of them."""

    _fields_ = _list_fields(
        (c_void_p, "logits targets log_totals target_logits greatest"),
        (c_uint64, "num_rows"),
        (c_int32, "width is_bfloat16"),
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "panel": (c_int32, ()),
    "group": (c_int32, ()),
    "offset": (c_int32, ()),
    "group_rows": (c_int32, ()),
    "count_workspace": (c_uint64, (c_void_p, c_uint64, c_uint64, c_uint64)),
    "run_encoder": (c_int32, (c_void_p, c_void_p)),
    "run_decoder": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "count_search_workspace": (c_uint64, (c_uint64, c_uint64)),
    "run_search": (c_int32, (c_void_p, c_void_p)),
    "key_alignment": (c_int32, ()),
    "drop": (None, (c_void_p, c_void_p, c_uint64, c_uint32, c_uint64, c_int32)),
    "differentiate_bias": (None, (c_void_p,)),
    "add_numbers": (None, (c_void_p, c_void_p, c_uint64, c_int32)),
    "normalize": (None, (c_void_p,)),
    "differentiate_normalization": (None, (c_void_p,)),
    "count_attention_workspace": (c_uint64, (c_void_p,)),
    "attend_heads": (None, (c_void_p, c_void_p)),
    "differentiate_heads": (None, (c_void_p, c_void_p)),
    "softmax_rows": (None, (c_void_p, c_void_p)),
    "apply_linear": (None, (c_void_p, c_void_p, c_uint64, c_void_p, c_void_p, c_int32, c_void_p, c_void_p)),
    "normalize_rows": (None, (c_void_p, c_void_p, c_uint64, c_int32, c_uint64, c_void_p)),
    "attend": (None, (c_void_p, c_int32, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_float, c_void_p, c_void_p)),
    "attend_to_slots": (
        None,
        (c_void_p, c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_int32, c_float, c_void_p, c_void_p),
    ),
    "log_softmax": (None, (c_void_p, c_int32, c_void_p)),
    "find_best": (None, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
}
"""Type of the result and types of the arguments of each function of a level."""


class Library:
    """The functions of one level of instruction sets, and the layout of weights that they require.

    Args:
        loaded: the ctypes library.
        level: a key of `LEVELS`.
    """

    def __init__(self, loaded: ctypes.CDLL, level: str) -> None:
        self.level = level
        self.has_amx = bool(loaded.transduce_has_amx())
        """Whether the processor, at any level, has AMX for matrices of type bfloat16."""
        self.functions: dict[str, Callable[..., Any]] = {}
        """By their names in `level.c`."""
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, f"transduce_{level}_{name}")
            function.restype, function.argtypes = result, arguments
            self.functions[name] = function
        self.panel, self.group, self.offset, self.group_rows, self.key_alignment = (
            int(self.functions[name]()) for name in ("panel", "group", "offset", "group_rows", "key_alignment")
        )


@lru_cache(maxsize=8)
def load_levels(path: Path = LIBRARY) -> dict[str, Library]:
    """The levels of the library at `path` that this processor supports, slowest first; empty if there is no library.

    A library built from other sources counts as missing, as its functions may have other signatures.
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
        for bit, level in enumerate(LEVELS)
        if bits >> bit & 1 and hasattr(loaded, f"transduce_{level}_panel")
    }


def explain_missing_library() -> str | None:
    """A message with cause and remedy if compiled kernels are missing or outdated on a processor that they make faster.

    None if they are loaded, if `TRANSDUCE_KERNELS` is set, or if the processor has only the portable level.
    """
    if os.environ.get(VARIABLE, "") or load_levels() or not _has_vectors():
        return None
    problem = "are outdated" if LIBRARY.exists() else "are missing"
    return (
        f"the compiled kernels {problem}, and PyTorch translates instead, more slowly on a CPU: install a C compiler, "
        f"and run {sys.executable} {SOURCES / 'build.py'}; {VARIABLE}={OFF} turns this message off"
    )


def _has_vectors() -> bool:
    """Whether the processor has a level of instruction sets above portable, as far as the system says."""
    if len(find_levels(find_platform())) == 1:
        return False
    with suppress(OSError):
        flags = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return flags is None or {"avx2", "fma"} <= set(flags[1].split())  # ARM's have other names, and all have NEON
    return True


def find_library() -> Library | None:
    """The library with the fastest level that this processor supports, or the one that `TRANSDUCE_KERNELS` names.

    None if the library was not built, or is turned off.

    Raises:
        ConfigError: the variable does not name a level, or one that is not available.
    """
    name = os.environ.get(VARIABLE, "")
    if name == OFF:  # nothing is loaded, nor is the system asked for AMX
        return None
    levels = load_levels()
    if not name:
        return next(reversed(levels.values()), None)
    if name in levels:
        return levels[name]
    allowed = ", ".join([OFF, *levels])
    if name not in LEVELS:
        problem = "unknown level of instruction sets"
    elif levels:
        problem = "not supported by this processor, or by the compiler that built the library"
    else:
        problem = "the library of compiled kernels is missing or outdated; installing the package builds it"
    raise ConfigError(f"{VARIABLE} = {name!r}: {problem}; allowed here: {allowed}")
