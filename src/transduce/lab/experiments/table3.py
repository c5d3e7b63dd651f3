"""All rows of the paper's Table 3, scaled to the machine (paper 6.2)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transduce.config import TransformerConfig
from transduce.config.presets import PRESETS
from transduce.lab.conclusion import Claim, ClaimResult, Conclusion, Verdict
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import (
    combine_verdicts,
    compare,
    confidence_interval,
    format_mean,
    judge_interval_above,
    judge_interval_within,
)
from transduce.lab.variants import OWN_TEXT
from transduce.pages import Table

SIMILAR = 0.02
"""Difference of losses, in nats per token, up to which a row is the same as the base row: 2 % of perplexity."""

PRINTED = 0.003
"""Difference of the paper's losses, in nats, up to which its rows are the same: two perplexities of 4.9, printed with
two decimals, that differ by 0.01 at most."""

SECONDS_AROUND = 2.5
"""Time of a run without its updates, with few validation pairs: there are many runs."""

BASE: dict[str, Value] = {
    "model.num_encoder_layers": 3,
    "model.num_decoder_layers": 3,
    "model.d_model": 32,
    "model.d_ff": 128,
    "model.num_heads": 4,
    "model.dropout": 0.1,
    "model.max_positions": 320,
    "training.max_validation_pairs": 20,
    "data.held_out": 200,
}
"""The base row here: half the layers and heads and a sixteenth of the widths of the paper's. Sentences have at most 256
pieces, and translations 50 tokens more, so that learned positions suffice."""

LEARNED = 5.0
"""BLEU of the base row from which on rows are judged: before a model translates at all, its loss shows how fast it
begins to learn, and not how good a model of its sizes is, which is what the paper's claims are about."""

LONG_BUDGET = 3600.0
"""Seconds of a budget from which on rows are wider."""

LARGER_WIDTHS: dict[str, Value] = {"model.d_model": 64, "model.d_ff": 256}
"""What changes in `BASE` with a budget of at least `LONG_BUDGET`: an eighth of the paper's widths."""


@dataclass(frozen=True)
class Row:
    """A row of Table 3: the paper's figures on newstest2013, from 100,000 updates (`big`: 300,000)."""

    name: str
    preset: str
    perplexity: float
    bleu: float
    millions: float = math.nan
    """Millions of parameters; printed where they differ from those of the row above."""

    @property
    def group(self) -> str:
        """The letter before the name; empty for the first and the last row."""
        letter, colon, _ = self.name.partition(":")
        return letter if colon else ""


BASE_ROW = Row("base", "base", 4.92, 25.8, 65.0)
ROWS = (
    Row("A: h = 1", "table3-A-1", 5.29, 24.9),
    Row("A: h = 4", "table3-A-2", 5.00, 25.5),
    Row("A: h = 16", "table3-A-3", 4.91, 25.8),
    Row("A: h = 32", "table3-A-4", 5.01, 25.4),
    Row("B: d_k = 16", "table3-B-1", 5.16, 25.1, 58.0),
    Row("B: d_k = 32", "table3-B-2", 5.01, 25.4, 60.0),
    Row("C: N = 2", "table3-C-1", 6.11, 23.7, 36.0),
    Row("C: N = 4", "table3-C-2", 5.19, 25.3, 50.0),
    Row("C: N = 8", "table3-C-3", 4.88, 25.5, 80.0),
    Row("C: d_model = 256", "table3-C-4", 5.75, 24.5, 28.0),
    Row("C: d_model = 1024", "table3-C-5", 4.66, 26.0, 168.0),
    Row("C: d_ff = 1024", "table3-C-6", 5.12, 25.4, 53.0),
    Row("C: d_ff = 4096", "table3-C-7", 4.75, 26.2, 90.0),
    Row("D: dropout 0.0", "table3-D-1", 5.77, 24.6),
    Row("D: dropout 0.2", "table3-D-2", 4.95, 25.5),
    Row("D: label smoothing 0.0", "table3-D-3", 4.67, 25.3),
    Row("D: label smoothing 0.2", "table3-D-4", 5.47, 25.7),
    Row("E: learned positions", "table3-E", 4.92, 25.7),
    Row("big", "table3-big", 4.33, 26.4, 213.0),
)

HEADS = Claim(
    "6.2, rows A",
    "Single-head attention is worse than the best setting, and quality also drops off with too many heads.",
)
KEYS = Claim("6.2, rows B", "Reducing the attention key size d_k hurts model quality.")
SIZES = Claim("6.2, rows C and big", "Bigger models are better.")
DROPOUT = Claim("6.2, rows D", "Dropout is very helpful in avoiding overfitting.")
SMOOTHING = Claim("5.4, rows D", "Label smoothing hurts perplexity, as the model learns to be more unsure.")
POSITIONS = Claim("6.2, row E", "Learned positions give nearly the same results as sinusoids.")

GROUPS: dict[Claim, Callable[[Row], bool]] = {
    HEADS: lambda row: row.name in {"A: h = 1", "A: h = 32"},
    KEYS: lambda row: row.group == "B",
    SIZES: lambda row: row.group == "C" or row.name == "big",
    DROPOUT: lambda row: row.name == "D: dropout 0.0",
    SMOOTHING: lambda row: row.name == "D: label smoothing 0.0",
    POSITIONS: lambda row: row.group == "E",
}
"""The rows that each claim is about; the others are in the table."""

_REMARK_ON_POSITIONS = (
    "Learned positions are as many as the longest sentence may have, 320; all else is in the paper's proportions, "
    "rounded."
)


def scale(preset: str, base: Mapping[str, Value]) -> dict[str, Value]:
    """Settings of a row in the proportions of its preset to the paper's base model.

    Numbers of layers and heads and widths are as many times those of `base` as in the paper, at least 1; probabilities
    and kinds are the paper's. Every row has the same number of updates.
    """
    paper = TransformerConfig()
    small = _read_sizes(base)
    settings = dict(base)
    for name, value in PRESETS[preset].get("model", {}).items():
        if name in small:
            settings[f"model.{name}"] = max(1, round(small[name] * value / getattr(paper, name)))
        else:
            settings[f"model.{name}"] = value
    if "label_smoothing" in PRESETS[preset].get("training", {}):
        settings["training.label_smoothing"] = PRESETS[preset]["training"]["label_smoothing"]
    return settings


def _read_sizes(base: Mapping[str, Value]) -> dict[str, int]:
    names = ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads")
    sizes = {name: int(base[f"model.{name}"]) for name in names}
    width = sizes["d_model"] // sizes["num_heads"]
    return {**sizes, "d_k": width, "d_v": width}


def make_variants(laboratory: Laboratory) -> dict[str, dict[str, Value]]:
    """Settings of all rows by name, the base row first."""
    base = dict(BASE)
    if laboratory.budget >= LONG_BUDGET:
        base |= LARGER_WIDTHS | ({"text.vocabulary": OWN_TEXT["text.vocabulary"]} if laboratory.text_files else {})
    return {row.name: scale(row.preset, base) for row in (BASE_ROW, *ROWS)}


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: every row, with as many updates as the budget allows, the same for all."""
    variants = make_variants(laboratory)
    updates = laboratory.plan_updates(list(variants.values()), seconds_around=SECONDS_AROUND)

    def make_trial(name: str, settings: Mapping[str, Value]) -> Trial:
        def measure(seed: int) -> Mapping[str, float]:
            return {**laboratory.train(settings, updates, seed), "updates": updates}

        return Trial({"row": name}, measure)

    return [make_trial(name, settings) for name, settings in variants.items()]


def compute_change(row: Row) -> float:
    """The change of the paper's loss against its base row, in nats per token."""
    return math.log(row.perplexity / BASE_ROW.perplexity)


def judge_row(row: Row, results: Results) -> Verdict:
    """Whether the loss of a row changes against the base row in the paper's direction.

    Supported if the whole confidence interval of the paired difference has the paper's sign, not supported if all of it
    has the other, and else not decided. If the paper's losses differ by at most `PRINTED`: supported if the interval
    lies within ± `SIMILAR`, not supported if all of it lies outside, and else not decided.
    """
    losses, base = results.by_seed("loss", row=row.name), results.by_seed("loss", row=BASE_ROW.name)
    expected = compute_change(row)
    if abs(expected) <= PRINTED:
        return judge_interval_within(compare(losses, base), -SIMILAR, SIMILAR)
    return judge_interval_above(compare(losses, base) if expected > 0 else compare(base, losses), 0.0)


def judge_group(claim: Claim, results: Results) -> ClaimResult:
    """The result for the claim about a group of rows.

    Supported if all of them change as in the paper, not supported if one does not, and else not decided; also not
    decided if the base row's BLEU is below `LEARNED`.
    """
    verdicts = {row.name: judge_row(row, results) for row in ROWS if GROUPS[claim](row)}
    changes = []
    for name in verdicts:
        change = compare(results.by_seed("loss", row=name), results.by_seed("loss", row=BASE_ROW.name))
        changes.append(f"{name}: {change.format('+.3f')}")
    agreeing = list(verdicts.values()).count("supported")
    verdict = "not decided" if has_not_learned(results) else combine_verdicts(verdicts.values())
    measured = (
        f"{agreeing} of {len(verdicts)} rows surely change as in the paper; loss minus that of the base row: "
        f"{'; '.join(changes)}"
    )
    return ClaimResult(claim, measured, verdict)


def has_not_learned(results: Results) -> bool:
    """Whether the mean BLEU of the base row is below `LEARNED`."""
    return results.mean("bleu", row=BASE_ROW.name) < LEARNED


def conclude(results: Results) -> Conclusion:
    """A verdict on each group of rows, and one table beside the paper's figures."""
    updates = results.mean("updates")
    shown = f"{updates:,.0f}" if math.isfinite(updates) else "equally many"
    remark = (
        f"Every row has {shown} updates; the paper's have 100,000, its big model 300,000. After few updates a larger "
        "model has not learned what it could, and a text that was seen only once or twice cannot be overfitted: then "
        "dropout has a cost and no gain. A budget of an hour or more has wider rows."
    )
    remarks = [remark, _REMARK_ON_POSITIONS]
    if has_not_learned(results):
        remarks.insert(
            0,
            f"Nothing is decided, whatever the rows of the table say: the base row's BLEU is below {LEARNED:g}, so the "
            "models have not learned to translate yet, and their losses show only how fast they begin to. On this "
            "machine the rows need a longer budget than this one, in another folder (--output) or with --restart.",
        )
    claim_results = [judge_group(claim, results) for claim in GROUPS]
    return Conclusion(claim_results, tables=[_tabulate(results)], remarks=remarks)


def _tabulate(results: Results) -> Table:
    rows = []
    for row in (BASE_ROW, *ROWS):
        losses = results.by_seed("loss", row=row.name)
        perplexity = confidence_interval({seed: math.exp(loss) for seed, loss in losses.items()})
        same_sign = ""
        if losses and row is not BASE_ROW:
            change = compare(losses, results.by_seed("loss", row=BASE_ROW.name)).mean
            expected = compute_change(row)
            agrees = abs(change) < SIMILAR if abs(expected) <= PRINTED else change * expected > 0
            same_sign = f"{'yes' if agrees else 'no'}; {judge_row(row, results)}"
        rows.append(
            [
                row.name,
                same_sign,
                f"{row.perplexity:.2f}",
                perplexity.format(".2f"),
                f"{row.bleu:.1f}",
                format_mean(results, "bleu", ".1f", row=row.name),
                "" if math.isnan(row.millions) else f"{row.millions:.0f}",
                f"{results.mean('parameters', row=row.name) / 1e6:.3f}" if losses else "",
            ]
        )
    heads = [
        "row, in the paper's sizes",
        "changes as in the paper; verdict",
        "perplexity, paper",
        "here",
        "BLEU, paper",
        "here",
        "millions of parameters, paper",
        "here",
    ]
    caption = "Table 3 of the paper and here: mean over the seeds (95 % confidence interval)"
    return Table(caption, heads, rows, num_texts=2)


EXPERIMENT = Experiment(
    title="Table 3 of the paper, scaled to the machine",
    claims=list(GROUPS),
    method=(
        "Each row of the paper's Table 3 is made in its proportions to the base model: half as many layers and heads, "
        "and widths of a sixteenth of the paper's (an eighth with a budget of an hour or more). All rows are "
        "trained with equally many updates on the same text. A row agrees with the paper if its loss changes against "
        "the base row in the same direction as the paper's perplexity."
    ),
    plan=plan,
    conclude=conclude,
)
