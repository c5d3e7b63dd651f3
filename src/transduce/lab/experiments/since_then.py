"""What later papers changed in the Transformer, one change at a time and together, against the paper's own model."""

from collections.abc import Mapping, Sequence

from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import SETTINGS, Laboratory
from transduce.lab.learning_curves import draw_learning_curves, train_with_curve
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import compare, judge_equal, judge_larger
from transduce.lab.variants import choose_size, tabulate_variants
from transduce.pages import Table

SIMILAR = 0.02
"""Difference of losses, in nats per token, up to which two models are similar: 2 % of perplexity."""

DEFAULT = "the paper's"
TOGETHER = "all of today's"

CHANGES: dict[str, dict[str, Value]] = {
    "GELU": {"model.activation": "gelu"},
    "relative positions": {"model.positions": "relative"},
    "RMS normalisation": {"model.normalization": "rms"},
    "pre-norm": {"model.norm_order": "pre"},
    "gated feed-forward": {"model.feed_forward": "gated", "model.activation": "swish"},
    "rotary positions": {"model.positions": "rotary"},
    TOGETHER: {
        "model.normalization": "rms",
        "model.norm_order": "pre",
        "model.feed_forward": "gated",
        "model.activation": "swish",
        "model.positions": "rotary",
    },
}
"""Settings of each variant that differ from the paper's default. Gated networks also have a smaller d_ff."""

GELU = Claim("Hendrycks & Gimpel 2016", "GELU performs better than relu.")
RELATIVE = Claim("Shaw et al. 2018", "Relative positions translate better (BLEU) than sinusoids.")
SIMILAR_QUALITY = Claim("Zhang & Sennrich 2019", "With RMS normalisation, quality is similar to layer normalisation's.")
LESS_TIME = Claim("Zhang & Sennrich 2019", "RMS normalisation takes less time than layer normalisation.")
PRE_NORM = Claim("Xiong et al. 2020", "With pre-norm, training is faster: fewer updates reach the same loss.")
GATED = Claim("Shazeer 2020", "Gated feed-forward networks reach a lower loss with equally many parameters.")
ROTARY = Claim("Su et al. 2021", "Rotary positions translate better (BLEU) than sinusoids.")
COMBINED = Claim(
    "Touvron et al. 2023",
    "Pre-norm by RMS, gated feed-forward networks and rotary positions together improve the Transformer.",
)

_REMARK_ON_RATES = (
    "All variants have the learning rate that was chosen for the paper's order of normalisation and a warm-up of a "
    "tenth of the updates; each paper tuned its own, for models and texts many times larger."
)
_REMARK_ON_SPEED = (
    "On a processor, PyTorch has one compiled operation for layer normalisation and composes RMS normalisation of "
    "several: the speeds are those of these programs."
)


def make_variants(size: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Settings of all variants, for a model with the settings `size`; all have nearly as many parameters."""
    d_ff = int({**SETTINGS, **size}["model.d_ff"])
    variants = {DEFAULT: dict(size)}
    for name, change in CHANGES.items():
        # Three matrices in place of two.
        narrower = {"model.d_ff": round(2 * d_ff / 3)} if change.get("model.feed_forward") == "gated" else {}
        variants[name] = {**size, **change, **narrower}
    return variants


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: all variants with as many updates as the budget allows, the same for all."""
    variants = make_variants(choose_size(laboratory))
    updates = laboratory.plan_updates(list(variants.values()))

    def make_trial(name: str, settings: Mapping[str, Value]) -> Trial:
        return Trial({"variant": name}, lambda seed: train_with_curve(laboratory, settings, updates, seed))

    return [make_trial(name, settings) for name, settings in variants.items()]


def conclude(results: Results) -> Conclusion:
    """A verdict on every change, by the quantity that its paper speaks of, and the differences in all of them."""
    losses, scores, speeds = (
        {name: results.by_seed(quantity, variant=name) for name in (DEFAULT, *CHANGES)}
        for quantity in ("loss", "bleu", "tokens_per_second")
    )

    def judge_loss(claim: Claim, name: str) -> ClaimResult:
        return judge_larger(claim, losses[DEFAULT], losses[name], f"loss of {DEFAULT} model minus loss with {name}")

    def judge_bleu(claim: Claim, name: str) -> ClaimResult:
        return judge_larger(claim, scores[name], scores[DEFAULT], f"BLEU with {name} minus BLEU of {DEFAULT} model")

    rms = "RMS normalisation"
    claim_results = [
        judge_loss(GELU, "GELU"),
        judge_bleu(RELATIVE, "relative positions"),
        judge_equal(
            SIMILAR_QUALITY,
            losses[rms],
            losses[DEFAULT],
            f"loss with {rms} minus loss of {DEFAULT} model",
            tolerance=SIMILAR,
        ),
        judge_larger(
            LESS_TIME, speeds[rms], speeds[DEFAULT], f"tokens a second with {rms} minus those of {DEFAULT} model"
        ),
        judge_loss(PRE_NORM, "pre-norm"),
        judge_loss(GATED, "gated feed-forward"),
        judge_bleu(ROTARY, "rotary positions"),
        judge_loss(COMBINED, TOGETHER),
    ]
    return Conclusion(
        claim_results,
        charts=[
            _draw(results, "normalisation and feed-forward", ["pre-norm", "RMS normalisation", "gated feed-forward"]),
            _draw(results, "positions and activation", ["relative positions", "rotary positions", "GELU"]),
        ],
        tables=[
            tabulate_variants(results, ("loss", "bleu", "chrf", "exact", "parameters", "tokens_per_second")),
            _tabulate_differences(results),
        ],
        remarks=[_REMARK_ON_RATES, _REMARK_ON_SPEED],
    )


def _draw(results: Results, what: str, names: Sequence[str]) -> Chart:
    shown = [name for name in (DEFAULT, *names, TOGETHER) if name in results.choices("variant")]
    return draw_learning_curves(results, shown, f"Training loss: {what}")


def _tabulate_differences(results: Results) -> Table:
    """For each change, the paired differences from the paper's model."""
    quantities = {"loss": ("loss", ".3f"), "bleu": ("BLEU", ".1f"), "exact": ("exact matches", ".1%")}
    rows = []
    for name in results.choices("variant"):
        if name == DEFAULT:
            continue
        cells = [
            compare(results.by_seed(one, variant=name), results.by_seed(one, variant=DEFAULT)).format(form)
            for one, (_, form) in quantities.items()
        ]
        speed = results.mean("tokens_per_second", variant=name) / results.mean("tokens_per_second", variant=DEFAULT)
        rows.append([name, *cells, f"{speed:.0%}"])
    heads = ["change", *(head for head, _ in quantities.values()), "speed of training"]
    return Table(f"Difference from {DEFAULT} model (95 % confidence interval), and speed as part of its", heads, rows)


EXPERIMENT = Experiment(
    title="What later papers changed in the Transformer",
    claims=[GELU, RELATIVE, SIMILAR_QUALITY, LESS_TIME, PRE_NORM, GATED, ROTARY, COMBINED],
    method=(
        "Models that differ from the paper's in one thing, and one that differs in all that is usual today, are "
        "trained for the same number of updates. Gated feed-forward networks have two thirds of the inner width, and "
        "so the same number of parameters. Compared are the loss on held-out text, BLEU of unseen sentences, and the "
        "tokens of a second of training."
    ),
    plan=plan,
    conclude=conclude,
)
