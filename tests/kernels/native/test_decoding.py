"""The parts of the compiled decoder against PyTorch's operations, at every level."""

from ctypes import Structure, byref, c_int32, c_void_p

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.memory import address
from transduce.kernels.native.library import Library
from transduce.kernels.native.packing import Floats, Integers
from transduce.kernels.token_selection import find_best_continuations

END = 1

ANYTHING, NO_END, END_ALONE = 0, 1, 2
"""What may come next in a sentence, as transformer.h numbers it: anything, all but the end, or the end alone."""


class BestTask(Structure):
    """`best_task` of transformer.h: the best continuations that are asked for, and where they are written."""

    _fields_ = (
        ("count", c_int32),
        ("end_id", c_int32),
        ("sums", c_void_p),
        ("limits", c_void_p),
        ("scores", c_void_p),
        ("parents", c_void_p),
        ("ids", c_void_p),
    )


def draw(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed + sum(sizes)))


@pytest.mark.parametrize("num_keys", [1, 2, 15, 16, 17, 33, 70])
@pytest.mark.parametrize(("num_queries", "d_k", "d_v"), [(1, 16, 16), (4, 32, 32), (11, 64, 48), (16, 16, 80)])
def test_attention_equals_torch(library: Library, num_queries: int, d_k: int, d_v: int, num_keys: int) -> None:
    queries, keys, values = draw(num_queries, d_k), draw(num_keys, d_k, seed=1), draw(num_keys, d_v, seed=2)
    scale = d_k**-0.5
    expected = F.scaled_dot_product_attention(*(part.double()[None, None] for part in (queries, keys, values)))[0, 0]

    found = np.empty((num_queries, d_v), dtype=np.float32)
    room = np.empty((num_queries + d_k) * (num_keys + 32), dtype=np.float32)
    arrays = [part.numpy() for part in (queries, keys, values)]
    library.functions["attend"](
        address(arrays[0]), num_queries, address(arrays[1]), address(arrays[2]),
        num_keys, d_k, d_v, scale, address(room), address(found),
    )  # fmt: skip
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-6)


@pytest.mark.parametrize("num_slots", [1, 2, 4, 5, 15, 16, 17, 33, 70])
@pytest.mark.parametrize(("num_heads", "d_k", "d_v"), [(1, 16, 16), (3, 32, 32), (4, 64, 48), (9, 16, 80)])
def test_attention_to_a_cache_equals_torch(
    library: Library, num_heads: int, d_k: int, d_v: int, num_slots: int
) -> None:
    """The keys and values of a query's slots are in any order, with others between them."""
    query, keys, values = (
        draw(num_heads, 1, d_k),
        draw(num_heads, num_slots, d_k, seed=1),
        draw(num_heads, num_slots, d_v, seed=2),
    )
    expected = F.scaled_dot_product_attention(*(part.double()[None] for part in (query, keys, values)))[0]

    slots = np.random.default_rng(1).permutation(3 * num_slots)[:num_slots].astype(np.int32)
    cached = [np.full((3 * num_slots, num_heads * width), np.nan, dtype=np.float32) for width in (d_k, d_v)]
    for cache, part in zip(cached, (keys, values), strict=True):
        cache[slots] = part.transpose(0, 1).flatten(1).numpy()
    queries, found = query.numpy(), np.empty((num_heads, d_v), dtype=np.float32)
    room = np.empty(4 * (num_slots + 16), dtype=np.float32)
    library.functions["attend_to_slots"](
        address(queries), address(cached[0]), address(cached[1]), address(slots),
        num_slots, num_heads, d_k, d_v, d_k**-0.5, address(room), address(found),
    )  # fmt: skip
    np.testing.assert_allclose(found, expected[:, 0].numpy(), atol=2e-6)

    # A head's result depends on no other head.
    alone = np.empty(d_v, dtype=np.float32)
    own = [np.ascontiguousarray(part) for part in (cached[0][:, :d_k], cached[1][:, :d_v])]
    library.functions["attend_to_slots"](
        address(queries), address(own[0]), address(own[1]), address(slots),
        num_slots, 1, d_k, d_v, d_k**-0.5, address(room), address(alone),
    )  # fmt: skip
    np.testing.assert_array_equal(alone, found[0])


def log_softmax(library: Library, logits: Floats) -> Floats:
    found = np.empty_like(logits)
    for row, to in zip(logits, found, strict=True):
        library.functions["log_softmax"](address(row), row.size, address(to))
    return found


@pytest.mark.parametrize("size", [32, 64, 992])
def test_log_softmax_equals_torch(library: Library, size: int) -> None:
    logits = (draw(3, size) * 20).numpy()
    logits[0, -5:] = -np.inf
    logits[1] += 1e6
    logits[2, 3] = 200.0
    expected = torch.from_numpy(logits).double().log_softmax(dim=-1).numpy()
    np.testing.assert_allclose(log_softmax(library, logits), expected, atol=1e-5, rtol=1e-6)


def find_best(
    library: Library, logits: Floats, sums: Floats, count: int, limit: int
) -> tuple[list[float], list[int], list[int]]:
    scores, parents = np.empty(count, np.float32), np.empty(count, np.int32)
    ids: Integers = np.empty(count, np.int32)
    totals, limits, rows = np.empty(count, np.float32), np.array([limit], np.uint8), logits.copy()
    best = BestTask(count, END, *map(address, (sums, limits, scores, parents, ids)))
    library.functions["find_best"](address(rows), len(rows), rows.shape[1], byref(best), address(totals))
    return scores.tolist(), parents.tolist(), ids.tolist()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("limit", [ANYTHING, NO_END, END_ALONE])
@pytest.mark.parametrize(("width", "count"), [(1, 2), (1, 8), (4, 8), (5, 40)])
def test_the_best_continuations_are_those_of_sorting(
    library: Library, width: int, count: int, limit: int, *, ties: bool
) -> None:
    logits = draw(width, 352, seed=count).numpy() * 2
    logits[:, 341:] = -np.inf
    sums = draw(width, seed=3).numpy()
    if ties:
        logits, sums = logits.round(), sums.round()
    sums[0] = -np.inf if width > 1 else 0.0
    log_probs = torch.from_numpy(log_softmax(library, logits))  # of which equal ones are equal to the last bit
    if limit == NO_END:
        log_probs[:, END] = -torch.inf
    if limit == END_ALONE:
        log_probs[:, torch.arange(352) != END] = -torch.inf
    expected = find_best_continuations(log_probs[None], torch.from_numpy(sums)[None], count)
    found = find_best(library, logits, sums, count, limit)
    real = [score > -np.inf and sums[parent] > -np.inf for score, parent in zip(*found[:2], strict=True)]
    for own, other in zip(found, expected, strict=True):
        assert own[: sum(real)] == other[0].tolist()[: sum(real)]
    assert real == sorted(real, reverse=True)
    assert sum(real) == (count if limit != END_ALONE else max(1, width - 1))


def test_a_logit_that_is_no_number_comes_first(library: Library) -> None:
    logits = draw(2, 64).numpy()
    logits[1, 40] = np.nan
    scores, parents, _ = find_best(library, logits, np.zeros(2, np.float32), 4, ANYTHING)
    assert np.isnan(scores[0])
    assert parents[0] == 1
