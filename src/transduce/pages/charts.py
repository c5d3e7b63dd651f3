"""Charts as SVG text without scripts, fonts or external resources."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from transduce.pages.templates import make_templates, read_style

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 54, 40
LEGEND_TOP, LEGEND_LINE = 36, 16
MAX_MARKERS = 60

CHARACTER = 6.6
"""About how wide a character of the legend is."""

CLASSES = ("one", "two", "three", "four", "five", "six")
"""CSS classes of the series of a chart, which differ in colour and line style."""

MAX_SERIES = len(CLASSES)
"""Maximum number of series of a chart: of more, colours would repeat."""

NUM_TICKS = 5
"""About how many numbers an axis has."""

_TEMPLATES = make_templates()


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    """From left to right."""
    band: Sequence[tuple[float, float]] = ()
    """The lowest and the highest value of each point, if they are shown."""


@dataclass(frozen=True)
class _Axis:
    """Maps values to places along one side of a chart."""

    marks: Sequence[float]
    start: int
    end: int
    log: bool = False

    def place(self, value: float) -> float:
        low, high, here = (
            math.log10(number) if self.log else number for number in (self.marks[0], self.marks[-1], value)
        )
        return self.start + (here - low) / (high - low) * (self.end - self.start)


def draw_line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    log: bool = False,
    log_x: bool = False,
) -> str:
    """An `<svg>` element with at most six series; those without points are left out.

    With `log`, the vertical axis is logarithmic, and values that are not above zero are left out. With `log_x`, the
    horizontal axis is, and all its values are above zero.
    """
    shown = [one for one in (_keep_positive(one) if log else one for one in series) if one.points]
    if not shown:
        return _render(title)
    values = [y for one in shown for _, y in one.points] + [end for one in shown for ends in one.band for end in ends]
    across_values = [x for one in shown for x, _ in one.points]
    scale = choose_log_ticks if log else choose_ticks
    ticks = (choose_log_ticks if log_x else choose_ticks)(min(across_values), max(across_values))
    across = _Axis(ticks, LEFT, WIDTH - RIGHT, log_x)
    names = [one.name for one in shown if one.name]
    up = _Axis(scale(min(values), max(values)), HEIGHT - BOTTOM, _place_top(names), log)

    def path(points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in points)

    lines = []
    for one, style in zip(shown, CLASSES, strict=False):
        ends = [(x, low, high) for (x, _), (low, high) in zip(one.points, one.band, strict=False)]
        band = path([(x, high) for x, _, high in ends] + [(x, low) for x, low, _ in reversed(ends)])
        marked = one.points if len(one.points) <= MAX_MARKERS else one.points[-1:]
        texts = [f"{one.name} at {x:,.0f}: {_number(y)}" for x, y in marked]
        markers = [(across.place(x), up.place(y), text) for (x, y), text in zip(marked, texts, strict=True)]
        lines.append((style, band, path(one.points), markers))
    # A number below the right edge of the plot ends there, as a long one would be cut off.
    places = [
        (across.place(mark), "end" if mark == across.marks[-1] else "middle", _number(mark)) for mark in across.marks
    ]
    axes = {"up": up, "below": places, "x_label": x_label, "y_label": y_label}
    return _render(title, names, "line", lines=lines, **axes)


def draw_histogram(title: str, width: int, counts: Mapping[str, Sequence[int]], x_label: str, y_label: str) -> str:
    """An `<svg>` element with bars side by side for each of up to six series; `counts` has one number per bin.

    Bins are `width` wide; the first begins at 0, the last has no end.
    """
    num_bins = max(map(len, counts.values()), default=0)
    names = [f"{name_bin(index, width, num_bins)} {x_label}" for index in range(num_bins)]
    # A number below every fifth bin, at its left edge; the last one has none, as its bin is unbounded.
    labels = [(float(index), _number(float(index * width))) for index in range(0, num_bins, 5)]
    return _draw_bars(title, names, labels, counts, x_label, y_label)


def draw_bar_chart(
    title: str, classes: Sequence[str], values: Mapping[str, Sequence[float]], x_label: str, y_label: str
) -> str:
    """An `<svg>` element with a group of bars for each class: one of each series, of which there are up to six.

    Args:
        title: stands above the chart.
        classes: names of the groups, from left to right.
        values: for each series, by its name, one number from 0 on for each class.
        x_label: names what the classes are.
        y_label: names what the bars measure.
    """
    labels = [(index + 0.5, name) for index, name in enumerate(classes)]
    return _draw_bars(title, [f"{x_label} {name}" for name in classes], labels, values, x_label, y_label)


def _draw_bars(
    title: str,
    groups: Sequence[str],
    labels: Sequence[tuple[float, str]],
    values: Mapping[str, Sequence[int] | Sequence[float]],
    x_label: str,
    y_label: str,
) -> str:
    """Bars in `groups` by their names; a label stands at its place, where group n reaches from n to n + 1."""
    highest = max((value for series in values.values() for value in series), default=0)
    if not highest:
        return _render(title)
    across = _Axis((0.0, float(len(groups))), LEFT, WIDTH - RIGHT)
    up = _Axis(choose_ticks(0.0, float(highest)), HEIGHT - BOTTOM, _place_top(list(values)))
    bar = (across.end - across.start) / len(groups) * 0.9 / len(values)
    histogram = []
    for number, (name, style) in enumerate(zip(values, CLASSES, strict=False)):
        bars = []
        for index, value in enumerate(values[name]):
            if value:
                text = f"{name}, {groups[index]}: {_number(float(value))}"
                bars.append((across.place(float(index)) + number * bar, up.place(float(value)), bar, text))
        histogram.append((style, bars))
    below = [(across.place(place), "middle", text) for place, text in labels]
    axes = {"up": up, "below": below, "x_label": x_label, "y_label": y_label}
    return _render(title, list(values), "key", histogram=histogram, **axes)


def name_bin(index: int, width: int, num_bins: int) -> str:
    """The values of a histogram's bin, as in "8 to 11"; of the last one "116 and more"."""
    low, high = index * width, (index + 1) * width - 1
    if index == num_bins - 1:
        return f"{low:,} and more"
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def make_standalone(chart: str) -> str:
    """The chart as a file of its own, with its style."""
    return chart.replace("<title>", f"<style>{read_style('chart.css')}</style><title>", 1)


def choose_ticks(low: float, high: float) -> list[float]:
    """About `NUM_TICKS` round numbers, from at most `low` to at least `high`."""
    span = high - low
    if span <= 1e-9 * abs(high):
        span = abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / NUM_TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= NUM_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def choose_log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, and if these are few also 2 and 5 times them, from at most `low` to at least `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors, stride = ((1, 2, 5), 1) if last - first <= 2 else ((1,), math.ceil((last - first) / 6))
    marks = [factor * 10.0**power for power in range(first, last + stride + 1, stride) for factor in factors]
    start = max(index for index, mark in enumerate(marks) if mark <= low * (1 + 1e-9))
    end = min(index for index, mark in enumerate(marks) if mark >= high * (1 - 1e-9))
    return marks[start : max(end, start + 1) + 1]


def _keep_positive(series: Series) -> Series:
    kept = [index for index, (_, y) in enumerate(series.points) if y > 0]
    points = [series.points[index] for index in kept]
    # On a logarithmic axis a band that reaches zero would be infinite: it is cut at the point.
    band = [series.band[index] for index in kept] if series.band else []
    cut = [(low if low > 0 else y, high) for (low, high), (_, y) in zip(band, points, strict=False)]
    return Series(series.name, points, cut)


def _place_legend(names: Sequence[str]) -> list[tuple[int, int]]:
    """Where each name of a legend begins, from left to right and, where they do not fit, in another line."""
    places, x, y = [], LEFT, LEGEND_TOP
    for name in names:
        width = 40 + round(CHARACTER * len(name))
        if x > LEFT and x + width > WIDTH:
            x, y = LEFT, y + LEGEND_LINE
        places.append((x, y))
        x += width
    return places


def _shorten(name: str) -> str:
    """The name as a legend shows it: of one longer than a line, as a path may be, the beginning and most of the end."""
    longest = int((WIDTH - RIGHT - LEFT - 25) / CHARACTER)
    start = longest // 4
    return name if len(name) <= longest else f"{name[:start]}…{name[start + 1 - longest :]}"


def _place_top(names: Sequence[str]) -> int:
    """The upper end of the plot, below the legend."""
    return max([TOP] + [y + TOP - LEGEND_TOP for _, y in _place_legend(list(map(_shorten, names)))])


def _render(title: str, names: Sequence[str] = (), key: str = "line", **parts: object) -> str:
    """Render the chart with a legend of `names`; without `parts`, it shows a note that there are no data."""
    sizes = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM}
    shown = list(map(_shorten, names))
    legend = [(style, *place, name) for style, place, name in zip(CLASSES, _place_legend(shown), shown, strict=False)]
    nothing = {"up": None, "lines": (), "histogram": ()}
    return _TEMPLATES.get_template("chart.svg.j2").render(
        title=title, names=names, legend=legend, key=key, **sizes, **nothing | parts
    )


def _number(value: float) -> str:
    return f"{float(f'{value:.6g}'):,.10g}" if 1 <= abs(value) < 1e9 else f"{value:.3g}"


_TEMPLATES.filters["number"] = _number
