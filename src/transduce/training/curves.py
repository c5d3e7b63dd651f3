"""The figures of metrics.jsonl as curves, and the same as tables for who cannot see curves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from transduce.training.chart import Series, line_chart, standalone
from transduce.training.markup import figure_text, finite, table

Line = Mapping[str, Any]
Item = TypeVar("Item")

MOST_POINTS = 120
"""Of a curve: a longer one shows means, and around them the range of what they are means of."""

TRAINING_ROWS, VALIDATION_ROWS = 20, 40
TRAINING_COLUMNS = {
    "loss": ("loss", ".3f"),
    "cross_entropy": ("cross-entropy", ".3f"),
    "accuracy": ("accuracy", ".1%"),
    "learning_rate": ("learning rate", ".2e"),
    "gradient_norm": ("gradient norm", ".3g"),
    "tokens_per_second": ("tokens/s", ",.0f"),
}
"""Key in a line of training, what it is called, and its format."""


def of_kind(lines: Sequence[Line], *kinds: str) -> list[Line]:
    """The lines of these kinds."""
    return [line for line in lines if line.get("kind") in kinds]


def validations(lines: Sequence[Line]) -> list[Line]:
    """The lines that tell how good a model is: of the moment, or an average."""
    return of_kind(lines, "validation", "average")


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly spread; the first and the last are among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def charts(lines: Sequence[Line]) -> list[str]:
    """All curves of a run over its updates."""
    training, validation = of_kind(lines, "training"), of_kind(lines, "validation")

    def trained(name: str, key: str) -> Series:
        return _training_series(name, key, training)

    losses = [
        trained("training loss", "loss"),
        trained("training cross-entropy", "cross_entropy"),
        _validation_series("validation", "loss", validation),
    ]
    accuracies = [trained("training", "accuracy"), _validation_series("validation", "accuracy", validation)]
    scores = [_score_series(metric, validation) for metric in ("BLEU", "chrF")]
    looks = of_kind(lines, "source_use")
    sources = [
        _validation_series("right source", "loss", looks),
        _validation_series("source of another pair", "shuffled_loss", looks),
    ]
    return [
        line_chart("BLEU and chrF on the validation text", scores, "updates", ""),
        line_chart("Loss and cross-entropy", losses, "updates", "nats a token"),
        line_chart("What the source is worth", sources, "updates", "nats a token, small sample"),
        line_chart("Learning rate", [trained("", "learning_rate")], "updates", ""),
        line_chart("Gradient norm", [trained("", "gradient_norm")], "updates", "before clipping", log=True),
        line_chart("Throughput", [trained("", "tokens_per_second")], "updates", "target tokens/s"),
        line_chart("Accuracy of the next token", accuracies, "updates", "share"),
    ]


def learning_curve(lines: Sequence[Line]) -> str:
    """BLEU on the validation text over the updates, as an SVG file: the picture of a run in one glance."""
    series = _score_series("BLEU", of_kind(lines, "validation"))
    return standalone(line_chart("BLEU on the validation text", [series], "updates", ""))


def training_table(lines: Sequence[Line]) -> str:
    """The curves of training in numbers."""
    rows = []
    for group in _groups(of_kind(lines, "training"), TRAINING_ROWS):
        means = [(_mean(key, group), form) for key, (_, form) in TRAINING_COLUMNS.items()]
        rows.append(
            [
                f"{group[-1]['update']:,}",
                *("not finite" if mean is None else format(mean, form) for mean, form in means),
            ]
        )
    heads = ["update", *(name for name, _ in TRAINING_COLUMNS.values())]
    return table("Training: means since the row above", heads, rows, num_texts=0)


def validation_table(lines: Sequence[Line]) -> str:
    """The validations in numbers."""
    all_of_them = validations(lines)
    shown = spread(all_of_them, VALIDATION_ROWS)
    metrics = list(dict.fromkeys(score["metric"] for line in shown for score in line.get("scores", [])))
    rows = []
    for line in shown:
        scores = {score["metric"]: score for score in line.get("scores", [])}
        update = f"{line['update']:,}" + (f" ({name})" if (name := average_name(line)) else "")
        rows.append(
            [
                update,
                "best so far" if line.get("is_best") else "",
                figure_text(line.get("loss"), ".3f"),
                figure_text(line.get("perplexity"), ",.2f"),
                figure_text(line.get("accuracy"), ".1%"),
                *(score_text(scores[metric]) if metric in scores else "" for metric in metrics),
            ]
        )
    some = f", {len(shown)} of {len(all_of_them):,}" if len(shown) < len(all_of_them) else ""
    heads = ["update", "rank", "cross-entropy", "perplexity", "accuracy", *(f"{metric} (95 %)" for metric in metrics)]
    return table(f"Validations{some}, with 95 % confidence intervals", heads, rows, num_texts=2)


def average_name(line: Line) -> str:
    """The kind of average that a line is about, if it is one."""
    if line["kind"] != "average":
        return ""
    if line.get("ema_decay"):
        return "moving average"
    return "average of checkpoints" if line.get("averaged_checkpoints", 0) != 1 else "last weights"


def score_text(score: Line) -> str:
    """As in "34.57 (33.12–36.01)"; without the interval where there is none."""
    value = figure_text(score["value"], ".2f")
    low, high = score.get("low"), score.get("high")
    return value if low is None or high is None else f"{value} ({low:.2f}–{high:.2f})"


def num_not_finite(lines: Sequence[Line]) -> int:
    """Figures that the curves leave out since no chart has a place for them."""
    keys = [*TRAINING_COLUMNS, "perplexity"]
    figures = [line[key] for line in lines for key in keys if key in line]
    figures += [score["value"] for line in lines for score in line.get("scores", [])]
    return sum(finite(figure) is None for figure in figures)


def _groups(lines: Sequence[Line], most: int) -> list[Sequence[Line]]:
    """Neighbouring lines, so many in each group that there are at most `most` groups."""
    size = max(1, math.ceil(len(lines) / most))
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def _values(key: str, group: Sequence[Line]) -> list[float]:
    return [value for line in group if (value := finite(line.get(key))) is not None]


def _mean(key: str, group: Sequence[Line]) -> float | None:
    values = _values(key, group)
    return sum(values) / len(values) if values else None


def _training_series(name: str, key: str, training: Sequence[Line]) -> Series:
    groups = [(group[-1]["update"], _values(key, group)) for group in _groups(training, MOST_POINTS)]
    found = [(float(update), values) for update, values in groups if values]
    band = [(min(values), max(values)) for _, values in found] if len(training) > MOST_POINTS else []
    return Series(name, [(update, sum(values) / len(values)) for update, values in found], band)


def _validation_series(name: str, key: str, validation: Sequence[Line]) -> Series:
    points = [(float(line["update"]), value) for line in validation if (value := finite(line.get(key))) is not None]
    return Series(name, spread(points, MOST_POINTS))


def _score_series(metric: str, validation: Sequence[Line]) -> Series:
    """The values of one metric; their confidence intervals are the band, if all of them have one."""
    found = [
        (float(line["update"]), score)
        for line in validation
        for score in line.get("scores", [])
        if score["metric"] == metric and finite(score["value"]) is not None
    ]
    shown = spread(found, MOST_POINTS)
    ends = [(finite(score.get("low")), finite(score.get("high"))) for _, score in shown]
    band = [(low, high) for low, high in ends if low is not None and high is not None]
    return Series(metric, [(update, score["value"]) for update, score in shown], band if len(band) == len(ends) else [])
