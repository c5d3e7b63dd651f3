"""The figures of metrics.jsonl as charts: SVG text without scripts, fonts or anything from elsewhere."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from transduce.training.reporting.metrics import Line, select_lines

Item = TypeVar("Item")

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 54, 40
MOST_MARKERS = 60
MOST_POINTS = 120
"""Of a curve: a longer one shows means, and around them the range of what they are means of."""

STYLE = (
    "svg.chart{--ink:#1c1e21;--soft:#5a6068;--rule:#d9dce0;--paper:#fff;--one:#1f63d6;--two:#b45309;--three:#18794e}"
    "@media screen and (prefers-color-scheme:dark){svg.chart{--ink:#ececec;--soft:#a8aeb6;--rule:#383c42;"
    "--paper:#16181c;--one:#74aaff;--two:#f0a35e;--three:#5cc98f}}"
    ".chart text{font:12px system-ui,sans-serif;fill:var(--soft)}.chart .title{font-size:14px;font-weight:600;"
    "fill:var(--ink)}.chart .grid{stroke:var(--rule)}.chart .paper{fill:var(--paper)}.chart .line{fill:none;"
    "stroke:var(--series);stroke-width:2;stroke-linejoin:round}.chart .band{fill:var(--series);opacity:.18}"
    ".chart .key{stroke:var(--series);stroke-width:10}.chart .mark{fill:var(--series)}"
    ".chart .one{--series:var(--one)}.chart .two{--series:var(--two)}.chart .two .line{stroke-dasharray:7 3}"
    ".chart .three{--series:var(--three)}.chart .three .line{stroke-dasharray:2 3}"
)
CLASSES = ("one", "two", "three")
"""What tells the series of a chart apart: colour, and kind of line."""


@dataclass(frozen=True)
class Series:
    """One line.

    Args:
        name: what it shows.
        points: from left to right.
        band: the lowest and the highest value that belong to each point; for no point unless given.
    """

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class _Axis:
    """From values to places along one side of the picture."""

    marks: Sequence[float]
    start: int
    end: int
    log: bool = False

    def place(self, value: float) -> float:
        low, high, here = (
            math.log10(number) if self.log else number for number in (self.marks[0], self.marks[-1], value)
        )
        return self.start + (here - low) / (high - low) * (self.end - self.start)


def draw_line_chart(title: str, series: Sequence[Series], x_label: str, y_label: str, *, log: bool = False) -> str:
    """An `<svg>` element; series without points are left out, and with `log` what is not above zero.

    Args:
        title: stands above it.
        series: at most three.
        x_label: what is counted from left to right.
        y_label: the unit from bottom to top.
        log: whether equal steps upwards are equal factors.
    """
    shown = [one for one in (_positive(one) if log else one for one in series) if one.points]
    if not shown:
        return _picture(title, [], f'<text x="{LEFT}" y="{HEIGHT / 2}">nothing to show yet</text>')
    values = [y for one in shown for _, y in one.points] + [end for one in shown for ends in one.band for end in ends]
    places = [x for one in shown for x, _ in one.points]
    scale = choose_log_ticks if log else choose_ticks
    across = _Axis(choose_ticks(min(places), max(places)), LEFT, WIDTH - RIGHT)
    up = _Axis(scale(min(values), max(values)), HEIGHT - BOTTOM, TOP, log)
    lines = [_line(one, name, across, up) for one, name in zip(shown, CLASSES, strict=False)]
    body = _frame(across, up, x_label, y_label, across.marks) + "".join(lines)
    return _picture(title, [one.name for one in shown if one.name], body)


def draw_histogram(title: str, width: int, counts: Mapping[str, Sequence[int]], x_label: str, y_label: str) -> str:
    """An `<svg>` element with bars side by side for each of up to three series.

    Args:
        title: stands above it.
        width: of a bin; the first begins at 0, the last has no end.
        counts: of each series, one number a bin.
        x_label: what is counted from left to right.
        y_label: what there are so many of.
    """
    num_bins = max(map(len, counts.values()), default=0)
    highest = max((count for series in counts.values() for count in series), default=0)
    if not highest:
        return _picture(title, [], f'<text x="{LEFT}" y="{HEIGHT / 2}">nothing to show yet</text>')
    # A number below every fifth bin; the last place has none, as what lies there has no end.
    across = _Axis([float(index * width) for index in (*range(0, num_bins, 5), num_bins)], LEFT, WIDTH - RIGHT)
    up = _Axis(choose_ticks(0.0, float(highest)), HEIGHT - BOTTOM, TOP)
    bar = (across.end - across.start) / num_bins * 0.9 / len(counts)
    parts = []
    for number, (name, series) in enumerate(counts.items()):
        rectangles = "".join(
            f'<rect class="mark" x="{across.place(float(index * width)) + number * bar:.1f}" '
            f'y="{up.place(float(count)):.1f}" width="{bar:.1f}" height="{up.start - up.place(float(count)):.1f}">'
            f"<title>{escape(name)}, {bin_name(index, width, num_bins)} {escape(x_label)}: {count:,}</title></rect>"
            for index, count in enumerate(series)
            if count
        )
        parts.append(f'<g class="{CLASSES[number]}">{rectangles}</g>')
    frame = _frame(across, up, x_label, y_label, numbered=across.marks[:-1])
    return _picture(title, list(counts), frame + "".join(parts), "key")


def bin_name(index: int, width: int, num_bins: int) -> str:
    """The values of a histogram's bin, as in "8 to 11"; of the last one "116 and more"."""
    low, high = index * width, (index + 1) * width - 1
    if index == num_bins - 1:
        return f"{low:,} and more"
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def make_standalone(picture: str) -> str:
    """The picture as a file of its own."""
    return picture.replace("<title>", f"<style>{STYLE}</style><title>", 1)


def choose_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers, from at most `low` to at least `high`."""
    span = high - low
    if span <= 1e-9 * abs(high):
        span = abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def choose_log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, or where they are few their double and fivefold too, from at most `low` to at least `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors, stride = ((1, 2, 5), 1) if last - first <= 2 else ((1,), math.ceil((last - first) / 6))
    marks = [factor * 10.0**power for power in range(first, last + stride + 1, stride) for factor in factors]
    start = max(index for index, mark in enumerate(marks) if mark <= low * (1 + 1e-9))
    end = min(index for index, mark in enumerate(marks) if mark >= high * (1 - 1e-9))
    return marks[start : max(end, start + 1) + 1]


def _positive(series: Series) -> Series:
    kept = [index for index, (_, y) in enumerate(series.points) if y > 0]
    points = [series.points[index] for index in kept]
    # A band that touches zero would be endless: it is cut at the point.
    band = [series.band[index] for index in kept] if series.band else []
    cut = [(low if low > 0 else y, high) for (low, high), (_, y) in zip(band, points, strict=False)]
    return Series(series.name, points, cut)


def _picture(title: str, names: Sequence[str], body: str, key: str = "line") -> str:
    """Title, and a `key` for each name, around `body`."""
    legend, x = "", LEFT
    for name, style in zip(names, CLASSES, strict=False):
        legend += (
            f'<g class="{style}"><line class="{key}" x1="{x}" x2="{x + 20}" y1="36" y2="36"/></g>'
            f'<text x="{x + 25}" y="40">{escape(name)}</text>'
        )
        x += 40 + round(6.6 * len(name))
    described = f"{title}: {', '.join(names)}" if names else title
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(described)}</title>"
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>{legend}{body}</svg>'
    )


def _frame(across: _Axis, up: _Axis, x_label: str, y_label: str, numbered: Sequence[float]) -> str:
    """Grid, labels, and numbers: on the left all marks, below those that are `numbered`."""
    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up.place(y):.1f}" y2="{up.place(y):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{up.place(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
        for y in up.marks
    ]
    bottom = HEIGHT - BOTTOM + 16
    # A number below the right edge of the plot ends there, as a long one would be cut off.
    anchors = ["end" if across.place(x) == across.end else "middle" for x in numbered]
    parts += [
        f'<text x="{across.place(x):.1f}" y="{bottom}" text-anchor="{anchor}">{_number(x)}</text>'
        for x, anchor in zip(numbered, anchors, strict=True)
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="20" text-anchor="end">{escape(y_label)}</text>')
    return "".join(parts)


def _line(series: Series, style: str, across: _Axis, up: _Axis) -> str:
    def path(points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in points)

    parts = []
    if series.band:
        ends = list(zip((x for x, _ in series.points), series.band, strict=True))
        around = [(x, high) for x, (_, high) in ends] + [(x, low) for x, (low, _) in reversed(ends)]
        parts.append(f'<polygon class="band" points="{path(around)}"/>')
    parts.append(f'<polyline class="line" points="{path(series.points)}"/>')
    marked = series.points if len(series.points) <= MOST_MARKERS else series.points[-1:]
    parts += [
        f'<circle class="mark" cx="{across.place(x):.1f}" cy="{up.place(y):.1f}" r="2.5">'
        f"<title>{escape(series.name)} at {x:,.0f}: {_number(y)}</title></circle>"
        for x, y in marked
    ]
    return f'<g class="{style}">{"".join(parts)}</g>'


def _number(value: float) -> str:
    return f"{float(f'{value:.6g}'):,.10g}" if 1 <= abs(value) < 1e9 else f"{value:.3g}"


def validations(lines: Sequence[Line]) -> list[Line]:
    """The lines that tell how good a model is: of the moment, or an average."""
    return select_lines(lines, "validation", "average")


def sample_evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly spread; the first and the last are among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def draw_charts(lines: Sequence[Line]) -> list[str]:
    """All curves of a run over its updates."""
    training, validation = select_lines(lines, "training"), select_lines(lines, "validation")

    def trained(name: str, key: str) -> Series:
        return _training_series(name, key, training)

    losses = [
        trained("training loss", "loss"),
        trained("training cross-entropy", "cross_entropy"),
        _validation_series("validation", "loss", validation),
    ]
    accuracies = [trained("training", "accuracy"), _validation_series("validation", "accuracy", validation)]
    scores = [_score_series(metric, validation) for metric in ("BLEU", "chrF")]
    source_uses = select_lines(lines, "source_use")
    sources = [
        _validation_series("right source", "loss", source_uses),
        _validation_series("source of another pair", "shuffled_loss", source_uses),
    ]
    return [
        draw_line_chart("BLEU and chrF on the validation text", scores, "updates", ""),
        draw_line_chart("Loss and cross-entropy", losses, "updates", "nats a token"),
        draw_line_chart("What the source is worth", sources, "updates", "nats a token, small sample"),
        draw_line_chart("Learning rate", [trained("", "learning_rate")], "updates", ""),
        draw_line_chart("Gradient norm", [trained("", "gradient_norm")], "updates", "before clipping", log=True),
        draw_line_chart("Throughput", [trained("", "tokens_per_second")], "updates", "target tokens/s"),
        draw_line_chart("Accuracy of the next token", accuracies, "updates", "share"),
    ]


def draw_learning_curve(lines: Sequence[Line]) -> str:
    """BLEU on the validation text over the updates, as an SVG file: the picture of a run in one glance."""
    series = _score_series("BLEU", select_lines(lines, "validation"))
    return make_standalone(draw_line_chart("BLEU on the validation text", [series], "updates", ""))


def group_lines(lines: Sequence[Line], most: int) -> list[Sequence[Line]]:
    """Neighbouring lines, so many in each group that there are at most `most` groups."""
    size = max(1, math.ceil(len(lines) / most))
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def _values(key: str, group: Sequence[Line]) -> list[float]:
    return [value for line in group if (value := to_finite(line.get(key))) is not None]


def compute_mean(key: str, group: Sequence[Line]) -> float | None:
    """The mean of a figure over the lines that have it; None if none has."""
    values = _values(key, group)
    return sum(values) / len(values) if values else None


def _training_series(name: str, key: str, training: Sequence[Line]) -> Series:
    groups = [(group[-1]["update"], _values(key, group)) for group in group_lines(training, MOST_POINTS)]
    found = [(float(update), values) for update, values in groups if values]
    band = [(min(values), max(values)) for _, values in found] if len(training) > MOST_POINTS else []
    return Series(name, [(update, sum(values) / len(values)) for update, values in found], band)


def _validation_series(name: str, key: str, validation: Sequence[Line]) -> Series:
    points = [(float(line["update"]), value) for line in validation if (value := to_finite(line.get(key))) is not None]
    return Series(name, sample_evenly(points, MOST_POINTS))


def _score_series(metric: str, validation: Sequence[Line]) -> Series:
    """The values of one metric; their confidence intervals are the band, if all of them have one."""
    found = [
        (float(line["update"]), score)
        for line in validation
        for score in line.get("scores", [])
        if score["metric"] == metric and to_finite(score["value"]) is not None
    ]
    shown = sample_evenly(found, MOST_POINTS)
    ends = [(to_finite(score.get("low")), to_finite(score.get("high"))) for _, score in shown]
    band = [(low, high) for low, high in ends if low is not None and high is not None]
    return Series(metric, [(update, score["value"]) for update, score in shown], band if len(band) == len(ends) else [])


def to_finite(value: object) -> float | None:
    """The figure, or None for what no chart has a place for: no number, not finite, or beyond all sense."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e30:
        return float(value)
    return None
