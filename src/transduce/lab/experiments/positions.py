"""Sinusoidal, learned and no positions, and sentences longer than any in training (paper 3.5, Table 3 E)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.evaluation import score_corpus
from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Settings, keep_finite
from transduce.lab.statistics import format_mean, judge_equal, judge_exactly, judge_larger
from transduce.lab.variants import tabulate_variants
from transduce.model import sinusoids
from transduce.pages import Series, Table, draw_line_chart, sample_evenly
from transduce.text import Pair
from transduce.translation import Translator
from transduce.translation.confidence.scoring import ForcedDecoder, score_pairs

SINUSOIDAL, LEARNED, NONE = "sinusoidal", "learned", "none"

POSITIONS: dict[str, Settings] = {
    SINUSOIDAL: {"model.positions": "sinusoidal"},
    LEARNED: {"model.positions": "learned"},
    NONE: {"model.positions": "none"},
}
"""The settings of each kind of positions with which models are trained, by name."""

WIDTH = TransformerConfig().d_model
SHIFTS = (1, 2, 4, 8, 16, 32, 64, 128)
NUM_FITTED, NUM_TESTED = 1000, 1000
"""Positions from which the matrix is computed, and those after them on which it is tested."""

ROUNDING = 1e-6
"""Largest error that comes from rounding: the table is in single precision, whose unit is 6e-8 below 1, and a position
is predicted from two numbers."""

MAX_JOINED = 3
"""A line of the training text has up to this many sentences."""

SHORTER = 0.9
"""Part of the lines, the shorter ones, that models are trained on."""

BINS = ((0.0, 0.5), (0.5, 0.75), (0.75, 1.0), (1.0, 1.25), (1.25, 1.5), (1.5, 2.0))
"""Tested lines by their length, divided by that of the longest source in training: above the first number, up to the
second."""

WITHIN, BEYOND = BINS[2], BINS[3]
"""The lines just up to the longest of training, and those just beyond it."""

MAX_LINES = 60
"""Tested lines of each bin."""

SIMILAR = 0.02
"""Difference of losses, in nats per token, up to which two models are nearly identical: tokens are as probable within
2 %."""

EXTRAPOLATED = 0.1
"""Increase of the loss, in nats per token, up to which a model extrapolates: tokens are 10 % less probable."""

NEEDED = Claim(
    "3.5", "Without recurrence and convolution, the model needs positions to make use of the order of the sequence."
)
LINEAR = Claim("3.5", "For any fixed offset k, PE(pos + k) is a linear function of PE(pos).")
IDENTICAL = Claim("3.5 and Table 3 (E)", "Learned positions give nearly identical results.")
EXTRAPOLATES = Claim(
    "3.5", "Sinusoids may allow the model to extrapolate to sequences longer than those encountered during training."
)
CHOSEN = Claim("3.5", "This is why sinusoids were chosen over learned positions.")


def make_rotations(shift: int, d_model: int) -> Float[Tensor, "pairs 2 2"]:
    """For each pair of sine and cosine, the matrix M with PE(pos + shift) = PE(pos) M, in double precision.

    With w = shift / 10000^(2i/d_model), sin(a + w) = sin(a) cos(w) + cos(a) sin(w), and
    cos(a + w) = -sin(a) sin(w) + cos(a) cos(w).
    """
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = shift / 10_000 ** (even / d_model)
    of_sine, of_cosine = (
        torch.stack([angle.cos(), -angle.sin()], dim=-1),
        torch.stack([angle.sin(), angle.cos()], dim=-1),
    )
    return torch.stack([of_sine, of_cosine], dim=1)


def measure_shift(shift: int, seed: int) -> Mapping[str, float]:
    """How well a matrix takes every position of the model's table to the one `shift` later.

    Returns:
        "matrix": the largest difference between the rotations by theory and the matrices that least squares find for
        each pair of sine and cosine in the first `NUM_FITTED` positions; "prediction": the largest error with which
        these predict the `NUM_TESTED` positions after them; "control": the error of a matrix for random positions that
        it was fitted to, as a part of their size. The seed draws these.
    """
    table = sinusoids(NUM_FITTED + NUM_TESTED + shift, WIDTH).double()
    pairs = torch.unflatten(table, 1, (-1, 2)).transpose(0, 1)
    first, second = pairs[:, : len(table) - shift], pairs[:, shift:]
    matrices = torch.linalg.lstsq(first[:, :NUM_FITTED], second[:, :NUM_FITTED]).solution
    predicted = first[:, NUM_FITTED:] @ matrices
    random = torch.randn(NUM_FITTED + shift, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = torch.linalg.lstsq(random[:NUM_FITTED], random[shift:]).solution
    residual = random[:NUM_FITTED] @ found - random[shift:]
    return {
        "matrix": float((matrices - make_rotations(shift, WIDTH)).abs().max()),
        "prediction": float((predicted - second[:, NUM_FITTED:]).abs().max()),
        "control": float(residual.norm() / random[shift:].norm()),
    }


def join_lines(pairs: Sequence[Pair], num_joined: int) -> list[Pair]:
    """Lines of `num_joined` consecutive pairs each; what is left at the end is dropped."""
    groups = [pairs[start : start + num_joined] for start in range(0, len(pairs) - num_joined + 1, num_joined)]
    return [(" ; ".join(source for source, _ in group), " ; ".join(target for _, target in group)) for group in groups]


def make_training_lines(pairs: Sequence[Pair]) -> list[Pair]:
    """Lines of one to `MAX_JOINED` consecutive pairs in turn, without the longest of them (see `SHORTER`)."""
    lines: list[Pair] = []
    start = 0
    while start < len(pairs):
        num_joined = 1 + len(lines) % MAX_JOINED
        lines += join_lines(pairs[start : start + num_joined], min(num_joined, len(pairs) - start))
        start += num_joined
    lines.sort(key=lambda line: len(line[0]))
    return lines[: math.ceil(SHORTER * len(lines))]


def make_short_laboratory(laboratory: Laboratory) -> Laboratory:
    """A laboratory whose training text has lines of one or more pairs of `laboratory`, the longest of them left out."""
    return replace(laboratory, chosen_pairs=make_training_lines(laboratory.training_pairs))


def choose_test_lines(decoder: ForcedDecoder, pairs: Sequence[Pair], longest: int) -> list[list[Pair]]:
    """Lines of unseen pairs for each of `BINS`, at most `MAX_LINES`, of ever more pairs in a line.

    Args:
        decoder: its tokenizer counts the pieces of a source.
        pairs: what lines are joined from.
        longest: pieces of the longest source in training.
    """
    chosen: list[list[Pair]] = [[] for _ in BINS]
    for num_joined in range(1, len(pairs) + 1):
        lines = join_lines(pairs, num_joined)
        lengths = [len(ids) / longest for ids in decoder.tokenizer.encode_all([source for source, _ in lines])]
        for line, length in zip(lines, lengths, strict=True):
            for (low, high), own in zip(BINS, chosen, strict=True):
                if low < length <= high:
                    own.append(line)
        if min(lengths) > BINS[-1][1]:
            break
    # Of the first bin, lines of every number of pairs.
    return [sample_evenly(own, MAX_LINES) for own in chosen]


def measure_lengths(decoder: ForcedDecoder, translator: Translator, pairs: Sequence[Pair]) -> Mapping[str, float]:
    """Loss and BLEU on lines of each of `BINS`, which the model reads as a whole.

    Args:
        decoder: the model; its `max_pieces` is the length of the longest source in training, as `transduce train` sets
            it.
        translator: the same model.
        pairs: unseen pairs that lines are joined from.

    Returns:
        For each bin, named by its upper end: "loss up to 1.25", nats per token by forced decoding, and "bleu up to
        1.25" of greedy translations. A bin without lines is left out.
    """
    unlimited = translator.with_search({"max_pieces": 2**20})
    found: dict[str, float] = {}
    for (_, high), lines in zip(BINS, choose_test_lines(decoder, pairs, decoder.search.max_pieces), strict=True):
        if lines:
            scores = score_pairs(decoder, lines)
            log_probability = math.fsum(score.log_probability for score in scores)
            found[f"loss {_bin_name(high)}"] = -log_probability / sum(len(score.tokens) for score in scores)
            translations = unlimited.translate([source for source, _ in lines], beam=1)
            (bleu,) = score_corpus(translations, [target for _, target in lines], ["bleu"])
            found[f"bleu {_bin_name(high)}"] = bleu.value
    return found


def _bin_name(high: float) -> str:
    return f"up to {high:g}"


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: the matrices of all shifts, and models with each kind of positions, trained on shorter lines."""
    short = make_short_laboratory(laboratory)
    # Translating long lines takes about as long as what is planned for a run besides its updates.
    updates = short.plan_updates(list(POSITIONS.values()), reserve=0.1 * laboratory.budget)

    def train(settings: Settings, seed: int) -> Mapping[str, float]:
        trained = short.train(settings, updates, seed)
        if "diverged" in trained:
            return trained
        bundle = short.find_run(settings, updates, seed) / "best"
        decoder = ForcedDecoder.load(bundle, device="cpu")
        translator = Translator.load(bundle, device="cpu", precision="float32")
        return {**trained, **measure_lengths(decoder, translator, laboratory.test_pairs)}

    return [
        *(Trial({"shift": shift}, partial(measure_shift, shift), cost=0.02) for shift in SHIFTS),
        *(Trial({"variant": name}, partial(train, settings)) for name, settings in POSITIONS.items()),
    ]


def conclude(results: Results) -> Conclusion:
    """Verdicts on the linear function from its error, on kinds of positions from losses, and on length from both."""
    loss = {name: results.by_seed("loss", variant=name) for name in POSITIONS}
    within, beyond = (
        {name: results.by_seed(f"loss {_bin_name(high)}", variant=name) for name in (SINUSOIDAL, LEARNED)}
        for _, high in (WITHIN, BEYOND)
    )
    just_longer = f"lines of 1 to {BEYOND[1]:g} times the length of the longest of training"
    cost = {
        name: {seed: beyond[name][seed] - within[name][seed] for seed in beyond[name].keys() & within[name].keys()}
        for name in (SINUSOIDAL, LEARNED)
    }
    claim_results = [
        judge_larger(
            NEEDED, loss[NONE], loss[SINUSOIDAL], "loss without positions minus loss with sinusoids, in nats per token"
        ),
        _judge_linear(results),
        judge_equal(
            IDENTICAL,
            loss[LEARNED],
            loss[SINUSOIDAL],
            "loss with learned positions minus loss with sinusoids, in nats per token",
            tolerance=SIMILAR,
        ),
        judge_larger(
            EXTRAPOLATES,
            within[SINUSOIDAL],
            beyond[SINUSOIDAL],
            f"loss with sinusoids on lines of {WITHIN[0]:g} to 1 times the length of the longest of training, minus "
            f"that on {just_longer}, in nats per token",
            margin=-EXTRAPOLATED,
        ),
        judge_larger(
            CHOSEN,
            cost[LEARNED],
            cost[SINUSOIDAL],
            f"loss on {just_longer} minus that on lines just up to that length, with learned positions, minus the same "
            "with sinusoids, in nats per token",
        ),
    ]
    return Conclusion(
        claim_results,
        charts=_draw_charts(results),
        tables=[tabulate_variants(results), *_tabulate_lengths(results), _tabulate_shifts(results)],
        remarks=[SETTING, WHOLE_MATRIX],
    )


def _judge_linear(results: Results) -> ClaimResult:
    found = {
        name: [results.mean(name, shift=shift) for shift in results.choices("shift")]
        for name in ("prediction", "matrix", "control")
    }
    if not found["matrix"]:
        return judge_exactly(LINEAR, "", holds=None)
    error, difference = max(found["prediction"]), max(found["matrix"])
    return judge_exactly(
        LINEAR,
        f"for shifts of {SHIFTS[0]} to {SHIFTS[-1]}, matrices fitted to {NUM_FITTED:,} positions predict the "
        f"{NUM_TESTED:,} after them within {error:.1e} and are the rotations by theory within {difference:.1e}, where "
        f"up to {ROUNDING:g} is rounding; a matrix for random positions leaves {min(found['control']):.0%} of their "
        "size",
        holds=max(error, difference) <= ROUNDING,
    )


SETTING = (
    f"Lines of the training text are one to {MAX_JOINED} sentences, so that longer lines differ in nothing but their "
    "length; lengths are pieces of the source divided by those of the longest source in training. Rows of learned "
    "positions beyond that keep their initial values. Decoders of models without positions still see the order of the "
    "target by their causal mask."
)
WHOLE_MATRIX = (
    "Least squares are computed for each pair of sine and cosine. A single matrix for all of PE would not be "
    f"determined by {NUM_FITTED:,} positions: the slowest sinusoids take 60,000 positions for a period."
)


def _draw_charts(results: Results) -> list[Chart]:
    def by_length(quantity: str) -> list[Series]:
        return [
            Series(
                name,
                keep_finite((high, results.mean(f"{quantity} {_bin_name(high)}", variant=name)) for _, high in BINS),
            )
            for name in POSITIONS
        ]

    def draw(title: str, quantity: str, label: str) -> Chart:
        return Chart.draw_lines(title, by_length(quantity), "length / longest of training", label)

    shifted = draw_line_chart(
        "Error of the linear function",
        [
            Series("prediction of later positions", results.curve("shift", "prediction")),
            Series("matrix, against the rotation", results.curve("shift", "matrix")),
            Series("control: random positions", results.curve("shift", "control")),
        ],
        "shift",
        "",
        log=True,
        log_x=True,
    )
    return [
        draw("Loss by the length of the source", "loss", "nats per token"),
        draw("BLEU by the length of the source", "bleu", ""),
        Chart("Error of the linear function", shifted),
    ]


def _tabulate_lengths(results: Results) -> list[Table]:
    tables = []
    for quantity, what, form in (("loss", "Loss, nats per token", ".3f"), ("bleu", "BLEU", ".1f")):
        rows = [
            [
                name,
                *(format_mean(results, f"{quantity} {_bin_name(high)}", form, variant=name) for _, high in BINS),
            ]
            for name in results.choices("variant")
        ]
        heads = ["positions", *(_bin_name(high) for _, high in BINS)]
        tables.append(Table(f"{what}, by length of the source divided by the longest of training", heads, rows))
    return tables


def _tabulate_shifts(results: Results) -> Table:
    rows = [
        [str(shift), *(f"{results.mean(one, shift=shift):.1e}" for one in ("prediction", "matrix", "control"))]
        for shift in results.choices("shift")
    ]
    heads = ["shift", "error of prediction", "difference from the rotation", "error of the control"]
    return Table("The linear function from a position to another", heads, rows)


EXPERIMENT = Experiment(
    title="Sinusoidal, learned and no positions",
    claims=[NEEDED, LINEAR, IDENTICAL, EXTRAPOLATES, CHOSEN],
    method=(
        "For several shifts, least squares find the matrices that take each sine and cosine of a position to those of "
        "the shifted position; they are compared with rotations, and tested on later positions. Then models that "
        f"differ in nothing but positions are trained on lines of one to {MAX_JOINED} sentences, the longest tenth "
        "left out. On unseen lines up to that length and beyond, joined from sentences in the same way, the loss by "
        "forced decoding and the BLEU of greedy translations are compared."
    ),
    plan=plan,
    conclude=conclude,
)
