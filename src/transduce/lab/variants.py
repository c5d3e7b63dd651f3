"""Variants of the model that are trained with the same text and number of updates, and what they reach."""

from collections.abc import Mapping, Sequence

from transduce.lab.conclusion import Claim, ClaimResult
from transduce.lab.experiment import Trial
from transduce.lab.laboratory import SETTINGS, Laboratory
from transduce.lab.learning_curves import train_with_curve
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import compare, format_mean, judge_exactly
from transduce.pages import Table

SAME_BLEU = 1.0
"""Points of BLEU by which a model may be worse without harm: less than the 95 % interval of the score on some hundred
sentences."""

QUANTITIES = {
    "loss": ("loss, nats per token", ".3f"),
    "bleu": ("BLEU", ".1f"),
    "chrf": ("chrF", ".1f"),
    "exact": ("exact matches", ".1%"),
    "parameters": ("parameters", ",.0f"),
    "tokens_per_second": ("tokens a second", ",.0f"),
}
"""What `Laboratory.train` measures: name, heading in a table, and format."""

LONG_BUDGET = 1800.0
"""Seconds of a budget from which on models are larger."""

LARGER: dict[str, Value] = {
    "model.num_encoder_layers": 3,
    "model.num_decoder_layers": 3,
    "model.d_model": 128,
    "model.d_ff": 512,
    "training.batch_tokens": 1024,
    "training.learning_rate": 2e-3,
}
"""The model and the training where there is time for more than those of `laboratory.SETTINGS`."""

OWN_TEXT: dict[str, Value] = {"text.vocabulary": 4000, "model.dropout": 0.1}
"""What a user's text needs besides: it has more words than the generated one, and a model may overfit it."""


def choose_size(laboratory: Laboratory) -> dict[str, Value]:
    """Settings of the model that an experiment varies, by budget and text; without any, those of the laboratory."""
    larger = LARGER if laboratory.budget >= LONG_BUDGET else {}
    return {**larger, **(OWN_TEXT if larger and laboratory.text_files else {})}


def plan_training(
    laboratory: Laboratory, variants: Mapping[str, Mapping[str, Value]], *, reserve: float = 0.0
) -> list[Trial]:
    """Trials that train each variant, with as many updates as the budget allows: see `make_training_trials`.

    Args:
        laboratory: where they are trained.
        variants: settings that differ from `laboratory.SETTINGS`, by the name of the variant.
        reserve: seconds of the budget that other trials of the experiment need.
    """
    updates = laboratory.plan_updates(list(variants.values()), reserve=reserve)
    return make_training_trials(laboratory, variants, updates)


def make_training_trials(
    laboratory: Laboratory, variants: Mapping[str, Mapping[str, Value]], updates: int
) -> list[Trial]:
    """A trial for each variant, with the setting "variant", that trains it with this number of updates."""

    def make_trial(name: str, settings: Mapping[str, Value]) -> Trial:
        return Trial({"variant": name}, lambda seed: train_with_curve(laboratory, settings, updates, seed))

    return [make_trial(name, settings) for name, settings in variants.items()]


def judge_saved_parameters(claim: Claim, results: Results, larger: str, smaller: str) -> ClaimResult:
    """The result for the claim that one variant has vocabulary · d_model parameters fewer than another."""
    saved = compare(*(results.by_seed("parameters", variant=variant) for variant in (larger, smaller)))
    expected = int(SETTINGS["text.vocabulary"]) * int(SETTINGS["model.d_model"])
    return judge_exactly(
        claim,
        f"{saved.mean:,.0f} parameters fewer; vocabulary · d_model = {expected:,}",
        holds=saved.mean == expected if saved.num_seeds else None,
    )


def tabulate_variants(
    results: Results, quantities: Sequence[str] = ("loss", "bleu", "exact"), caption: str = ""
) -> Table:
    """A table with a row for each trained variant: means over the seeds with their 95 % confidence intervals."""
    rows = []
    for name in results.choices("variant"):
        cells = [format_mean(results, one, QUANTITIES[one][1], variant=name) for one in quantities]
        num_diverged = len(results.by_seed("diverged", variant=name))
        rows.append([str(name), *cells, str(num_diverged)])
    heads = ["variant", *(QUANTITIES[one][0] for one in quantities), "runs that diverged"]
    return Table(caption or "Models after training: mean over the seeds (95 % confidence interval)", heads, rows)
