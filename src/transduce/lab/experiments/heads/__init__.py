"""One head against several at equal cost (paper 3.2.2, Table 3 A)."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.inspection.attention import list_attentions
from transduce.lab.conclusion import Chart, Claim, Conclusion
from transduce.lab.cost import measure_seconds
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.experiments.heads.two_position_task import LENGTH, compute_entropy, train_and_test
from transduce.lab.laboratory import SETTINGS, Laboratory
from transduce.lab.measurements import Results, Settings
from transduce.lab.statistics import confidence_interval, format_mean, judge_larger, judge_ratio_equal
from transduce.lab.variants import tabulate_variants
from transduce.model import KeysAndValues, MultiHeadAttention, as_transformer, attention_weights
from transduce.model.attention import Mask
from transduce.pages import Series, Table
from transduce.text import Pair
from transduce.translation.confidence.scoring import ForcedDecoder, encode_pairs

D_MODEL = int(SETTINGS["model.d_model"])
USUAL = int(SETTINGS["model.num_heads"])
TRAINED = (1, USUAL, 16, 32)
"""Numbers of heads with which models are trained: d_k falls from 64 to 2."""

IN_TASK = (1, 2, 4, 8)
"""Numbers of heads with which the task of two positions is learned."""

MIN_TASK_UPDATES, MAX_TASK_UPDATES = 10, 1000
"""Fewest and most updates of the task; after the latter, two heads solve it nearly always."""

NUM_PROBED = 20
"""Updates of the task whose time is measured to plan it."""

TIMED = (1, 2, 4, 8, 16, 32)
"""Numbers of heads whose time is measured."""

OF_PAPER = 8
"""The paper's number of heads, whose time is compared with that of one."""

WIDTH, SENTENCES, TOKENS = 512, 8, 64
"""The paper's d_model, and the sentences whose time is measured."""

SIMILAR_TIME = 0.5
"""Part of the time by which two computations of similar cost may differ: by theory, the softmax alone depends on the
number of heads, and it is less than a tenth of the operations."""

ONE_PRODUCT, LOOP = "one product for all heads", "one head after another"

ENTROPIES = {"encoder": "encoder", "decoder": "decoder", "encoder_decoder": "encoder-decoder"}
"""The three attentions, and their names in a chart."""

MAX_SECONDS = 10.0
"""Most time for which the computations with all numbers of heads are repeated."""

JOINTLY = Claim(
    "3.2.2",
    "Several heads attend jointly to information at different positions; with a single head, averaging inhibits this.",
)
COST = Claim(
    "3.2.2",
    "As each head is narrower, the total cost of several heads is similar to that of a single head of full width.",
)
SINGLE = Claim("6.2, Table 3 (A)", "A single head is worse than the best number of heads (by 0.9 BLEU).")
TOO_MANY = Claim("6.2, Table 3 (A)", "With too many heads, quality drops off as well.")


SETTING = (
    "d_k = d_v = d_model / heads, so all numbers of heads have the same parameters. As d_model is "
    f"{D_MODEL} and not 512, each of {TRAINED[-1]} heads is {D_MODEL // TRAINED[-1]} wide, and not 16 as in the paper. "
    "Losses on held-out text decide, as BLEU of this easy text comes near its maximum."
)
TASK = (
    f"In the task, a query names two of {LENGTH} positions, and asks for the tokens there, in this order. One layer of "
    "attention and feed-forward network learns it from random examples. Where the one head gives both positions the "
    "same weight, it cannot tell which token is whose; the preference says how far heads avoid this."
)


class LoopedHeads(nn.Module):
    """The heads of a `MultiHeadAttention` computed one after another, each with three projections of its own.

    This is the formula of the paper, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), as it stands.
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.scale = attention.d_k**-0.5
        widths = [attention.query_width, attention.query_width, attention.num_heads * attention.d_v]
        stacked = attention.projection.weight, attention.projection.bias
        parts = zip(*(torch.split(one, widths) for one in stacked), strict=True)
        projections = [
            zip(weight.chunk(attention.num_heads), bias.chunk(attention.num_heads), strict=True)
            for weight, bias in parts
        ]
        # W^Q, W^K and W^V of the first head, then those of the second one, and so on.
        self.projections = nn.ModuleList(_copy_linear(*one) for head in zip(*projections, strict=True) for one in head)
        self.output = _copy_linear(attention.output.weight, attention.output.bias)

    def forward(self, inputs: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """Attention of every position to every position."""
        attended = []
        for number in range(0, len(self.projections), 3):
            queries, keys, values = (projection(inputs) for projection in self.projections[number : number + 3])
            attended.append((queries @ keys.transpose(1, 2) * self.scale).softmax(dim=-1) @ values)
        outputs: Tensor = self.output(torch.cat(attended, dim=-1))
        return outputs


def _copy_linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    copied = nn.Linear(weight.size(1), weight.size(0))
    with torch.no_grad():
        copied.weight.copy_(weight)
        copied.bias.copy_(bias)
    return copied


def make_attention(kind: str, num_heads: int) -> Callable[[Tensor], Tensor]:
    """Self-attention with `num_heads` heads in the width `WIDTH`, computed in this way."""
    attention = MultiHeadAttention(TransformerConfig(d_model=WIDTH, num_heads=num_heads))
    if kind == LOOP:
        return LoopedHeads(attention)

    def attend(inputs: Tensor) -> Tensor:
        mask = torch.ones(1, 1, 1, inputs.size(1), dtype=torch.bool)
        queries, keys_and_values = attention.project(inputs)
        return attention.attend(queries, keys_and_values, mask)

    return attend


def measure_times(seconds: float, seed: int) -> Mapping[str, float]:
    """Seconds of the forward and backward pass of self-attention to some sentences, measured for `seconds` in all.

    Returns:
        The times of both kinds and all numbers of heads, named as by `_name_time`.
    """
    torch.manual_seed(seed)
    inputs = torch.randn(SENTENCES, TOKENS, WIDTH, requires_grad=True)
    outer = torch.ones_like(inputs)
    attentions = {
        _name_time(kind, num_heads): make_attention(kind, num_heads)
        for num_heads in TIMED
        for kind in (ONE_PRODUCT, LOOP)
    }

    def both(name: str) -> None:
        attentions[name](inputs).backward(outer)  # type: ignore[no-untyped-call]

    return measure_seconds({name: partial(both, name) for name in attentions}, seconds)


def _name_time(kind: str, num_heads: int) -> str:
    return f"{kind}, {num_heads} heads"


def count_operations(num_heads: int) -> int:
    """Operations of the forward pass of self-attention to the sentences whose time is measured.

    Of the four projections, of scores and weighted sums, and of the softmax: the last alone depends on the number of
    heads.
    """
    projections = 4 * 2 * TOKENS * WIDTH**2
    products, softmax = 4 * TOKENS**2 * WIDTH, 6 * num_heads * TOKENS**2
    return SENTENCES * (projections + products + softmax)


def measure_entropies(decoder: ForcedDecoder, pairs: Sequence[Pair]) -> Mapping[str, float]:
    """How evenly the heads of a model attend: entropies divided by the largest possible.

    Args:
        decoder: the model, a Transformer.
        pairs: sources and their translations, which are read by forced decoding.

    Returns:
        The mean over queries and heads of the "encoder", "decoder" and "encoder_decoder" attentions, and that of the
        head with the "lowest" and with the "highest" entropy. The largest possible entropy is ln of the number of
        visible keys; a query that sees one key only is left out.
    """
    model, tokenizer = as_transformer(decoder.model, "entropies of heads"), decoder.tokenizer
    attentions = list_attentions(model)
    sums = {one: torch.zeros(model.config.num_heads, dtype=torch.float64) for one in attentions}
    counts = dict.fromkeys(attentions, 0)
    encoded = encode_pairs(tokenizer, pairs)
    sources = [tokenizer.as_source(source) for source, _ in encoded]
    targets = [tokenizer.as_target(target) for _, target in encoded]
    with decoder.make_batches(sources, targets) as batches:
        for _, batch in batches:

            def attend(
                attention: MultiHeadAttention, queries: Tensor, keys_and_values: KeysAndValues, mask: Mask
            ) -> Tensor:
                is_source = attentions[attention].attention == "encoder"
                is_real = batch.source_mask if is_source else batch.target_mask  # noqa: B023 - called in this round
                num_visible = mask.sum(dim=-1).expand(len(queries), 1, queries.size(2)).squeeze(1)
                is_counted = is_real & (num_visible > 1)
                entropies = compute_entropy(attention_weights(attention.score, queries, keys_and_values.keys, mask))
                shares = entropies.transpose(1, 2)[is_counted] / num_visible[is_counted].log()[:, None]
                sums[attention] += shares.double().sum(dim=0)
                counts[attention] += len(shares)
                return attention.attend(queries, keys_and_values, mask)

            memory = model.encode(batch.source_ids, batch.source_mask, attend)
            model.decode_hidden(batch.target_ids, batch.target_mask, memory, batch.source_mask, attend)
    means = {one: sums[one] / counts[one] for one in attentions}
    of_kind = {
        kind: float(torch.cat([means[one] for one, place in attentions.items() if place.attention == kind]).mean())
        for kind in ENTROPIES
    }
    all_heads = torch.cat(list(means.values()))
    return {**of_kind, "lowest": float(all_heads.min()), "highest": float(all_heads.max())}


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: the task of two positions, the times, and models with each number of heads."""
    num_seeds = len(laboratory.seeds)
    for_task, for_time = 0.25 * laboratory.budget, 0.1 * laboratory.budget
    task_updates = int(
        laboratory.decide_once("task updates", lambda: _plan_task(for_task / (len(IN_TASK) * num_seeds)))
    )
    seconds = float(laboratory.decide_once("seconds", lambda: min(MAX_SECONDS, 0.5 * for_time / num_seeds)))
    variants: dict[str, Settings] = {_name(num_heads): {"model.num_heads": num_heads} for num_heads in TRAINED}
    updates = laboratory.plan_updates(list(variants.values()), reserve=for_task + for_time)

    def train(settings: Settings, seed: int) -> Mapping[str, float]:
        trained = laboratory.train(settings, updates, seed)
        if "diverged" in trained:
            return trained
        bundle = laboratory.find_run(settings, updates, seed) / "best"
        decoder = ForcedDecoder.load(bundle, device="cpu")
        return {**trained, **measure_entropies(decoder, laboratory.test_pairs)}

    return [
        *(Trial({"task heads": n}, partial(_learn_task, n, task_updates), cost=0.3) for n in IN_TASK),
        Trial({"timed": "self-attention"}, partial(measure_times, seconds), cost=0.5),
        *(Trial({"variant": name}, partial(train, settings)) for name, settings in variants.items()),
    ]


def _plan_task(seconds: float) -> int:
    """The number of updates of the task that take this time, within `MIN_TASK_UPDATES` and `MAX_TASK_UPDATES`."""

    def measure(num_updates: int) -> float:
        started = time.perf_counter()
        train_and_test(max(IN_TASK), num_updates, seed=1)
        return time.perf_counter() - started

    measure(1)  # which loads what it needs
    around = measure(1)
    of_update = max(1e-4, (measure(1 + NUM_PROBED) - around) / NUM_PROBED)
    return max(MIN_TASK_UPDATES, min(MAX_TASK_UPDATES, int((seconds - around) / of_update)))


def _learn_task(num_heads: int, num_updates: int, seed: int) -> Mapping[str, float]:
    return train_and_test(num_heads, num_updates, seed)


def _name(num_heads: int) -> str:
    return f"{num_heads} {'head' if num_heads == 1 else 'heads'}, d_k = {D_MODEL // num_heads}"


def conclude(results: Results) -> Conclusion:
    """Verdicts on the task from two heads and one, on time from the paper's eight and one, and on text from losses."""
    losses = {num_heads: results.by_seed("loss", variant=_name(num_heads)) for num_heads in TRAINED}
    one, several = (results.by_seed(_name_time(ONE_PRODUCT, num_heads)) for num_heads in (1, OF_PAPER))
    two, single = (results.by_seed("right", **{"task heads": num_heads}) for num_heads in (2, 1))
    claim_results = [
        judge_larger(JOINTLY, two, single, "share of examples with both tokens right, with two heads minus with one"),
        judge_ratio_equal(
            COST,
            several,
            one,
            f"time with {OF_PAPER} heads divided by time with one, which by theory is "
            f"{count_operations(OF_PAPER) / count_operations(1):.3f} for the operations",
            tolerance=SIMILAR_TIME,
        ),
        judge_larger(
            SINGLE, losses[1], losses[USUAL], f"loss with 1 head minus loss with {USUAL} heads, in nats per token"
        ),
        judge_larger(
            TOO_MANY,
            losses[TRAINED[-1]],
            losses[USUAL],
            f"loss with {TRAINED[-1]} heads minus loss with {USUAL} heads, in nats per token",
        ),
    ]
    return Conclusion(
        claim_results,
        charts=_draw_charts(results),
        tables=[tabulate_variants(results), _tabulate_task(results), _tabulate_times(results)],
        remarks=[SETTING, TASK],
    )


def _draw_charts(results: Results) -> list[Chart]:
    def draw(title: str, series: Sequence[Series], y_label: str) -> Chart:
        return Chart.draw_lines(title, series, "heads", y_label, log_x=True)

    def trained(quantity: str) -> list[tuple[float, float]]:
        found = [(float(n), results.by_seed(quantity, variant=_name(n))) for n in TRAINED]
        return [(n, sum(values.values()) / len(values)) for n, values in found if values]

    return [
        draw(
            "The task of two positions",
            [
                Series(name, results.curve("task heads", quantity))
                for name, quantity in (
                    ("both tokens right", "right"),
                    ("weight of the two positions in a head", "two positions"),
                    ("preference of a head for one of them", "preference"),
                )
            ],
            "share",
        ),
        draw("Loss on held-out text", [Series("", trained("loss"))], "nats per token"),
        draw(
            "Entropy of the heads of trained models",
            [
                *(Series(name, trained(kind)) for kind, name in ENTROPIES.items()),
                Series("lowest of all heads", trained("lowest")),
                Series("highest of all heads", trained("highest")),
            ],
            "part of largest",
        ),
        draw(
            f"Time of self-attention, d_model = {WIDTH}",
            [
                Series(kind, [(float(n), 1000 * results.mean(_name_time(kind, n))) for n in TIMED])
                for kind in (ONE_PRODUCT, LOOP)
                if results.by_seed(_name_time(kind, 1))
            ],
            "ms",
        ),
    ]


def _tabulate_task(results: Results) -> Table:
    quantities = ("right", "entropy", "two positions", "preference")
    rows = [[str(n), *(format_mean(results, one, ".3f", **{"task heads": n}) for one in quantities)] for n in IN_TASK]
    heads = ["heads", "both tokens right", "entropy, nats", "weight of the two positions", "preference for one"]
    return Table("The task of two positions: mean over the seeds (95 % confidence interval)", heads, rows)


def _tabulate_times(results: Results) -> Table:
    rows = [
        [str(n), f"{count_operations(n) / 1e6:,.0f}"]
        + [
            confidence_interval({seed: 1000 * y for seed, y in results.by_seed(_name_time(kind, n)).items()}).format(
                ".2f"
            )
            for kind in (ONE_PRODUCT, LOOP)
        ]
        for n in TIMED
    ]
    heads = ["heads", "million operations, forward, theory", f"{ONE_PRODUCT}, ms", f"{LOOP}, ms"]
    caption = f"Time of self-attention to {SENTENCES} sentences of {TOKENS} tokens, forward and backward"
    return Table(caption, heads, rows)


EXPERIMENT = Experiment(
    title="One head against several at equal cost",
    claims=[JOINTLY, COST, SINGLE, TOO_MANY],
    method=(
        "One layer learns to report the tokens at two positions, with one head and with several. The time of "
        f"self-attention in the paper's width is measured for up to {TIMED[-1]} heads, computed by one product for all "
        "heads and by one head after another. Then models that differ in nothing but the number of heads are trained "
        "on text for the same number of updates, and their losses, and the entropies of their heads, are compared."
    ),
    plan=plan,
    conclude=conclude,
)
