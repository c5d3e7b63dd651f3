"""What additive attention costs in comparison with dot-product attention (paper 3.2.1)."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.lab.conclusion import Chart, Claim, Conclusion
from transduce.lab.cost import measure_saved_bytes, measure_seconds
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import BySeed, Results
from transduce.lab.statistics import judge_exactly, judge_ratio_above
from transduce.model import AdditiveScore, DotScore, attention_weights
from transduce.pages import Series, Table

NUM_HEADS = 4
LENGTHS = (16, 32, 64, 128, 256, 512)
WIDTHS = (8, 16, 32, 64, 128, 256)
"""Values of d_k, for each of which as many numbers make a value."""

USUAL_LENGTH, USUAL_WIDTH = 128, 64
"""The length at which d_k varies, and the d_k with which the length does (the paper's)."""

LONGEST = LENGTHS[-1]

ADDITIVE, DOT, FUSED = "additive", "dot product", "dot product, fused"

MUCH = 2.0
"""Ratio from which one quantity counts as much larger than another; below, two quantities count as similar."""

KINDS = (ADDITIVE, DOT, FUSED)

MAX_SECONDS = 6.0
"""Most time for which the computations of one size are repeated."""

COMPLEXITY = Claim("3.2.1", "Additive and dot-product attention are similar in theoretical complexity.")
FASTER = Claim("3.2.1", "Dot-product attention is much faster in practice.")
SPACE = Claim("3.2.1", "Dot-product attention is more space-efficient in practice.")
OPTIMIZED = Claim("3.2.1", "This is because it can be implemented using highly optimised matrix multiplication code.")

SETTING = (
    f"One sentence with {NUM_HEADS} heads in float32 on this processor. Both kinds compute weights and multiply values "
    "by them with the same code and differ in the scores alone; the fused attention never stores the weights."
)
FOLDING = (
    "The matrices that additive attention multiplies queries and keys by could be combined with those of the "
    "projections before them; here they are computed, and counted, by themselves."
)


def count_pair_operations(attention: str, d_k: int) -> int:
    """Operations of one head for each pair of a query and a key: the factor of length² in the paper's Table 1.

    An operation is an addition, a multiplication or another function of one number, such as tanh or exp.
    """
    # The sum of query and key, its tanh, and the product with v; or the product q·k and the division by sqrt(d_k).
    score = 4 * d_k if attention == ADDITIVE else 2 * d_k + 1
    softmax, weighted_sum = 5, 2 * d_k
    return score + softmax + weighted_sum


def count_operations(attention: str, length: int, d_k: int) -> int:
    """Operations of all heads in attention of `length` queries to as many keys.

    To those of the pairs, additive attention adds W q and U k, once for each position.
    """
    of_positions = 4 * length * d_k**2 if attention == ADDITIVE else 0
    return NUM_HEADS * (length**2 * count_pair_operations(attention, d_k) + of_positions)


def count_saved_bytes(attention: str, length: int, d_k: int) -> int:
    """Bytes that the backward pass needs, in float32: queries, keys, values, and what the scores keep of each pair.

    That is one weight for each pair of a query and a key, and with additive scores the hidden layer, d_k numbers, too.
    Fused attention keeps its output and one number for each query instead of the weights.
    """
    inputs, pairs = 3 * length * d_k, length**2
    of_pairs = {ADDITIVE: pairs * (1 + d_k), DOT: pairs, FUSED: length * (d_k + 1)}
    return 4 * NUM_HEADS * (inputs + of_pairs[attention])


def make_attention(attention: str, d_k: int) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """A function that computes attention in this way, from queries, keys and values together, and a mask.

    "dot product" and "additive" both compute weights by the model's `attention_weights` and multiply values by them;
    "dot product, fused" is PyTorch's `scaled_dot_product_attention`.
    """
    score = AdditiveScore(d_k) if attention == ADDITIVE else DotScore(d_k, scaled=True)
    for matrix in score.parameters():
        torch.nn.init.xavier_uniform_(matrix)

    def attend(inputs: Sequence[Tensor], mask: Tensor) -> Tensor:
        queries, keys, values = inputs
        if attention == FUSED:
            return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return attention_weights(score, queries, keys, mask) @ values

    return attend


def measure_cost(length: int, d_k: int, seconds: float, seed: int) -> Mapping[str, float]:
    """Time and memory of every attention.

    Args:
        length: number of queries, and of keys.
        d_k: width of a query, a key and a value.
        seconds: how long all calls together are repeated.
        seed: of the numbers that are attended to.

    Returns:
        For each of `KINDS`, named as in "both, additive": "forward" and "both": seconds of the forward pass without
        gradients, and of forward and backward pass together; "saved": bytes kept for the backward pass.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(1, NUM_HEADS, length, d_k, generator=generator) for _ in range(3)]
    with_gradients = [one.clone().requires_grad_() for one in inputs]
    mask = torch.ones(1, 1, 1, length, dtype=torch.bool)
    outer = torch.ones_like(inputs[0])
    attentions = {kind: make_attention(kind, d_k) for kind in KINDS}

    @torch.no_grad()
    def forward(kind: str) -> None:
        attentions[kind](inputs, mask)

    def both(kind: str) -> None:
        attentions[kind](with_gradients, mask).backward(outer)  # type: ignore[no-untyped-call]

    calls = {f"{one.__name__}, {kind}": partial(one, kind) for one in (forward, both) for kind in KINDS}
    saved = {
        f"saved, {kind}": float(measure_saved_bytes(partial(attend, with_gradients, mask)))
        for kind, attend in attentions.items()
    }
    return {**measure_seconds(calls, seconds), **saved}


def list_sizes() -> list[tuple[int, int]]:
    """Pairs of length and d_k: all lengths with the usual d_k, and all d_k with the usual length."""
    sizes = [(length, USUAL_WIDTH) for length in LENGTHS] + [(USUAL_LENGTH, d_k) for d_k in WIDTHS]
    return list(dict.fromkeys(sizes))


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan a trial for each size."""
    sizes = list_sizes()
    share = 0.5 * laboratory.budget / (len(sizes) * len(laboratory.seeds))
    seconds = float(laboratory.decide_once("seconds", lambda: min(MAX_SECONDS, share)))
    return [Trial({"length": length, "d_k": d_k}, partial(measure_cost, length, d_k, seconds)) for length, d_k in sizes]


def conclude(results: Results) -> Conclusion:
    """Verdicts on the numbers of operations of all sizes, and on time and memory at the longest."""
    of_pairs = [count_pair_operations(ADDITIVE, d_k) / count_pair_operations(DOT, d_k) for d_k in WIDTHS]
    of_all = [count_operations(ADDITIVE, *size) / count_operations(DOT, *size) for size in list_sizes()]
    longest = {"length": LONGEST, "d_k": USUAL_WIDTH}

    def find(quantity: str, kind: str) -> BySeed:
        return results.by_seed(f"{quantity}, {kind}", **longest)

    where = f"at length {LONGEST} and d_k = {USUAL_WIDTH}"
    saved = {kind: results.mean(f"saved, {kind}", **longest) for kind in (ADDITIVE, DOT)}
    operations = count_operations(ADDITIVE, LONGEST, USUAL_WIDTH) / count_operations(DOT, LONGEST, USUAL_WIDTH)
    as_many = {seed: operations * seconds for seed, seconds in find("forward", DOT).items()}
    claim_results = [
        judge_exactly(
            COMPLEXITY,
            f"for each pair of a query and a key, additive attention takes at most {max(of_pairs):.2f} times as many "
            f"operations as dot-product attention, where less than {MUCH:g} counts as similar; with what it computes "
            f"once for each position, {min(of_all):.2f} to {max(of_all):.2f} times as many, the more the shorter the "
            "sentence and the larger d_k",
            holds=max(of_pairs) < MUCH,
        ),
        judge_ratio_above(
            FASTER,
            find("both", ADDITIVE),
            find("both", DOT),
            MUCH,
            f"time of additive attention divided by that of dot-product attention, forward and backward, {where}",
        ),
        judge_exactly(
            SPACE,
            f"additive attention keeps {saved[ADDITIVE] / 1e6:,.1f} MB for the backward pass and dot-product attention "
            f"{saved[DOT] / 1e6:,.1f} MB, {where}",
            holds=None if any(map(math.isnan, saved.values())) else saved[ADDITIVE] > saved[DOT],
        ),
        judge_ratio_above(
            OPTIMIZED,
            find("forward", ADDITIVE),
            as_many,
            1.0,
            "operations a second of dot-product attention divided by those of additive attention, forward pass "
            f"{where}",
        ),
    ]
    return Conclusion(
        claim_results,
        charts=_draw_charts(results),
        tables=[_tabulate(results)],
        remarks=[SETTING, FOLDING],
    )


def _draw_charts(results: Results) -> list[Chart]:
    def measured(quantity: str, factor: float, over: str, **fixed: int) -> list[Series]:
        curves = {kind: results.curve(over, f"{quantity}, {kind}", **fixed) for kind in KINDS}
        return [Series(kind, [(x, factor * y) for x, y in curve]) for kind, curve in curves.items()]

    def draw(title: str, series: Sequence[Series], x_label: str, y_label: str) -> Chart:
        return Chart.draw_lines(title, series, x_label, y_label, log=True, log_x=True)

    theory = [
        Series(f"{kind}, theory", [(float(n), count_saved_bytes(kind, n, USUAL_WIDTH) / 1e6) for n in LENGTHS])
        for kind in KINDS
    ]
    return [
        draw(
            f"Time over the length, d_k = {USUAL_WIDTH}",
            measured("both", 1e3, "length", d_k=USUAL_WIDTH),
            "length",
            "ms, forward and backward",
        ),
        draw(
            f"Time over d_k, length {USUAL_LENGTH}",
            measured("both", 1e3, "d_k", length=USUAL_LENGTH),
            "d_k",
            "ms, forward and backward",
        ),
        draw(
            f"Memory kept for the backward pass, d_k = {USUAL_WIDTH}",
            [*measured("saved", 1e-6, "length", d_k=USUAL_WIDTH), *theory],
            "length",
            "MB",
        ),
        draw(
            f"Additive divided by dot product, d_k = {USUAL_WIDTH}",
            [
                Series("time", _divide_curves(results, "both")),
                Series("time of the forward pass", _divide_curves(results, "forward")),
                Series("memory", _divide_curves(results, "saved")),
                Series(
                    "operations, theory",
                    [
                        (float(n), count_operations(ADDITIVE, n, USUAL_WIDTH) / count_operations(DOT, n, USUAL_WIDTH))
                        for n in LENGTHS
                    ],
                ),
            ],
            "length",
            "ratio",
        ),
    ]


def _divide_curves(results: Results, quantity: str) -> list[tuple[float, float]]:
    own, other = (dict(results.curve("length", f"{quantity}, {kind}", d_k=USUAL_WIDTH)) for kind in (ADDITIVE, DOT))
    return [(length, own[length] / other[length]) for length in own if length in other]


def _tabulate(results: Results) -> Table:
    rows = []
    for length, d_k in list_sizes():
        for kind in KINDS:
            forward, both, saved = (
                results.mean(f"{quantity}, {kind}", length=length, d_k=d_k) for quantity in ("forward", "both", "saved")
            )
            operations = count_operations(kind, length, d_k)
            if math.isfinite(forward):
                numbers = [
                    f"{operations / 1e6:,.1f}",
                    f"{1000 * forward:,.3f}",
                    f"{operations / forward / 1e9:,.1f}",
                    f"{1000 * both:,.3f}",
                    f"{saved / 1e6:,.3f}",
                    f"{count_saved_bytes(kind, length, d_k) / 1e6:,.3f}",
                ]
                rows.append([kind, str(length), str(d_k), *numbers])
    heads = [
        "attention",
        "length",
        "d_k",
        "million operations, theory",
        "forward, ms",
        "billion operations a second",
        "forward and backward, ms",
        "memory kept, MB",
        "memory kept, theory, MB",
    ]
    return Table("Cost of one attention: means over the seeds", heads, rows)


EXPERIMENT = Experiment(
    title="What additive attention costs in comparison with dot products",
    claims=[COMPLEXITY, FASTER, SPACE, OPTIMIZED],
    method=(
        "Random queries attend to as many random keys. The time of the forward pass, the time of forward and backward "
        "pass together, and the memory kept between them are measured over the length of the sentence and over d_k, "
        "for additive scores, for dot products, and for PyTorch's fused attention with dot products. Operations and "
        "bytes by theory are counted from the formulas."
    ),
    plan=plan,
    conclude=conclude,
)
