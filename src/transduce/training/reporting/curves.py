"""The curves of a run: the figures of metrics.jsonl over its updates, as charts."""

import math
from collections.abc import Sequence

from transduce.pages import Series, draw_line_chart, make_standalone, sample_evenly
from transduce.training.reporting import MetricsLine, select_lines

MAX_POINTS = 120
"""Maximum number of points of a curve; of a longer one, means and ranges are shown."""


def has_r_drop(training: Sequence[MetricsLine]) -> bool:
    """Whether lines of training have the divergence of R-Drop."""
    return any("divergence" in line for line in training)


def draw_charts(lines: Sequence[MetricsLine]) -> list[str]:
    """All curves of a run over its updates."""
    training, validation = select_lines(lines, "training"), select_lines(lines, "validation")

    def make_series(name: str, key: str) -> Series:
        return _make_training_series(name, key, training)

    losses = [
        make_series("training loss", "loss"),
        make_series("training cross-entropy", "cross_entropy"),
        _make_validation_series("validation", "loss", validation),
    ]
    accuracies = [make_series("training", "accuracy"), _make_validation_series("validation", "accuracy", validation)]
    scores = [_make_score_series(metric, validation) for metric in ("BLEU", "chrF")]
    source_uses = select_lines(lines, "source_use")
    sources = [
        _make_validation_series("right source", "loss", source_uses),
        _make_validation_series("source of another pair", "shuffled_loss", source_uses),
    ]
    divergences = [make_series("", "divergence")]
    of_r_drop = [draw_line_chart("Divergence of the two passes of R-Drop", divergences, "updates", "nats per token")]
    return [
        draw_line_chart("BLEU and chrF on the validation text", scores, "updates", ""),
        draw_line_chart("Loss and cross-entropy", losses, "updates", "nats per token"),
        *(of_r_drop if has_r_drop(training) else []),
        draw_line_chart("Effect of the source", sources, "updates", "nats per token, small sample"),
        draw_line_chart("Learning rate", [make_series("", "learning_rate")], "updates", ""),
        draw_line_chart("Gradient norm", [make_series("", "gradient_norm")], "updates", "before clipping", log=True),
        draw_line_chart("Throughput", [make_series("", "tokens_per_second")], "updates", "target tokens/s"),
        draw_line_chart("Accuracy of the next token", accuracies, "updates", "share"),
    ]


def draw_learning_curve(lines: Sequence[MetricsLine]) -> str:
    """BLEU on the validation text over the updates, as an SVG file: an overview of a run."""
    series = _make_score_series("BLEU", select_lines(lines, "validation"))
    return make_standalone(draw_line_chart("BLEU on the validation text", [series], "updates", ""))


def group_lines(lines: Sequence[MetricsLine], max_count: int) -> list[Sequence[MetricsLine]]:
    """Groups of neighbouring lines, at most `max_count` groups."""
    size = max(1, math.ceil(len(lines) / max_count))
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def _list_values(key: str, group: Sequence[MetricsLine]) -> list[float]:
    return [value for line in group if (value := to_finite(line.get(key))) is not None]


def compute_mean(key: str, group: Sequence[MetricsLine]) -> float | None:
    """The mean of a figure over the lines that have it; None if none has."""
    values = _list_values(key, group)
    return sum(values) / len(values) if values else None


def _make_training_series(name: str, key: str, training: Sequence[MetricsLine]) -> Series:
    groups = [(group[-1]["update"], _list_values(key, group)) for group in group_lines(training, MAX_POINTS)]
    found = [(float(update), values) for update, values in groups if values]
    band = [(min(values), max(values)) for _, values in found] if len(training) > MAX_POINTS else []
    return Series(name, [(update, sum(values) / len(values)) for update, values in found], band)


def _make_validation_series(name: str, key: str, validation: Sequence[MetricsLine]) -> Series:
    points = [(float(line["update"]), value) for line in validation if (value := to_finite(line.get(key))) is not None]
    return Series(name, sample_evenly(points, MAX_POINTS))


def _make_score_series(metric: str, validation: Sequence[MetricsLine]) -> Series:
    """The values of one metric; their confidence intervals are the band, if all of them have one."""
    found = [
        (float(line["update"]), score)
        for line in validation
        for score in line.get("scores", [])
        if score["metric"] == metric and to_finite(score["value"]) is not None
    ]
    shown = sample_evenly(found, MAX_POINTS)
    ends = [(to_finite(score.get("low")), to_finite(score.get("high"))) for _, score in shown]
    band = [(low, high) for low, high in ends if low is not None and high is not None]
    return Series(metric, [(update, score["value"]) for update, score in shown], band if len(band) == len(ends) else [])


def to_finite(value: object) -> float | None:
    """The figure, or None if it is not a finite number or too large to plot."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e30:
        return float(value)
    return None
