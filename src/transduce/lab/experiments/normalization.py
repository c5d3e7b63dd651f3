"""Layer normalisation against batch normalisation, and post-norm against pre-norm (paper 3.1)."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from statistics import fmean

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.bundle import Bundle
from transduce.data import Batch, PreparedData
from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.learning_curves import draw_learning_curves
from transduce.lab.measurements import BySeed, Results, Value, keep_finite
from transduce.lab.statistics import format_mean, judge_equal, judge_exactly, judge_larger
from transduce.lab.variants import make_training_trials, tabulate_variants
from transduce.model import Transformer, as_transformer
from transduce.model.sublayers import Normalization
from transduce.pages import Series, Table
from transduce.training.distributed.batches import BatchPosition, iterate_batches
from transduce.training.optimization.loss import compute_losses

SHALLOW, DEEP = 2, 6
"""Layers of each stack of trained models; the paper's base model has 6."""

LEARNING_RATE = 1e-3
"""The highest rate in the comparison of Xiong et al. 2020."""

INITIAL_DEPTHS = (1, 2, 4, 8, 16)
"""Layers of each stack of the models whose gradients are measured before training."""

NUM_INITIAL = 8
"""Initial models of each depth and seed, as theory is about the expected gradient."""

ORDERS = ("post", "pre")
KINDS = ("layer", "batch")

BATCHES_OF = ("similar lengths", "random sentences")
"""The sentences of a batch: grouped by length, as in training, or drawn at random."""

NUM_BATCHES = 40
"""Batches whose statistics are compared."""

PADDING = (0, 2, 5, 10, 20, 40)
"""Positions of padding that are added to every sentence of a batch."""

SAME = 0.05
"""Nats per token by which the loss may be higher without counting as worse: a perplexity that is 5 % higher."""

SAME_SLOPE = 0.1
"""How far a measured power of the depth may be from theory: over the depths here, a factor of 16^0.1 = 1.3."""

ROUNDING = 1e-3
"""The largest difference between outputs, whose components are about 1, that counts as rounding in float32."""

SECONDS_BESIDE_TRAINING = 15.0
"""Part of the budget for everything but training, for each seed."""

BATCH_INVARIANCE = Claim(
    "3.1; Ba et al. 2016",
    "In training, too, the result for a sentence does not depend on the other sentences of its batch with layer "
    "normalisation; with batch normalisation it does.",
)
FLUCTUATION = Claim(
    "Shen et al. 2020",
    "In a Transformer on text, the statistics of batch normalisation vary more from batch to batch than by chance.",
)
BATCH_WORSE = Claim(
    "Shen et al. 2020", "A Transformer is worse with batch normalisation than with layer normalisation."
)
POST_GRADIENT = Claim(
    "Xiong et al. 2020",
    "With post-norm, the gradient of the last layer before training does not depend on the depth L.",
)
PRE_GRADIENT = Claim(
    "Xiong et al. 2020", "With pre-norm, the gradient of the last layer before training falls as 1/sqrt(L)."
)
POST_NEEDS = Claim("Xiong et al. 2020", "A post-norm Transformer needs warm-up.")
PRE_NEEDS_NONE = Claim("Xiong et al. 2020", "A pre-norm Transformer needs no warm-up.")
DEEPER = Claim("Liu et al. 2020", "The deeper a post-norm Transformer, the more it loses without warm-up.")


def _name(kind: str, order: str, depth: int, *, has_warmup: bool) -> str:
    return f"{kind}, {order}-norm, {depth} layers, {'with' if has_warmup else 'without'} warm-up"


def _make_settings(kind: str, order: str, depth: int, *, has_warmup: bool) -> dict[str, Value]:
    return {
        "model.normalization": kind,
        "model.norm_order": order,
        "model.num_encoder_layers": depth,
        "model.num_decoder_layers": depth,
        "training.learning_rate": LEARNING_RATE,
        **({} if has_warmup else {"training.warmup": 1}),
    }


LAYER, BATCH = (_name(kind, "post", SHALLOW, has_warmup=True) for kind in KINDS)


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: untrained models of every depth, then trained ones, then statistics of two of these."""
    choices = [("batch", "post", SHALLOW, True)]
    choices += [
        ("layer", order, depth, warmup) for depth in (SHALLOW, DEEP) for order in ORDERS for warmup in (True, False)
    ]
    variants = {
        _name(kind, order, depth, has_warmup=warmup): _make_settings(kind, order, depth, has_warmup=warmup)
        for kind, order, depth, warmup in choices
    }
    reserve = SECONDS_BESIDE_TRAINING * len(laboratory.seeds)
    updates = laboratory.plan_updates([*variants.values()], reserve=reserve)
    training = make_training_trials(laboratory, variants, updates)
    initial = [
        Trial({"initial": order, "depth": depth}, partial(_measure_initial, laboratory, order, depth), cost=0.02)
        for order in ORDERS
        for depth in INITIAL_DEPTHS
    ]
    inspected = [Trial({"inspected": kind}, partial(_inspect, laboratory, kind, updates), cost=0.2) for kind in KINDS]
    return [*initial, *training, *inspected]


def _measure_initial(laboratory: Laboratory, order: str, depth: int, seed: int) -> Mapping[str, float]:
    settings = _make_settings("layer", order, depth, has_warmup=True)
    prepared = laboratory.prepare(settings)
    config = laboratory.make_config(settings, 1, seed, "none").with_vocabulary(prepared.tokenizer.vocabulary)
    _, batch = next(iterate_batches(prepared, config.text, config.training, BatchPosition()))
    torch.manual_seed(seed)
    return {"gradient": fmean(measure_last_gradient(Transformer(config.model), batch) for _ in range(NUM_INITIAL))}


def measure_last_gradient(model: Transformer, batch: Batch) -> float:
    """The norm of the gradient of W_2 in the last feed-forward network of the decoder, for the mean loss of a batch."""
    losses = compute_losses(model, batch, smoothing=0.0)
    weight = model.decoder.layers[-1].feed_forward.outer.weight
    (gradient,) = torch.autograd.grad(losses.loss / batch.num_target_tokens, weight)
    return float(gradient.norm())


def _inspect(laboratory: Laboratory, kind: str, updates: int, seed: int) -> Mapping[str, float]:
    settings = _make_settings(kind, "post", SHALLOW, has_warmup=True)
    bundle = Bundle.open(laboratory.find_run(settings, updates, seed) / "best")
    model, prepared = as_transformer(bundle.load_model(), "normalization"), laboratory.prepare(settings)
    config = laboratory.make_config(settings, updates, seed, "none")
    stream = iterate_batches(prepared, config.text, config.training, BatchPosition())
    planned = [batch for _, batch in islice(stream, NUM_BATCHES)]
    mixed = draw_batches(prepared, [len(batch.source_ids) for batch in planned], seed)
    values = {"difference alone": measure_difference_alone(model, mixed[0])}
    for name, batches in zip(BATCHES_OF, (planned, mixed), strict=True):
        inputs = zip(*(read_inputs(model, batch) for batch in batches), strict=True)
        found = [measure_fluctuation(of_place) for of_place in inputs]
        for quantity in found[0]:
            values |= {f"{quantity}, {name}, {place}": one[quantity] for place, one in enumerate(found, start=1)}
            values[f"{quantity}, {name}"] = math.sqrt(fmean(one[quantity] ** 2 for one in found))
    for added in PADDING:
        share, shift = measure_padding(model, mixed[0], added)
        values |= {f"padding share, {added} added": share, f"shift, {added} added": shift}
    return values


def draw_batches(prepared: PreparedData, sizes: Sequence[int], seed: int) -> list[Batch]:
    """Batches of `sizes` pairs of the training text, drawn at random whatever their lengths."""
    chosen = iter(np.random.default_rng(seed).integers(len(prepared.train), size=sum(sizes)).tolist())
    pad_id = prepared.tokenizer.pad_id
    batches = []
    for size in sizes:
        sources, targets = zip(*(prepared.train.pair(next(chosen)) for _ in range(size)), strict=True)
        batches.append(Batch.from_ids(sources, targets, pad_id))
    return batches


@contextmanager
def training_mode(model: Transformer) -> Iterator[Transformer]:
    """A copy of the model in training mode, without gradients: batch normalisation then uses the batch's statistics."""
    with torch.no_grad():
        yield copy.deepcopy(model).train()


def measure_difference_alone(model: Transformer, batch: Batch) -> float:
    """The largest difference, in any component, of the encoder's output for a sentence alone and in the batch.

    The model is in training mode; it has no dropout, which would be another cause of differences.
    """
    with training_mode(model) as copied:
        together = copied.encode(batch.source_ids, batch.source_mask)
        differences = []
        for row, length in enumerate(batch.source_mask.sum(dim=1).tolist()):
            alone = copied.encode(batch.source_ids[row : row + 1, :length], batch.source_mask[row : row + 1, :length])
            differences.append(float((alone[0] - together[row, :length]).abs().max()))
    return max(differences)


def read_inputs(model: Transformer, batch: Batch, mask: Tensor | None = None) -> list[Float[Tensor, "tokens d_model"]]:
    """The inputs of each normalisation of the encoder in turn, where `mask` is True; by default at real positions."""
    seen: list[Tensor] = []
    with training_mode(model) as copied:
        for part in copied.encoder.modules():
            if isinstance(part, Normalization):
                part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        copied.encode(batch.source_ids, batch.source_mask)
    return [inputs[batch.source_mask if mask is None else mask] for inputs in seen]


def measure_fluctuation(inputs: Sequence[Float[Tensor, "_ d_model"]]) -> Mapping[str, float]:
    """How far mean and variance of the positions of a batch are from those of all batches.

    Returns:
        "mean": root of the mean square, over batches and components, of the distance of a batch's mean from that of all
        positions, in standard deviations of the component; "mean by chance": the same for batches of as many positions
        that are drawn independently, where the square is 1/positions - 1/all positions; "variance": likewise, of the
        batch's variance from that of all, in relation to the latter.
    """
    everything = torch.cat([*inputs]).double()
    mean, variance = everything.mean(dim=0), everything.var(dim=0, correction=0)
    means = torch.stack([one.double().mean(dim=0) for one in inputs])
    variances = torch.stack([one.double().var(dim=0, correction=0) for one in inputs])
    by_chance = np.mean([1 / len(one) - 1 / len(everything) for one in inputs])
    return {
        "mean": math.sqrt(float(((means - mean).square() / variance).mean())),
        "mean by chance": math.sqrt(by_chance),
        "variance": math.sqrt(float((variances / variance - 1).square().mean())),
    }


def measure_padding(model: Transformer, batch: Batch, added: int) -> tuple[float, float]:
    """What padding would do to the statistics of a batch if it were counted, which the product's mask prevents.

    Args:
        model: the model.
        batch: sources without padding would have no shift; this one's are padded to the longest.
        added: further positions of padding for every source.

    Returns:
        The share of padding, and the distance of the mean over all positions from that over the real ones, in standard
        deviations: the root of the mean square over the components of all normalisations of the encoder.
    """
    padded = replace(
        batch,
        source_ids=F.pad(batch.source_ids, (0, added), value=model.pad_id),
        source_mask=F.pad(batch.source_mask, (0, added), value=False),
    )
    real, everywhere = read_inputs(model, padded), read_inputs(model, padded, torch.ones_like(padded.source_mask))
    shifts = [
        (all_positions.mean(dim=0) - own.mean(dim=0)).square() / own.var(dim=0, correction=0)
        for own, all_positions in zip(real, everywhere, strict=True)
    ]
    return 1 - len(real[0]) / len(everywhere[0]), math.sqrt(float(torch.stack(shifts).mean()))


def conclude(results: Results) -> Conclusion:
    """Verdicts on batch and layer normalisation, and on warm-up by the loss of models with and without it."""
    return Conclusion(
        [*_judge_batch_normalization(results), *_judge_gradients(results), *_judge_warmup(results)],
        charts=[
            draw_learning_curves(results, [LAYER, BATCH], "Training loss with layer and with batch normalisation"),
            _draw_fluctuation(results),
            _draw_padding(results),
            _draw_gradients(results),
            draw_learning_curves(
                results,
                [_name("layer", order, DEEP, has_warmup=warmup) for order in ORDERS for warmup in (True, False)],
                f"Training loss of post-norm and pre-norm, {DEEP} layers",
            ),
        ],
        tables=[tabulate_variants(results, ["loss", "bleu", "exact"]), _tabulate_statistics(results)],
        remarks=[
            "The paper says that it normalises layers (3.1), and not what would happen otherwise.",
            f"The highest learning rate is {LEARNING_RATE}, as in Xiong et al. 2020; warm-up is a tenth of the run.",
            "With batch normalisation, the first one evens out for those after it what varies from batch to batch.",
            "Which rate a model bears without warm-up depends on its width; this one is narrower than the paper's.",
        ],
    )


def _judge_batch_normalization(results: Results) -> list[ClaimResult]:
    def find_power(quantity: str) -> BySeed:
        found = results.by_seed(f"{quantity}, {BATCHES_OF[0]}", inspected="batch")
        return {seed: math.log2(value) for seed, value in found.items()}

    return [
        _judge_batch_invariance(results),
        judge_larger(
            FLUCTUATION,
            find_power("mean"),
            find_power("mean by chance"),
            "how many times as far as by chance, as a power of two, the means of batches are from that of all, in all "
            "normalisations of the encoder",
            margin=1.0,
        ),
        judge_larger(
            BATCH_WORSE,
            results.by_seed("loss", variant=BATCH),
            results.by_seed("loss", variant=LAYER),
            "loss with batch normalisation minus loss with layer normalisation, in nats per token",
            form=".3f",
        ),
    ]


def _judge_gradients(results: Results) -> list[ClaimResult]:
    slopes = {order: fit_slopes(results, order) for order in ORDERS}
    none = dict.fromkeys(slopes["post"] | slopes["pre"], 0.0)
    return [
        judge_equal(
            POST_GRADIENT,
            slopes["post"],
            none,
            "the power of L with which the gradient grows, with post-norm, minus 0",
            tolerance=SAME_SLOPE,
            form=".2f",
        ),
        judge_equal(
            PRE_GRADIENT,
            slopes["pre"],
            dict.fromkeys(none, -0.5),
            "the power of L with which the gradient grows, with pre-norm, minus -1/2",
            tolerance=SAME_SLOPE,
            form=".2f",
        ),
    ]


def _judge_warmup(results: Results) -> list[ClaimResult]:
    def find_loss(order: str, depth: int, *, has_warmup: bool) -> BySeed:
        return results.by_seed("loss", variant=_name("layer", order, depth, has_warmup=has_warmup))

    def find_cost(depth: int) -> BySeed:
        """How much higher the loss of a post-norm model of this depth is without warm-up, for each seed."""
        without, with_warmup = (find_loss("post", depth, has_warmup=warmup) for warmup in (False, True))
        return {seed: without[seed] - with_warmup[seed] for seed in without.keys() & with_warmup.keys()}

    return [
        judge_larger(
            POST_NEEDS,
            find_loss("post", DEEP, has_warmup=False),
            find_loss("post", DEEP, has_warmup=True),
            f"loss without warm-up minus loss with it, post-norm, {DEEP} layers, in nats per token",
            margin=SAME,
            form=".3f",
        ),
        judge_larger(
            PRE_NEEDS_NONE,
            find_loss("pre", DEEP, has_warmup=True),
            find_loss("pre", DEEP, has_warmup=False),
            f"loss with warm-up minus loss without it, pre-norm, {DEEP} layers, in nats per token",
            margin=-SAME,
            form=".3f",
        ),
        judge_larger(
            DEEPER,
            find_cost(DEEP),
            find_cost(SHALLOW),
            f"what a post-norm model loses without warm-up with {DEEP} layers, minus the same with {SHALLOW}, in nats "
            "per token",
            form=".3f",
        ),
    ]


def fit_slopes(results: Results, order: str) -> dict[int, float]:
    """For each seed, the power of the depth with which the gradient of the last layer grows: a line through logarithms.

    Seeds with fewer than two depths are left out.
    """
    by_depth = {depth: results.by_seed("gradient", initial=order, depth=depth) for depth in INITIAL_DEPTHS}
    slopes = {}
    for seed in results.seeds():
        points = [(math.log(depth), math.log(found[seed])) for depth, found in by_depth.items() if seed in found]
        if len(points) > 1:
            slopes[seed] = float(np.polyfit([x for x, _ in points], [y for _, y in points], 1)[0])
    return slopes


def _judge_batch_invariance(results: Results) -> ClaimResult:
    layer, batch = (results.by_seed("difference alone", inspected=kind) for kind in KINDS)
    if not layer or not batch:
        return ClaimResult(BATCH_INVARIANCE, "not measured", "not decided")
    return judge_exactly(
        BATCH_INVARIANCE,
        "the encoder's output for a sentence alone and in a batch differs by at most "
        f"{max(layer.values()):.1e} with layer normalisation, and by up to {max(batch.values()):.1e} with batch "
        f"normalisation, where {ROUNDING} counts as rounding",
        holds=max(layer.values()) < ROUNDING < min(batch.values()),
    )


def _draw_fluctuation(results: Results) -> Chart:
    places = range(1, 2 * SHALLOW + 1)

    def find_points(quantity: str, kind: str) -> list[tuple[float, float]]:
        means = [(float(place), results.mean(f"{quantity}, {place}", inspected=kind)) for place in places]
        return keep_finite(means)

    series = [Series(f"{kind}, {name}", find_points(f"mean, {name}", kind)) for kind in KINDS for name in BATCHES_OF]
    series.append(Series("by chance", find_points(f"mean by chance, {BATCHES_OF[0]}", KINDS[0])))
    title = "Distance of the mean of a batch from that of all batches"
    return Chart.draw_lines(title, series, "normalisation of the encoder", "standard deviations", log=True)


def _draw_padding(results: Results) -> Chart:
    series = []
    for kind in KINDS:
        points = []
        for added in PADDING:
            share = results.mean(f"padding share, {added} added", inspected=kind)
            shift = results.mean(f"shift, {added} added", inspected=kind)
            if math.isfinite(share + shift):
                points.append((100 * share, shift))
        series.append(Series(f"model with {kind} normalisation", points))
    title = "Shift of a batch's mean if padding were counted"
    return Chart.draw_lines(title, series, "padding, % of positions", "standard deviations")


def _draw_gradients(results: Results) -> Chart:
    series = [Series(f"{order}-norm", results.curve("depth", "gradient", initial=order)) for order in ORDERS]
    for order, power in (("post", 0.0), ("pre", -0.5)):
        first = results.mean("gradient", initial=order, depth=INITIAL_DEPTHS[0])
        if math.isfinite(first):
            theory = [(float(depth), first * depth**power) for depth in INITIAL_DEPTHS]
            series.append(Series(f"theory, {order}-norm", theory))
    title = "Gradient of the last layer before training"
    return Chart.draw_lines(title, series, "layers of each stack", "norm", log=True, log_x=True)


def _tabulate_statistics(results: Results) -> Table:
    rows = [
        [f"{kind} normalisation", name]
        + [
            format_mean(results, f"{quantity}, {name}", ".3f", inspected=kind)
            for quantity in ("mean", "mean by chance", "variance")
        ]
        for kind in KINDS
        for name in BATCHES_OF
    ]
    return Table(
        "Statistics of the inputs of the encoder's normalisations in batches: root mean square distance from those of "
        "all batches; mean over the seeds (95 % confidence interval)",
        ["model", "batches of", "mean, standard deviations", "mean if by chance", "variance, relative"],
        rows,
        num_texts=2,
    )


EXPERIMENT = Experiment(
    title="Normalisation: layer or batch, after the residual sum or before the sub-layer",
    claims=[
        BATCH_INVARIANCE,
        FLUCTUATION,
        BATCH_WORSE,
        POST_GRADIENT,
        PRE_GRADIENT,
        POST_NEEDS,
        PRE_NEEDS_NONE,
        DEEPER,
    ],
    method=(
        "Models are trained for the same number of updates: with layer normalisation and with batch normalisation, "
        "whose statistics leave out padding; and with layer normalisation after the residual sum (post-norm, the "
        f"paper's) and before the sub-layer (pre-norm), with {SHALLOW} and {DEEP} layers in each stack, with warm-up "
        "and without. With a trained model of either kind, mean and variance of the inputs of the encoder's "
        f"normalisations are compared in {NUM_BATCHES} batches of sentences of similar lengths, as in training, and in "
        "as many of random sentences; and sentences are encoded alone and in a batch. Before training, the gradient of "
        "the last layer is measured over depth."
    ),
    plan=plan,
    conclude=conclude,
)
